#include "runtime_min/infer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fixture.h"
#include "mock_model.h"
#include "runtime_min/image.h"
#include "runtime_min/json_reader.h"
#include "runtime_min/npy.h"

namespace graven::runtime {
namespace {

/// Ten samples of three features through a model of four classes: scores are 2 x_c, and 0 for the last class.
class Inference : public testing::Test {
 protected:
  void SetUp() override {
    SoftmaxRegression model{3, 4};
    for (std::size_t c = 0; c < 3; ++c) model.weight[c * 3 + c] = 2;
    save_variables(folder_ / "w.safetensors", model.variables());
    std::string images, labels;
    for (int i = 0; i < 10; ++i) {
      for (int f = 0; f < 3; ++f) images += little_endian(f == i % 3 ? 1.0F + static_cast<float>(i) : -1.0F);
      labels += static_cast<char>(i < 8 ? i % 3 : 3);  // the last two are wrong
    }
    write_file(folder_ / "x.npy", npy("<f4", "(10, 3)", images));
    write_file(folder_ / "y.npy", npy("|u1", "(10,)", labels));
    write_file(folder_ / "names.txt", "cat\ndog\r\nhen\nowl");
  }

  static std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
    std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}\n";
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(text.size()) + std::string(1, '\0') + text + data;
  }

  struct Result {
    int status;
    std::string out, error;
  };

  Result infer(std::vector<std::string> words, MockInference* model = nullptr) const {
    MockInference own({3}, 4, 4, true);
    if (model == nullptr) model = &own;
    words.insert(words.begin(), {"mock", "--weights", folder_ / "w.safetensors"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Result r{infer_main(static_cast<int>(argv.size()), argv.data(), *model, {}), "", ""};
    r.out = testing::internal::GetCapturedStdout();
    r.error = testing::internal::GetCapturedStderr();
    return r;
  }

  TemporaryFolder folder_;
};

TEST_F(Inference, PrintsTheLargestScores) {
  Result r = infer({"--data", folder_ / "x.npy", "--topk", "2", "--show", "2", "--names", folder_ / "names.txt"});
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(r.out, "0: 0 cat (2), 3 owl (0)\n1: 1 dog (4), 3 owl (0)\n... and 8 more (--show 0 prints all)\n");
  r = infer({"--data", folder_ / "x.npy", "--topk", "1", "--show", "0", "--labels", folder_ / "y.npy"});
  EXPECT_NE(r.out.find("9: 0 (20)\naccuracy 0.8000 (8 of 10)\n"), std::string::npos) << r.out;
  r = infer({"--data", folder_ / "x.npy", "--topk", "1", "--show", "1", "--softmax"});
  EXPECT_NE(r.out.find("0: 0 (0.8533)"), std::string::npos) << r.out << " e^2 / (e^2 + 2 e^-2 + 1)";
  EXPECT_NE(r.error.find("10 samples in"), std::string::npos);
}

TEST_F(Inference, WritesOutputsWhateverTheBatch) {
  std::string expected;
  for (const auto& [batch, symbolic] :
       {std::pair(std::int64_t{1}, true), {3, true}, {4, true}, {16, true}, {4, false}, {16, false}}) {
    MockInference model({3}, 4, batch, symbolic);
    const Result r = infer({"--data", folder_ / "x.npy", "--output", folder_ / "out.npy"}, &model);
    EXPECT_EQ(r.status, 0) << r.error;
    EXPECT_EQ(r.out, "");
    EXPECT_EQ(model.largest_batch, symbolic ? std::min<std::int64_t>(batch, 10) : batch);
    const Array a = read_npy(folder_ / "out.npy");
    EXPECT_EQ(a.shape, (Dims{10, 4}));
    float last;
    std::memcpy(&last, a.bytes.data() + 9 * 16, 4);
    EXPECT_EQ(last, 20.0F);
    const std::string bytes = read_file(folder_ / "out.npy");
    if (!expected.empty()) {
      EXPECT_EQ(bytes, expected) << "batch " << batch;
    }
    expected = bytes;
  }
  MockInference model({3}, 4, 8, true);
  EXPECT_EQ(infer({"--data", folder_ / "x.npy", "--batch", "3", "--output", folder_ / "out.npy"}, &model).status, 0);
  EXPECT_EQ(model.largest_batch, 3);
}

TEST_F(Inference, ReadsAPicture) {
  MockInference model({1, 1, 3}, 4, 1, false);
  const std::uint8_t pixels[3] = {0, 255, 0};
  write_image(folder_ / "p.pgm", pixels, 1, 1, 3);
  const Result r = infer({"--data", folder_ / "p.pgm", "--topk", "1"}, &model);
  EXPECT_EQ(r.out, "0: 1 (2)\n") << r.error;
}

TEST_F(Inference, WritesAPicture) {
  // 99.6 / 255 is nearest to 100; what lies outside of [0, 1] becomes black or white.
  write_file(folder_ / "one.npy",
             npy("<f4", "(1, 3)", little_endian(99.6F / 510) + little_endian(-1.0F) + little_endian(1.0F)));
  MockInference model({3}, 4, 1, false);
  model.description().outputs[0].shape = {1, 1, 2, 2};
  const Result r = infer({"--data", folder_ / "one.npy", "--output", folder_ / "out.pgm"}, &model);
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(read_file(folder_ / "out.pgm"), "P5\n2 2\n255\n" + from_hex("6400ff00"));
}

TEST_F(Inference, PrintsWhatAllSamplesShareOnce) {
  MockInference model({3}, 4, 1, true);
  model.description().outputs[0] = {
      .name = "scores", .dtype = DType::f32, .shape = {4}, .batched = false, .shared = true};
  const Result r = infer({"--data", folder_ / "x.npy"}, &model);
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(r.out, "0: 2 -2 -2 0\n");
}

/// Of x[batch, 2] the sum of all, then x itself, x with its dimensions exchanged, its rows in one, and twice.
class Layouts : public InferenceModel {
 public:
  explicit Layouts(bool symbolic) {
    description_ = {.name = "layouts",
                    .inputs = {{.name = "x", .dtype = DType::f32, .shape = {8, 2}}},
                    .outputs = {{.name = "sum", .dtype = DType::f32, .shape = {}, .batched = false},
                                {.name = "same", .dtype = DType::f32, .shape = {8, 2}},
                                {.name = "exchanged", .dtype = DType::f32, .shape = {2, 8}, .batched = false},
                                {.name = "flat", .dtype = DType::f32, .shape = {16}, .batched = false},
                                {.name = "twice", .dtype = DType::f32, .shape = {2, 8, 2}, .batched = false}},
                    .batch = 8,
                    .batch_is_symbolic = symbolic,
                    .has_weights = false};
    if (!symbolic) return;
    description_.outputs[2].batch_dimensions = {{1, 1}};
    description_.outputs[3].batch_dimensions = {{0, 2}};
    description_.outputs[4].batch_dimensions = {{1, 1}};
  }
  const InferenceDescription& description() const override { return description_; }
  InferenceDescription& description() { return description_; }
  void start(int, const std::string&) override {}
  void forward(const void* const* inputs, std::int64_t batch, void* const* outputs) override {
    const auto* x = static_cast<const float*>(inputs[0]);
    const auto output = [&](std::size_t t) { return static_cast<float*>(outputs[t]); };
    *output(0) = 0;
    for (std::int64_t i = 0; i < 2 * batch; ++i) {
      *output(0) += x[i];
      output(2)[i % 2 * batch + i / 2] = x[i];
      for (const std::size_t t : {1, 3}) output(t)[i] = x[i];
      for (const std::int64_t half : {0, 1}) output(4)[half * 2 * batch + i] = x[i];
    }
  }

 private:
  InferenceDescription description_;
};

TEST_F(Inference, WhatIsNotOfSamplesTakesOneCall) {
  const auto run = [&](Layouts& model, int samples, const std::string& output, std::vector<std::string> more = {}) {
    std::string data;
    for (int i = 0; i < 2 * samples; ++i) data += little_endian(static_cast<float>(i));
    write_file(folder_ / "rows.npy", npy("<f4", "(" + std::to_string(samples) + ", 2)", data));
    more.insert(more.begin(), {"layouts", "--data", folder_ / "rows.npy"});
    if (!output.empty()) more.insert(more.end(), {"--output", output});
    std::vector<char*> argv;
    for (std::string& word : more) argv.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Result r{infer_main(static_cast<int>(argv.size()), argv.data(), model, {}), "", ""};
    r.out = testing::internal::GetCapturedStdout();
    r.error = testing::internal::GetCapturedStderr();
    return r;
  };
  const std::vector<std::string> names = {"sum", "same", "exchanged", "flat", "twice"};
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ",") + std::string(folder_ / (name + ".npy"));
  for (const auto& [symbolic, samples] : {std::pair(true, 5), {true, 8}, {true, 1}, {false, 8}}) {
    SCOPED_TRACE(std::to_string(samples) + (symbolic ? "" : " of a fixed batch"));
    Layouts model(symbolic);
    for (const std::string& name : names) std::filesystem::remove(folder_ / (name + ".npy"));
    const Result r = run(model, samples, all);
    ASSERT_EQ(r.status, 0) << r.error;
    const std::int64_t n = samples;
    const Dims shapes[] = {{}, {n, 2}, {2, n}, {2 * n}, {2, n, 2}};
    for (std::size_t t = 0; t < names.size(); ++t) {
      SCOPED_TRACE(names[t]);
      const Array a = read_npy(folder_ / (names[t] + ".npy"));
      ASSERT_EQ(a.shape, shapes[t]);
      std::vector<float> found(static_cast<std::size_t>(count_of(a.shape))), expected;
      std::memcpy(found.data(), a.bytes.data(), found.size() * sizeof(float));
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(found.size()); ++i)
        expected.push_back(static_cast<float>(t == 0 ? n * (2 * n - 1) : t == 2 ? i % n * 2 + i / n : i % (2 * n)));
      EXPECT_EQ(found, expected);
    }
  }
  // More than a call of samples, or a fixed batch that they do not fill: an error before anything is written.
  const struct {
    const char* note;
    bool symbolic;
    int samples;
    std::vector<std::string> more;
    bool all_outputs;
    std::string error;
  } refused[] = {
      {"several calls", true, 20, {}, true, "output \"sum\" f32[]: expected at most 8 samples"},
      {"a smaller batch", true, 5, {"--batch", "4"}, true, "expected at most 4 samples"},
      {"printed", true, 20, {}, false, "output \"sum\" f32[]: expected at most 8 samples"},
      {"a fixed batch filled up", false, 5, {}, true, "expected exactly 8 samples"},
      {"a fixed batch, twice", false, 16, {}, true, "expected exactly 8 samples"},
  };
  for (const auto& c : refused) {
    SCOPED_TRACE(c.note);
    Layouts model(c.symbolic);
    std::filesystem::remove(folder_ / "same.npy");
    const Result r = run(model, c.samples, c.all_outputs ? all : "", c.more);
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.error.find(c.error), std::string::npos) << r.error;
    EXPECT_EQ(r.out, "");
    EXPECT_FALSE(std::ifstream(folder_ / "same.npy").good());
  }
  // Outputs that are not asked for do not matter, and a shape says where the batch is.
  Layouts model(true);
  std::swap(model.description().outputs[0], model.description().outputs[2]);
  EXPECT_NE(run(model, 20, "").error.find("output \"exchanged\" f32[2,batch]"), std::string::npos);
  model.description().outputs[0].batch_dimensions = {{0, 2}, {1, 1}};
  EXPECT_NE(run(model, 20, "").error.find("output \"exchanged\" f32[2*batch,batch]"), std::string::npos);
}

TEST_F(Inference, InputsWithTheBatchElsewhereAreNotFed) {
  const struct {
    const char* note;
    Dims shape;
    std::vector<BatchDimension> dimensions;
    std::string error;
  } cases[] = {
      {"another dimension",
       {5, 4, 3},
       {{1, 1}},
       "input \"second\" f32[5,batch,3]: expected the batch as dimension 0 and nowhere else"},
      {"a multiple", {8, 3}, {{0, 2}}, "f32[2*batch,3]: expected"},
      {"twice", {4, 4}, {{0, 1}, {1, 1}}, "found batch as dimension 0 and batch as dimension 1"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    MockInference model({3}, 4, 4, true);
    model.description().inputs.push_back(
        {.name = "second", .dtype = DType::f32, .shape = c.shape, .batched = false, .batch_dimensions = c.dimensions});
    const Result r = infer({"--data", folder_ / "x.npy,x.npy"}, &model);
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.error.find(c.error), std::string::npos) << r.error;
    EXPECT_EQ(std::count(r.error.begin(), r.error.end(), '\n'), 1) << r.error;
  }
  MockInference model({3}, 4, 4, false);
  model.description().inputs[0].batched = false;
  const Result r = infer({"--data", folder_ / "x.npy"}, &model);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.error.find(
                "expected one whose dimension 0 is the batch, along which files hold samples, found images f32[4,3]"),
            std::string::npos)
      << r.error;
}

TEST_F(Inference, RefusesMistakes) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600),
            0);  // nobody writes into it: a reader that opened it would wait for ever
  const struct {
    std::vector<std::string> words;
    int status;
    std::string error;
  } cases[] = {
      {{}, 2, "--data: expected samples to run on"},
      {{"--data", folder_ / "none.npy"}, 1, "none.npy: cannot open"},
      {{"--data", folder_ / "x.npy", "--data-format", "foo"}, 2, "--data-format: expected auto"},
      {{"--data", folder_ / "x.npy", "--data-format", "cifar10"}, 1, "x.npy"},
      {{"--data", folder_ / "x.npy", "--batch", "5"}, 2, "--batch: expected a whole number from 1 to 4"},
      {{"--data", folder_ / "x.npy", "--topk", "-1"}, 2, "--topk"},
      {{"--data", folder_ / "y.npy"}, 1, "field \"images\": expected samples of [3]"},
      {{"--data", folder_ / "x.npy", "--weights", folder_ / "none"}, 1, "--weights: expected a file"},
      {{"--data", folder_ / "x.npy", "--weights", folder_ / "x.npy"}, 1, "x.npy: header"},
      {{"--data", folder_ / "x.npy", "--names", folder_ / "y.npy"}, 1, "4 lines, one a class"},
      {{"--data", folder_ / "x.npy", "--labels", folder_ / "x.npy"}, 1, "integers, one a sample"},
      {{"--data", folder_ / "x.npy", "--output", folder_ / "no/folder/y.npy"}, 1, "cannot create"},
      {{"--data", folder_ / "x.npy", "--output", "a.npy,b.npy"}, 2, "1 files"},
      {{"--data", folder_ / "x.npy", "--output", "a.npy,a.npy"}, 2, "1 files, one for each output, found 2"},
      {{"--data", folder_ / "x.npy", "--output", "a.ppm"}, 2, "one picture"},
      {{"--data", folder_ / "x.npy", "--output", folder_.path()}, 1, "expected a file, found a folder"},
      {{"--data", folder_ / "pipe"}, 1, "pipe: expected a file, found something else"},
      {{"--data", "/dev/zero"}, 1, "/dev/zero: expected a file, found something else"},
      {{"--bench", "soon"}, 2, "--bench: expected a number of seconds"},
      {{"--bench", "nan"}, 2, "--bench"},
  };
  for (const auto& c : cases) {
    const Result r = infer(c.words);
    EXPECT_EQ(r.status, c.status) << c.error;
    EXPECT_NE(r.error.find(c.error), std::string::npos) << r.error;
  }
  // Weights that nobody named and that are nowhere: not a reason to compute with zeros.
  for (const bool has_weights : {true, false}) {
    MockInference model({3}, 4, 4, true);
    model.description().has_weights = has_weights;
    std::vector<std::string> words = {"mock", "--data", folder_ / "x.npy", "--output", folder_ / "scores.npy"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    EXPECT_EQ(infer_main(static_cast<int>(argv.size()), argv.data(), model, {.weights = "nowhere.safetensors"}),
              has_weights ? 1 : 0);
    const std::string error = testing::internal::GetCapturedStderr();
    EXPECT_EQ(error.find("error: --weights: expected a file \"nowhere.safetensors\" beside the program") == 0,
              has_weights)
        << error;
  }
  write_file(folder_ / "z.npy", npy("|u1", "(10,)", std::string(10, 4)));
  EXPECT_NE(infer({"--data", folder_ / "x.npy", "--labels", folder_ / "z.npy"})
                .error.find("label 0: expected 0 to 3, found 4"),
            std::string::npos);
  write_file(folder_ / "z.npy", npy("|u1", "(9,)", std::string(9, 1)));
  EXPECT_NE(infer({"--data", folder_ / "x.npy", "--labels", folder_ / "z.npy"})
                .error.find("10 labels, one a sample, found 9"),
            std::string::npos);
}

TEST_F(Inference, ResultsThatCannotBePrintedAreAnError) {
  const int screen = ::dup(STDOUT_FILENO), full = ::open("/dev/full", O_WRONLY);
  std::fflush(stdout);
  ::dup2(full, STDOUT_FILENO);
  MockInference model({3}, 4, 4, true);
  std::vector<std::string> words = {"mock", "--weights", folder_ / "w.safetensors", "--data", folder_ / "x.npy"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStderr();
  const int status = infer_main(static_cast<int>(argv.size()), argv.data(), model, {});
  const std::string error = testing::internal::GetCapturedStderr();
  std::clearerr(stdout);
  ::dup2(screen, STDOUT_FILENO);
  ::close(full);
  ::close(screen);
  EXPECT_EQ(status, 1);
  EXPECT_NE(error.find("error: standard output: cannot write: No space left on device"), std::string::npos) << error;
}

TEST_F(Inference, TimesItself) {
  const Result r = infer({"--bench", "0.01", "--json", "--threads", "1"});
  EXPECT_EQ(r.status, 0) << r.error;
  JsonReader json(r.out, "bench");
  std::string key;
  json.begin_object();
  while (json.next_key(key)) {
    if (key == "runs") {
      EXPECT_GE(json.integer(), 5);
    } else if (key == "threads") {
      EXPECT_EQ(json.integer(), 1);
    } else {
      json.skip();
    }
  }
  json.end();
  EXPECT_NE(infer({"--bench", "0"}).out.find("mock, batch 4, "), std::string::npos);
}

TEST_F(Inference, HelpNamesInputsAndOutputs) {
  const std::string help = infer({"--help"}).out;
  for (const char* part :
       {"images  f32[4,3]", "scores  f32[4,4]", "any batch up to 4", "--topk K", "(default: 5)", "--bench [SECONDS]"})
    EXPECT_NE(help.find(part), std::string::npos) << part;
}

/// Sums of samples x[length, 2] times a mask [length] that all share: f32[batch] and, of each position, f32[batch, 2 *
/// length].
class Lengths : public InferenceModel {
 public:
  const InferenceDescription& description() const override { return description_; }
  void start(int, const std::string&) override {}
  void resize(const std::int64_t* sizes) override { length_ = sizes[0]; }
  void forward(const void* const* inputs, std::int64_t batch, void* const* outputs) override {
    const auto *x = static_cast<const float*>(inputs[0]), *mask = static_cast<const float*>(inputs[1]);
    auto *sums = static_cast<float*>(outputs[0]), *each = static_cast<float*>(outputs[1]);
    for (std::int64_t i = 0; i < batch; ++i) {
      sums[i] = 0;
      for (std::int64_t k = 0; k < 2 * length_; ++k) {
        each[i * 2 * length_ + k] = x[i * 2 * length_ + k] * mask[k / 2];
        sums[i] += each[i * 2 * length_ + k];
      }
    }
  }

 private:
  std::int64_t length_ = 6;
  InferenceDescription description_{
      .name = "lengths",
      .inputs = {{.name = "x", .dtype = DType::f32, .shape = {4, 6, 2}, .symbolic = {{1, 0, 1}}},
                 {.name = "mask", .dtype = DType::f32, .shape = {6}, .batched = false, .symbolic = {{0, 0, 1}}}},
      .outputs = {{.name = "sums", .dtype = DType::f32, .shape = {4}},
                  {.name = "each", .dtype = DType::f32, .shape = {4, 12}, .symbolic = {{1, 0, 2}}}},
      .symbols = {{"length", 6}},
      .batch = 4,
      .batch_is_symbolic = true,
      .has_weights = false};
};

TEST_F(Inference, FilesSayWhatSymbolsStandFor) {
  const auto numbers = [&](int count) {
    std::string data;
    for (int i = 0; i < count; ++i) data += little_endian(static_cast<float>(i));
    return data;
  };
  const auto run = [&](int length, int masked) {
    write_file(folder_ / "sequences.npy",
               npy("<f4", "(5, " + std::to_string(length) + ", 2)", numbers(5 * length * 2)));
    write_file(folder_ / "mask.npy", npy("<f4", "(" + std::to_string(masked) + ",)", numbers(masked)));
    const std::string data = folder_ / "sequences.npy" + "," + std::string(folder_ / "mask.npy");
    const std::string output = folder_ / "sums.npy" + "," + std::string(folder_ / "each.npy");
    std::vector<std::string> words{"lengths", "--data", data, "--output", output};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    Lengths model;
    testing::internal::CaptureStderr();
    const int status = infer_main(static_cast<int>(argv.size()), argv.data(), model, {});
    return std::pair(status, testing::internal::GetCapturedStderr());
  };
  for (const int length : {6, 1, 2, 4}) {
    const auto [status, error] = run(length, length);
    ASSERT_EQ(status, 0) << error;
    const Array sums = read_npy(folder_ / "sums.npy"), each = read_npy(folder_ / "each.npy");
    ASSERT_EQ(each.shape, (Dims{5, 2 * length}));
    for (int i = 0; i < 5; ++i) {
      float expected = 0;
      for (int k = 0; k < 2 * length; ++k)
        expected += static_cast<float>(i * 2 * length + k) * static_cast<float>(k / 2);
      EXPECT_EQ(reinterpret_cast<const float*>(sums.bytes.data())[i], expected)
          << "sample " << i << " of length " << length;
    }
  }
  const auto [differ, of_mask] = run(4, 3);
  EXPECT_EQ(differ, 1);
  EXPECT_NE(of_mask.find("length of 4, as the input \"x\" has"), std::string::npos) << of_mask;
  const auto [longer, of_length] = run(7, 7);
  EXPECT_EQ(longer, 1);
  EXPECT_NE(of_length.find("[6,2], or smaller in dimension 0 of a sample"), std::string::npos) << of_length;
}

}  // namespace
}  // namespace graven::runtime
