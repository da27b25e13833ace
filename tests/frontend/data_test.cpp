// The batches of a DataLoader: how many, how large, and which samples, as PyTorch's has them.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/frontend/error_text.h"

namespace graven::data_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;

/// Five images of one pixel and their labels, 0 to 4, in a folder of this process that goes away: ctest runs cases side by side.
class FiveImages {
 public:
  FiveImages() : path_(fs::temp_directory_path() / ("graven_data_test_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    const auto write = [&](const char* name, const std::string& text) { std::ofstream(path_ / name, std::ios::binary) << text; };
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
      EXPECT_EQ(error_of([&] { loader.epoch(0, 9); }), "error: DataLoader: the first batch must lie in [0, " + size + "], got 9");
      EXPECT_EQ(error_of([&] { loader.batch(0, 9); }), "error: DataLoader: an epoch has " + size + " batches, there is no batch 9");
    }
  }
}

}  // namespace
}  // namespace graven::data_test
