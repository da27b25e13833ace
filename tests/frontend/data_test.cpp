// The batches of a DataLoader: how many, how large, and which samples, as PyTorch's has them.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven::data_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;

/// Five images of one pixel and their labels, 0 to 4, in a folder of this process that goes away: ctest runs cases side
/// by side.
class FiveImages {
 public:
  FiveImages() : path_(fs::temp_directory_path() / ("graven_data_test_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    const auto write = [&](const char* name, const std::string& text) {
      std::ofstream(path_ / name, std::ios::binary) << text;
    };
    write("train-images-idx3-ubyte", std::string("\0\0\x08\x03\0\0\0\x05\0\0\0\x01\0\0\0\x01"
                                                 "abcde",
                                                 21));
    write("train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x05\0\1\2\3\4", 13));
  }
  FiveImages(const FiveImages&) = delete;
  FiveImages& operator=(const FiveImages&) = delete;
  ~FiveImages() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(DataLoader, HasTheBatchesOfPyTorch) {
  const FiveImages images;
  using Labels = std::vector<std::vector<std::int64_t>>;
  const struct {
    std::int64_t batch_size;
    Labels all, full;  ///< without drop_last and with it
  } cases[] = {
      {1, {{0}, {1}, {2}, {3}, {4}}, {{0}, {1}, {2}, {3}, {4}}},
      {2, {{0, 1}, {2, 3}, {4}}, {{0, 1}, {2, 3}}},
      {4, {{0, 1, 2, 3}, {4}}, {{0, 1, 2, 3}}},
      {5, {{0, 1, 2, 3, 4}}, {{0, 1, 2, 3, 4}}},
      {6, {{0, 1, 2, 3, 4}}, {}},
      {INT64_MAX, {{0, 1, 2, 3, 4}}, {}},
  };
  for (const auto& c : cases) {
    for (const bool drop_last : {false, true}) {
      SCOPED_TRACE(std::to_string(c.batch_size) + (drop_last ? ", drop_last" : ""));
      const data::DataLoader loader(images.path(), {.batch_size = c.batch_size, .drop_last = drop_last});
      const Labels& expected = drop_last ? c.full : c.all;
      EXPECT_EQ(loader.size(), static_cast<std::int64_t>(expected.size()));
      EXPECT_EQ(loader.samples(), 5);
      Labels found;
      for (const data::Batch& batch : loader.epoch()) {
        found.push_back(batch.target.to_vector<std::int64_t>());
        EXPECT_EQ(batch.data.size(0), batch.target.size(0));
      }
      EXPECT_EQ(found, expected);
      const std::string size = std::to_string(expected.size());
      const auto says = [&](const auto& mistake, const std::string& error) {
        const std::string text = error_of(mistake);
        EXPECT_EQ(text.find("error: DataLoader: " + error + "\n  at data_test.cpp:"), 0u) << text;
      };
      says([&] { loader.epoch(0, 9); }, "the first batch must lie in [0, " + size + "], got 9");
      says([&] { loader.batch(0, 9); }, "an epoch has " + size + " batches, there is no batch 9");
    }
  }
}

struct Squares : data::Dataset {
  std::int64_t count = 7;
  std::int64_t size() const override { return count; }
  data::Batch get(std::int64_t index) const override {
    const double x = static_cast<double>(index);
    return {tensor({x, x * x}), tensor(index, i64)};
  }
};
/// Without a target.
struct Alone : data::Dataset {
  std::int64_t size() const override { return 3; }
  data::Batch get(std::int64_t index) const override { return {full({2}, index), {}}; }
};
/// The last sample is of another shape.
struct Uneven : data::Dataset {
  std::int64_t size() const override { return 3; }
  data::Batch get(std::int64_t index) const override { return {zeros({index == 2 ? 4 : 5}), tensor(1)}; }
};

/// Gives other numbers of rows than it is asked for.
struct Miscounts : data::Dataset {
  std::int64_t rows, targets;
  Miscounts(std::int64_t rows, std::int64_t targets) : rows(rows), targets(targets) {}
  std::int64_t size() const override { return 4; }
  data::Batch get(std::int64_t) const override { return {}; }
  data::Batch get_batch(const Sizes&) const override {
    return {rows < 0 ? Tensor() : zeros({rows, 3}), targets < 0 ? tensor(1.0) : zeros({targets})};
  }
};

std::vector<std::int64_t> labels_of(const data::DataLoader& loader, std::int64_t epoch, std::int64_t first = 0) {
  std::vector<std::int64_t> labels;
  for (const data::Batch& batch : loader.epoch(epoch, first))
    for (const std::int64_t label : batch.target.to_vector<std::int64_t>()) labels.push_back(label);
  return labels;
}

TEST(DataLoader, OfTensorsAndOfAClassHasTheOrderOfFiles) {
  const FiveImages images;
  Squares five;
  five.count = 5;
  const Tensor rows = stack({arange(5), arange(5) * arange(5)}, 1).to(f32);
  for (const bool shuffle : {false, true})
    for (const bool drop_last : {false, true})
      for (const std::int64_t seed : {0, 7}) {
        const data::DataLoaderOptions options{
            .batch_size = 2, .shuffle = shuffle, .seed = seed, .drop_last = drop_last};
        const data::DataLoader files(images.path(), options), own(five, options),
            memory(data::TensorDataset(rows, arange(5)), options);
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          SCOPED_TRACE(testing::Message() << shuffle << drop_last << ", seed " << seed << ", epoch " << epoch);
          const std::vector<std::int64_t> expected = labels_of(files, epoch);
          EXPECT_EQ(labels_of(own, epoch), expected);
          EXPECT_EQ(labels_of(memory, epoch), expected);
          // One that goes on where another stopped.
          EXPECT_EQ(labels_of(memory, epoch, 1), std::vector<std::int64_t>(expected.begin() + 2, expected.end()));
          for (std::int64_t b = 0; b < own.size(); ++b) {
            EXPECT_TRUE(equal(own.batch(epoch, b).data, memory.batch(epoch, b).data));
            EXPECT_TRUE(equal(own.batch(epoch, b).data.select(1, 0).to(i64), own.batch(epoch, b).target));
          }
        }
        EXPECT_EQ(own.samples(), 5);
      }
}

TEST(DataLoader, TargetsMayBeLeftOut) {
  const data::DataLoader own(std::make_shared<Alone>(), {.batch_size = 2}),
      memory(data::TensorDataset(zeros({3, 2})), {.batch_size = 2});
  EXPECT_TRUE(equal(own.batch(0, 1).data, full({1, 2}, 2)));
  EXPECT_EQ(memory.batch(0, 0).data.sizes(), (Sizes{2, 2}));
  EXPECT_FALSE(own.batch(0, 0).target.defined());
  EXPECT_FALSE(memory.batch(0, 0).target.defined());
  EXPECT_FALSE(data::TensorDataset(zeros({3, 2})).get(1).target.defined());
}

TEST(DataLoader, OneThatWasMovedStillHasItsData) {
  data::DataLoader loader(data::TensorDataset(zeros({3, 2})), {.batch_size = 2});
  const data::DataLoader other = std::move(loader);
  EXPECT_EQ(loader.size(), 2);  // NOLINT: what is asked
  EXPECT_EQ(other.samples(), 3);
}

TEST(DataLoader, OneBesideAnotherGoesThroughTheSameSamples) {
  const data::DataLoaderOptions options{.batch_size = 3, .shuffle = true, .seed = 4};
  const data::DataLoader numbers(data::TensorDataset(arange(8)), options),
      rows(data::TensorDataset(arange(16).reshape({8, 2}), arange(8) * 10), numbers);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t b = 0; b < numbers.size(); ++b) {
      const Tensor x = numbers.batch(epoch, b).data;
      EXPECT_TRUE(equal(rows.batch(epoch, b).data.select(1, 0), x * 2));
      EXPECT_TRUE(equal(rows.batch(epoch, b).target, x * 10));
    }
  EXPECT_EQ(rows.options().batch_size, 3);
  // Of files beside a dataset, and the other way round: each has the options that are its own.
  const FiveImages images;
  const data::DataLoader five(images.path(), {.batch_size = 2, .shuffle = true, .num_classes = 5}),
      beside(data::TensorDataset(arange(5)), five), again(images.path(), beside), alike(images.path(), five);
  for (std::int64_t b = 0; b < five.size(); ++b) {
    EXPECT_TRUE(equal(beside.batch(1, b).data, five.batch(1, b).target));
    EXPECT_TRUE(equal(again.batch(1, b).target, five.batch(1, b).target));
    EXPECT_TRUE(equal(alike.batch(1, b).data, five.batch(1, b).data));
  }
}

TEST(DataLoader, OneBesideAnotherHasAsManySamples) {
  const FiveImages images;
  const data::DataLoader numbers(data::TensorDataset(arange(8)), {.batch_size = 4}), files(images.path());
  const std::pair<test::Call<void()>, std::string> cases[] = {
      {[&] { data::DataLoader(data::TensorDataset(arange(7)), numbers); }, "8 as the one beside has, got 7"},
      {[&] { data::DataLoader(data::TensorDataset(arange(9)), numbers); }, "8 as the one beside has, got 9"},
      {[&] { data::DataLoader(images.path(), numbers); }, "8 as the one beside has, got 5"},
      {[&] { data::DataLoader(Squares(), files); }, "5 as the one beside has, got 7"},
  };
  for (const auto& [mistake, error] : cases) {
    const std::string text = error_of(mistake);
    EXPECT_EQ(text.find("error: DataLoader: loaders that go together must have as many samples, expected " + error +
                        "\n  at data_test.cpp:"),
              0u)
        << text;
  }
}

/// A reader's error names no model, which a loader has not.
TEST(DataLoader, SpeaksOfImagesAndLabels) {
  const std::string folder = testing::TempDir() + "graven_words_" + std::to_string(::getpid());
  fs::create_directories(folder);
  const auto file = [&](const char* name) { return folder + "/" + name; };
  nn::save({{"images", zeros({2, 3, 3})}}, file("images.safetensors"));
  std::ofstream(file("a.txt")) << "a text";
  std::ofstream(file("a.bin")) << "what is this";
  const std::pair<test::Call<void()>, std::string> cases[] = {
      {[&] { data::DataLoader{folder}; }, "or images.npy and labels.npy"},
      {[&] { data::DataLoader{file("images.safetensors")}; }, "expected a tensor \"labels\", found none of that name"},
      {[&] { data::DataLoader{file("a.txt")}; }, "a.txt: expected images and labels, found a text or a file of tokens"},
      {[&] { data::DataLoader{file("a.txt") + "," + file("a.txt") + "," + file("a.txt")}; },
       "a file of images and one of labels"},
      {[&] { data::DataLoader(file("a.txt") + "," + file("a.txt"), {.format = "cifar10"}); },
       "format: expected idx or npy for a file of images and one of labels"},
  };
  for (const auto& [mistake, words] : cases) {
    const std::string text = error_of(mistake);
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_EQ(text.find("model"), std::string::npos) << text;
    EXPECT_EQ(text.find("--data"), std::string::npos) << text;
    EXPECT_NE(text.find("\n  at data_test.cpp:"), std::string::npos) << text;
  }
  for (const char* format : {"raw", "text", "tokens", "foo"}) {
    const std::string text = error_of([&] { data::DataLoader(folder, {.format = format}); });
    EXPECT_EQ(text.find("error: DataLoader: format: expected auto, idx, cifar10, cifar100, npy, npz or safetensors, "
                        "found \"" +
                        std::string(format) + "\"\n  at data_test.cpp:"),
              0u)
        << text;
  }
  fs::remove_all(folder);
}

TEST(TensorDataset, TakesIndicesFromTheStartOnly) {
  data::TensorDataset rows(arange(3), arange(3) * 10);
  EXPECT_EQ(rows.get(2).target.item<std::int64_t>(), 20);
  EXPECT_EQ(rows.get_batch({2, 0}).data.to_vector<std::int64_t>(), (std::vector<std::int64_t>{2, 0}));
  const data::TensorDataset& constant = rows;
  Squares squares;
  Alone alone;
  Uneven uneven;
  const std::pair<test::Call<void()>, std::string> cases[] = {
      {[&] { (void)rows.get(-1); }, "TensorDataset: get() expects an index in [0, 3), got -1"},
      {[&] { (void)rows.get(3); }, "TensorDataset: get() expects an index in [0, 3), got 3"},
      {[&] { (void)rows.get_batch({0, -1}); }, "TensorDataset: get_batch() expects an index in [0, 3), got -1"},
      {[&] { (void)data::TensorDataset(arange(2)).get_batch({5}); },
       "TensorDataset: get_batch() expects an index in [0, 2), got 5"},
      {[&] { (void)alone.get_batch({0, 3}); }, "Dataset: get_batch() expects indices in [0, 3), got 3"},
      {[&] { (void)squares.get_batch({-1}); }, "Dataset: get_batch() expects indices in [0, 7), got -1"},
      {[&] { (void)squares.get_batch({}); }, "Dataset: get_batch() expects one index at least, got none"},
      {[&] { (void)uneven.get_batch({0, 2}); }, "Dataset: the samples must have the same shapes and dtypes"},
  };
  for (const auto& [mistake, error] : cases) {
    const std::string text = error_of(mistake);
    EXPECT_EQ(text.substr(0, text.find('\n')), "error: " + error);
    EXPECT_NE(text.find("\n  at data_test.cpp:"), std::string::npos) << text;
  }
  // Of one that is constant, whose line of the call nobody tells: where it was made.
  const std::string text = error_of([&] { (void)constant.get(-1); });
  EXPECT_EQ(text.find("error: TensorDataset: get() expects an index in [0, 3), got -1\n  the dataset is made at "
                      "data_test.cpp:"),
            0u)
      << text;
}

TEST(DataLoader, SaysWhatIsWrongWithADataset) {
  const Tensor x = zeros({3, 2});
  Squares none;
  none.count = 0;
  const std::string of_files =
      "error: DataLoader: split, mean, std, num_classes and format are of files; a dataset of the program's own gives "
      "its samples as they are";
  const struct {
    test::Call<void()> mistake;
    std::string error;
  } cases[] = {
      {[&] { data::TensorDataset(x, zeros({4})); },
       "error: TensorDataset: the target must have as many samples as the data, got f32[4] for f32[3,2]"},
      {[&] { data::TensorDataset(tensor(1.0)); },
       "error: TensorDataset: expected a tensor of samples along its first dimension, got f32[]"},
      {[&] { data::TensorDataset{Tensor()}; },
       "error: TensorDataset: expected a tensor of samples along its first dimension, got none"},
      {[&] { data::DataLoader{none}; }, "error: DataLoader: the dataset must have samples, its size is 0"},
      {[&] { data::DataLoader{std::shared_ptr<const data::Dataset>()}; }, "error: DataLoader: there is no dataset"},
      {[&] { data::DataLoader(Squares(), {.batch_size = 0}); },
       "error: DataLoader: batch_size must be positive, got 0"},
      {[&] { data::DataLoader(Squares(), {.mean = {0.5}}); }, of_files},
      {[&] { data::DataLoader(Squares(), {.split = data::Split::test}); }, of_files},
      {[&] { data::DataLoader(Squares(), {.format = "idx"}); }, of_files},
      {[&] { data::DataLoader(Squares(), {.num_classes = 3}); }, of_files},
      {[&] { data::DataLoader(Uneven(), {.batch_size = 3}).batch(0, 0); },
       "error: Dataset: the samples must have the same shapes and dtypes\n"
       "  sample 0 is f32[5] and i64[], sample 2 f32[4] and i64[]"},
      {[&] { data::DataLoader(Miscounts(99, 2), {.batch_size = 2}).batch(0, 0); },
       "error: DataLoader: get_batch() of a dataset must give a row for each index, expected 2 rows of data, got "
       "f32[99,3]"},
      {[&] { data::DataLoader(Miscounts(2, 1), {.batch_size = 2}).batch(0, 0); },
       "error: DataLoader: get_batch() of a dataset must give a row for each index, expected 2 rows of targets, got "
       "f32[1]"},
      {[&] { data::DataLoader(Miscounts(2, -1), {.batch_size = 2}).batch(0, 0); },
       "error: DataLoader: get_batch() of a dataset must give a row for each index, expected 2 rows of targets, got "
       "f32[]"},
      {[&] { data::DataLoader(Miscounts(-1, 2), {.batch_size = 2}).batch(0, 0); },
       "error: DataLoader: get_batch() of a dataset gave undefined data"},
  };
  for (const auto& c : cases) {
    const std::string text = error_of(c.mistake);
    EXPECT_EQ(text.substr(0, text.rfind("\n  at ")), c.error);
    EXPECT_NE(text.find("\n  at data_test.cpp:"), std::string::npos) << text;
  }
  // Of a loop over an epoch it is the line of epoch().
  const data::DataLoader uneven(Uneven(), {.batch_size = 3});
  const auto loop = [&] {
    for (const auto& batch : uneven.epoch()) (void)batch;
  };
  EXPECT_NE(error_of(loop).find("\n  at data_test.cpp:"), std::string::npos);
}

}  // namespace
}  // namespace graven::data_test
