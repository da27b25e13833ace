// Emitted projects under faults: a training and an inference project are emitted, built with AddressSanitizer and
// UndefinedBehaviorSanitizer, and then run to the end, stopped, resumed, killed at random moments, given bad command
// lines, bad files and full disks. Whatever happens is one message and a status, or the right numbers; never a report
// of a sanitizer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "graven/graven.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "runtime_min/checkpoint.h"
#include "runtime_min/npy.h"
#include "tests/all_tests.h"
#include "tests/compile_once.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"

namespace graven {
namespace {

namespace fs = std::filesystem;
using codegen::ProcessResult;
using ir::DType;
using ir::ValueId;

using tests::kClasses;
using tests::kFeatures;
using tests::read_file;
using tests::write_data;
using tests::write_npy;

constexpr std::int64_t kBatch = 8, kSamples = 40;

/// linear, relu, dropout where it trains, linear over [batch, 6]; the logits.
ValueId network(ir::Graph& g, ValueId x, bool training) {
  const ValueId w1 = g.add_parameter("model.hidden.weight", {DType::f32, {16, kFeatures}}, training);
  const ValueId b1 = g.add_parameter("model.hidden.bias", {DType::f32, {16}}, training);
  const ValueId w2 = g.add_parameter("model.logits.weight", {DType::f32, {kClasses, 16}}, training);
  const ValueId b2 = g.add_parameter("model.logits.bias", {DType::f32, {kClasses}}, training);
  ValueId h = g.call("relu", {g.call("linear", {x, w1, b1}, {}, {{"model.hidden", "net.cpp", 3}})}, {},
                     {{"model", "net.cpp", 3}});
  if (training) {
    const ValueId seed = g.add_value("seed", ir::ValueKind::hyper, {DType::i64, {}}),
                  step = g.add_value("step", ir::ValueKind::hyper, {DType::i64, {}});
    h = g.call("dropout", {h, seed, step}, {{"p", 0.2}, {"stream", std::int64_t{7}}},
               {{"model.dropout", "net.cpp", 3}});
  }
  return g.call("linear", {h, w2, b2}, {}, {{"model.logits", "net.cpp", 4}});
}

ir::Graph training_graph() {
  ir::Graph g;
  g.name = "Classify";
  g.training = true;
  const ValueId x = g.add_input("images", {DType::f32, {kBatch, kFeatures}});
  const ValueId labels = g.add_input("labels", {DType::i64, {kBatch}});
  const ValueId loss = g.call("cross_entropy", {network(g, x, true), labels}, {}, {{"loss_fn", "net.cpp", 9}});
  g.outputs = {loss};
  g.losses = {{loss, ir::kNone}};
  g.optimizers.push_back({"adam", {{g.parameters, {{"lr", 0.01}}}}, {}});
  return g;
}

ir::Graph inference_graph() {
  ir::Graph g;
  g.name = "Classifier";
  g.outputs = {network(g, g.add_input("images", {DType::f32, {ir::Dim("batch", kBatch), kFeatures}}), false)};
  return g;
}

/// Convolutions, norms, pooling and attention, in one network: patches of an image that attend to one another.
struct Patches : nn::Module<Patches> {
  nn::Conv2d widen = child("widen", nn::Conv2d(1, 5, 3, {.padding = 1, .bias = false})),
             deep = child("deep", nn::Conv2d(5, 5, 3, {.groups = 5})),
             patches = child("patches", nn::Conv2d(5, 12, 3, {.stride = 3}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(5));
  nn::MultiheadAttention attention = child("attention", nn::MultiheadAttention(12, 3));
  nn::LayerNorm last_norm = child("last_norm", nn::LayerNorm(12));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.1));
  nn::Linear logits = child("logits", nn::Linear(12, kClasses));
  Tensor forward(Tensor x) {
    const Tensor features = max_pool2d(relu6(norm(deep(widen(x)))), 2);
    const Tensor tokens = patches(features).flatten(2).permute({2, 0, 1});
    const Tensor seen = attention(tokens, tokens, tokens).first;
    return logits(dropout(last_norm(gelu(tokens + seen))).mean(0));
  }
};
struct TrainPatches : nn::Graph<TrainPatches> {
  Patches model = child("model", Patches());
  optim::AdamW optimizer{model.parameters(), {.lr = 0.01}};
  TrainPatches() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(model(images), labels);
    loss.backward();
    return loss;
  }
};

void write_file(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

class Projects : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root() = fs::path(GRAVEN_BINARY_DIR) / "faults";
    // What tests mounted that were killed.
    for (const char* folder : {"work/disk", "work/read_only"}) (void)::umount2((root() / folder).c_str(), MNT_DETACH);
    fs::remove_all(root() / "work");
    fs::create_directories(root() / "work");
    build(training_graph(), "classify_train", true);
    build(inference_graph(), "classifier", true);
    write_data(root() / "work/data/train", kSamples, 1);
    write_data(root() / "work/data/test", 11, 2);
  }

  /// With the sanitizers, which takes five times as long, what is used badly; the rest where all tests are asked for.
  template <class Graph>
  static void build(const Graph& graph, const std::string& name, bool sanitized = tests::all_tests(),
                    const std::string& levels = "base") {
    const fs::path folder = root() / name;
    codegen::emit(graph, folder, {.name = tests::kProgram, .format = false});
    std::vector<std::string> configure{"cmake",
                                       "-S",
                                       folder.string(),
                                       "-B",
                                       (folder / "build").string(),
                                       "-DGRAVEN_LEVELS=" + levels,
                                       "-DCMAKE_CXX_FLAGS=-Werror"};
    std::optional<tests::NothingIsShared> alone;
    if (sanitized) {
      configure.insert(configure.end(), {"-DGRAVEN_SANITIZE=address", "-DCMAKE_CXX_FLAGS_RELEASE=-O0"});
      if (!tests::all_tests()) alone.emplace();
    }
    for (const std::vector<std::string>& command :
         {configure, {"cmake", "--build", (folder / "build").string(), "-j2"}}) {
      const ProcessResult r = codegen::run_process(command, {.seconds = 600});
      ASSERT_EQ(r.exit_status, 0) << r.output;
    }
  }

  static fs::path& root() {
    static fs::path path;
    return path;
  }
  static fs::path work() { return root() / "work"; }
  static std::string program(const std::string& name) { return (root() / name / "build" / tests::kProgram).string(); }
  static std::string data() { return (work() / "data").string(); }
  static std::string trainer() { return program("classify_train"); }
  static std::string classifier() { return program("classifier"); }

  /// Runs a program; whatever it was given, no sanitizer may report, and no signal end it.
  static ProcessResult run(std::vector<std::string> command) {
    const ProcessResult r = codegen::run_process(command, {.directory = work().string(), .seconds = 120});
    EXPECT_FALSE(r.timed_out);
    EXPECT_LT(r.exit_status, 100) << r.output;
    for (const char* report : {"Sanitizer", "runtime error", "terminate called"})
      EXPECT_EQ(r.output.find(report), std::string::npos) << r.output;
    return r;
  }

  static void expect_self_test_passes(const std::string& name) {
    const ProcessResult r = codegen::run_process({(root() / name / "build/selftest").string()},
                                                 {.directory = (root() / name).string(), .seconds = 100});
    EXPECT_EQ(r.exit_status, 0) << r.output;
  }

  static ProcessResult train(const std::string& out, std::vector<std::string> more = {}) {
    std::vector<std::string> command = {trainer(), "--data", data(), "--out", out, "--threads", "2"};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  }

  struct Mistake {
    std::vector<std::string> words;
    int status;
    std::string error;
  };
  /// Each gives one line that starts with "error: ".
  static void expect_errors(const std::vector<std::string>& command, const std::vector<Mistake>& mistakes) {
    for (const Mistake& mistake : mistakes) {
      std::vector<std::string> words = command;
      words.insert(words.end(), mistake.words.begin(), mistake.words.end());
      SCOPED_TRACE(mistake.error);
      const ProcessResult r = run(words);
      EXPECT_EQ(r.exit_status, mistake.status) << r.output;
      EXPECT_NE(r.output.find("error: "), std::string::npos) << r.output;
      EXPECT_NE(r.output.find(mistake.error), std::string::npos) << r.output;
    }
  }
};

TEST_F(Projects, SelfTestsPass) {
  for (const char* name : {"classify_train", "classifier"}) expect_self_test_passes(name);
}

TEST_F(Projects, ConvolutionsAndAttentionTrain) {
  if (!tests::all_tests()) GTEST_SKIP() << "tests/kernels has them under the sanitizers";
  TrainPatches training;
  training.compile(spec({kBatch, 1, 14, 14}, "images"), spec({kBatch}, i64, "labels"));
  build(training, "patches_train", true, "native");
  expect_self_test_passes("patches_train");
  // The class is where the bright half of an image begins.
  const fs::path images = work() / "patches_data";
  std::string pixels, labels;
  for (int i = 0; i < kSamples; ++i) {
    for (int at = 0; at < 14 * 14; ++at) pixels += static_cast<char>(at % 14 / 4 == i % kClasses ? 200 + i : i);
    labels += static_cast<char>(i % kClasses);
  }
  for (const char* part : {"train", "test"}) {
    write_npy(images / part / "images.npy", runtime::DType::u8, {kSamples, 1, 14, 14}, pixels);
    write_npy(images / part / "labels.npy", runtime::DType::u8, {kSamples}, labels);
  }
  const std::string out = (work() / "patches_run").string();
  const ProcessResult trained =
      run({program("patches_train"), "--data", images.string(), "--out", out, "--epochs", "4", "--threads", "2"});
  EXPECT_EQ(trained.exit_status, 0) << trained.output;
}

/// Sequences of any length up to 6: their means, and each number less it.
struct Centre : nn::Graph<Centre> {
  std::vector<Tensor> build(Tensor x) {
    const Tensor mean = x.mean(1, true);
    return {mean.squeeze(1), x - mean};
  }
};
struct TrainMeans : nn::Graph<TrainMeans> {
  nn::Linear layer = child("layer", nn::Linear(2, 1));
  optim::SGD optimizer{layer.parameters(), {.lr = 0.05}};
  TrainMeans() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = mse_loss(layer(x.mean(1)).squeeze(1), y);
    loss.backward();
    return loss;
  }
};

TEST_F(Projects, SymbolsBesidesTheBatchAreWhatFilesSay) {
  constexpr std::int64_t kRows = 3, kLongest = 6, kCount = 7;
  Centre centre;
  centre.compile(spec({kRows, Dim("length", kLongest), 2}, "x"));
  build(centre, "centre");
  expect_self_test_passes("centre");
  TrainMeans training;
  training.compile(spec({kRows, Dim("length", kLongest), 2}, "x"), spec({kRows}, "y"));
  build(training, "means_train");
  expect_self_test_passes("means_train");
  const auto write_sequences = [&](const fs::path& folder, std::int64_t length) {
    std::vector<float> x, y;
    for (std::int64_t i = 0; i < kCount; ++i) {
      for (std::int64_t k = 0; k < 2 * length; ++k) x.push_back(static_cast<float>((i * 7 + k * k) % 11));
      y.push_back(static_cast<float>(i));
    }
    const auto text = [](const std::vector<float>& v) {
      return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
    };
    write_npy(folder / "x.npy", runtime::DType::f32, {kCount, length, 2}, text(x));
    write_npy(folder / "y.npy", runtime::DType::f32, {kCount}, text(y));
    return from_data(x, {kCount, length, 2});
  };
  for (const std::int64_t length : {kLongest, std::int64_t{1}, std::int64_t{2}, std::int64_t{4}}) {
    const fs::path folder = work() / ("length" + std::to_string(length));
    const Tensor x = write_sequences(folder, length);
    const std::string means = (folder / "means.npy").string(), rest = (folder / "rest.npy").string();
    const ProcessResult r =
        run({program("centre"), "--data", (folder / "x.npy").string(), "--output", means + "," + rest});
    ASSERT_EQ(r.exit_status, 0) << r.output;
    const runtime::Array first = runtime::read_npy(means), second = runtime::read_npy(rest);
    ASSERT_EQ(second.shape, (runtime::Dims{kCount, length, 2}));
    EXPECT_TRUE(allclose(from_bytes(first.bytes.data(), first.bytes.size(), f32, {kCount, 2}), x.mean(1), 1e-5, 1e-5));
    EXPECT_TRUE(allclose(from_bytes(second.bytes.data(), second.bytes.size(), f32, x.shape()), x - x.mean(1, true),
                         1e-5, 1e-5));
  }
  const fs::path sets = work() / "sequences";
  write_sequences(sets / "train", 4);
  write_sequences(sets / "test", 2);
  const ProcessResult trained =
      run({program("means_train"), "--data", sets.string(), "--out", (work() / "means_run").string(), "--epochs", "3"});
  EXPECT_EQ(trained.exit_status, 0) << trained.output;
  EXPECT_NE(trained.output.find("test loss"), std::string::npos) << trained.output;
  write_sequences(work() / "too_long", kLongest + 1);
  expect_errors({program("centre"), "--data"},
                {{{(work() / "too_long/x.npy").string()}, 1, "[6,2], or smaller in dimension 0 of a sample"}});
}

/// Pictures of any size: in halves of their size and back, and the numbers of all of them in a row.
struct Halves : nn::Graph<Halves> {
  nn::Conv2d halve = child("halve", nn::Conv2d(1, 2, 3, {.stride = 2, .padding = 1}));
  std::vector<Tensor> build(Tensor x) {
    const Tensor half = relu(halve(x));
    return {interpolate(half, {.scale_factor = {2}}), half.flatten()};
  }
};

TEST_F(Projects, PicturesHaveAnySize) {
  const Dim batch("batch", 4), height("height", 4, 12), width("width", 5, 9);
  Halves halves;
  halves.compile(spec({batch, 1, height, width}, "x"));
  build(halves, "halves");
  expect_self_test_passes("halves");
  constexpr std::int64_t kCount = 3;
  for (const auto& [h, w] : {std::pair<std::int64_t, std::int64_t>{4, 5}, {12, 9}, {7, 6}}) {
    const fs::path folder = work() / ("picture" + std::to_string(h));
    const Tensor x = randn({kCount, 1, h, w});
    const std::string bytes(reinterpret_cast<const char*>(x.data_ptr()), static_cast<std::size_t>(x.numel()) * 4);
    write_npy(folder / "x.npy", runtime::DType::f32, {kCount, 1, h, w}, bytes);
    const std::string whole = (folder / "whole.npy").string(), row = (folder / "row.npy").string();
    const ProcessResult r =
        run({program("halves"), "--data", (folder / "x.npy").string(), "--output", whole + "," + row});
    ASSERT_EQ(r.exit_status, 0) << r.output;
    const std::vector<Tensor> expected = halves.build(x);
    const runtime::Array found[] = {runtime::read_npy(whole), runtime::read_npy(row)};
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(found[i].shape, expected[i].sizes()) << i;
      EXPECT_TRUE(allclose(from_bytes(found[i].bytes.data(), found[i].bytes.size(), f32, expected[i].shape()),
                           expected[i].detach(), 1e-5, 1e-5));
    }
  }
  for (const auto& [h, w, said] : {std::tuple<std::int64_t, std::int64_t, const char*>{
                                       3, 5, "dimension 1 (4 or more) and 2 (5 or more) of a sample"},
                                   {4, 10, "[1,12,9]"}}) {
    const fs::path folder = work() / ("other" + std::to_string(h));
    write_npy(folder / "x.npy", runtime::DType::f32, {1, 1, h, w},
              std::string(static_cast<std::size_t>(h * w) * 4, '\0'));
    expect_errors({program("halves"), "--data"}, {{{(folder / "x.npy").string()}, 1, said}});
  }
}

TEST_F(Projects, TrainStopResume) {
  const std::string straight = (work() / "straight").string(), cut = (work() / "cut").string();
  EXPECT_EQ(train(straight, {"--epochs", "3"}).exit_status, 0);
  EXPECT_EQ(train(cut, {"--epochs", "3", "--steps", "7"}).exit_status, 0);
  const ProcessResult r = train(cut, {"--epochs", "3", "--resume"});
  EXPECT_EQ(r.exit_status, 0) << r.output;
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
    EXPECT_EQ(read_file(cut + "/latest/" + file), read_file(straight + "/latest/" + file)) << file;

  // What was learned, deployed.
  const ProcessResult used = run({classifier(), "--weights", straight + "/latest/weights.safetensors", "--data", data(),
                                  "--output", "logits.npy"});
  EXPECT_EQ(used.exit_status, 0) << used.output;
  EXPECT_EQ(runtime::read_npy((work() / "logits.npy").string()).shape, (runtime::Dims{11, kClasses}));
  EXPECT_EQ(run({classifier(), "--bench", "0.01", "--json"}).exit_status, 0);
}

TEST_F(Projects, StepsOfSeveralBatchesAndOfScaledLosses) {
  ir::Graph graph = training_graph();
  graph.config[std::string(ir::kAccumulationSteps)] = std::int64_t{2};
  graph.config[std::string(ir::kLossScale)] = 256.0;
  graph.config[std::string(ir::kScaleInterval)] = std::int64_t{3};
  build(graph, "parts_train");
  expect_self_test_passes("parts_train");
  // One number is infinite, so that one step of each epoch is skipped.
  const std::string data = (work() / "overflowing").string();
  write_data(fs::path(data) / "train", kSamples, 1);
  std::string images = read_file(fs::path(data) / "train/images.npy");
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(images.data() + images.size() - sizeof infinity, &infinity, sizeof infinity);
  write_file(fs::path(data) / "train/images.npy", images);
  const auto trained = [&](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> command = {program("parts_train"), "--data", data, "--out", out, "--seed", "5"};
    command.insert(command.end(), more.begin(), more.end());
    const ProcessResult r = run(command);
    EXPECT_EQ(r.exit_status, 0) << r.output;
    return r.output;
  };
  const std::string straight = (work() / "parts_straight").string(), cut = (work() / "parts_cut").string();
  EXPECT_NE(trained(straight, {"--epochs", "3"}).find("batch 8, 2 batches a step"), std::string::npos);
  // 5 batches are 3 steps, of which the last has one.
  trained(cut, {"--epochs", "3", "--steps", "5", "--threads", "1"});
  trained(cut, {"--epochs", "3", "--resume"});
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
    EXPECT_EQ(read_file(cut + "/latest/" + file), read_file(straight + "/latest/" + file)) << file;
  const std::string manifest = read_file(straight + "/latest/manifest.json");
  for (const char* entry : {"\"step\":9,", "\"accumulation_steps\":2,", "\"draws\":15,"})
    EXPECT_NE(manifest.find(entry), std::string::npos) << entry << "\n" << manifest;
  std::int64_t skipped = 0;
  for (const auto& [name, t] : nn::load(straight + "/latest/optimizer.safetensors"))
    if (name == "grad_scaler-skipped.0") skipped = t.item<std::int64_t>();
  EXPECT_EQ(skipped, 3);
  EXPECT_EQ(trained((work() / "parts_one").string(), {"--accumulation-steps", "1"}).find("batches a step"),
            std::string::npos);
  expect_errors({trainer(), "--data", Projects::data(), "--out", ""},
                {{{"--accumulation-steps", "2"}, 2, "--accumulation-steps: expected 1: this program was emitted"}});
}

/// Gradients that are clipped by their norm, by their magnitude and not at all, in one step.
struct Clipped : nn::Graph<Clipped> {
  nn::Linear first = child("first", nn::Linear(kFeatures, 16)), second = child("second", nn::Linear(16, 8)),
             third = child("third", nn::Linear(8, kClasses));
  optim::SGD by_norm{first.parameters(), {.lr = 0.1, .clip_grad_max_norm = 0.01}};
  optim::SGD by_value{second.parameters(), {.lr = 0.1}}, plain{third.parameters(), {.lr = 0.1}};
  Clipped() {
    add_optimizer(by_norm);
    add_optimizer(by_value);
    add_optimizer(plain);
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(third(relu(second(relu(first(images))))), labels);
    loss.backward();
    nn::utils::clip_grad_value_(second.parameters(), 0.01);
    return loss;
  }
};

TEST_F(Projects, LogTheNormOfScaledGradientsWithoutTheScale) {
  const std::string bad = (work() / "infinite").string();
  write_data(fs::path(bad) / "train", kSamples, 1);
  std::string images = read_file(fs::path(bad) / "train/images.npy");
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(images.data() + images.size() - sizeof infinity, &infinity, sizeof infinity);
  write_file(fs::path(bad) / "train/images.npy", images);
  const auto norms = [&](const std::string& name, const std::string& from) {
    const std::string log = (work() / (name + ".jsonl")).string();
    fs::remove(log);
    const ProcessResult r = run({program(name), "--data", from, "--out", "", "--seed", "5", "--log", log});
    EXPECT_EQ(r.exit_status, 0) << r.output;
    std::vector<std::string> found;
    std::istringstream lines(read_file(log));
    for (std::string line; std::getline(lines, line);) {
      const std::string key = "\"gradient_norm\":";
      if (const std::size_t at = line.find(key); at != std::string::npos)
        found.push_back(line.substr(at + key.size(), line.find_first_of(",}", at + key.size()) - at - key.size()));
    }
    return found;
  };
  std::vector<std::string> expected;
  for (const bool scaled : {false, true}) {
    manual_seed(3);
    Clipped graph;
    if (scaled) graph.set_grad_scaler(amp::GradScaler({.init_scale = 64, .growth_interval = 2}));
    graph.compile(spec({kBatch, kFeatures}, "images"), spec({kBatch}, i64, "labels"));
    const std::string name = scaled ? "clipped_scaled" : "clipped";
    build(graph, name);
    const std::vector<std::string> found = norms(name, data());
    ASSERT_EQ(found.size(), 5U);
    if (!scaled) {
      expected = found;
      continue;
    }
    // A power of two scales exactly, and what flows back is the same.
    EXPECT_EQ(found, expected);
    const std::vector<std::string> skipped = norms(name, bad);
    EXPECT_EQ(std::count(skipped.begin(), skipped.end(), "null"), 1) << "of a step that is skipped there is none";
    EXPECT_EQ(skipped.size(), 5U);
  }
}

TEST_F(Projects, BadCommandLines) {
  const std::string out = (work() / "none").string();
  expect_errors({trainer(), "--data", data(), "--out", out},
                {
                    {{"--epoch", "1"}, 2, "unknown option \"--epoch\"; did you mean --epochs?"},
                    {{"--epochs"}, 2, "--epochs: expected a value"},
                    {{"--epochs", "-1"}, 2, "--epochs: expected a whole number from 0"},
                    {{"--epochs", "99999999999999999999999"}, 2, "--epochs"},
                    {{"--lr", "nan"}, 2, "--lr: expected a number"},
                    {{"--lr", "inf"}, 2, "--lr"},
                    {{"--lr", "-0.1"}, 2, "--lr"},
                    {{"--lr", "1e400"}, 2, "--lr"},
                    {{"--batch", "9"}, 2, "--batch: expected 8, which is fixed"},
                    {{"--threads", "5000"}, 2, "--threads"},
                    {{"--shuffle=maybe"}, 2, "--shuffle: expected no value"},
                    {{"stray"}, 2, "expected options"},
                    {{""}, 2, "expected options"},
                    {{"--data-format", "csv"}, 2, "--data-format: expected auto, idx"},
                    {{"--data", "/dev/null"}, 1, "/dev/null"},
                    {{"--data", "/nonexistent"}, 1, "/nonexistent"},
                    {{"--out", trainer()}, 1, "expected a folder, found a file"},
                    {{"--out", "/proc/none"}, 1, "cannot create the folder"},
                    {{"--weights", "/dev/zero"}, 1, "/dev/zero: expected a file"},
                    {{"--weights", data()}, 1, "expected a file, found a folder"},
                    {{"--log", "/dev/full"}, 1, "No space left"},
                    {{"--resume", "/nonexistent"}, 1, "a checkpoint to resume from"},
                    {{"--std", "0"}, 2, "--std"},
                    {{"--mean", "1,2,x"}, 2, "--mean: expected numbers"},
                    {{"--total-steps", "5"}, 2, "no length to set"},
                });
  EXPECT_TRUE(!fs::exists(out) || runtime::list_checkpoints(out).empty()) << "nothing was saved";
  expect_errors({classifier()},
                {
                    {{}, 2, "--data: expected samples to run on"},
                    {{"--data"}, 2, "--data: expected a value"},
                    {{"--data", data(), "--batch", "0"}, 2, "--batch: expected a whole number from 1 to 8"},
                    {{"--data", data(), "--batch", "9"}, 2, "--batch"},
                    {{"--data", data(), "--topk", "101"}, 2, "--topk"},
                    {{"--bench", "-1"}, 2, "--bench"},
                    {{"--bench", "nan"}, 2, "--bench"},
                    {{"--data", data(), "--output", "/dev/null/x.npy"}, 1, "cannot create"},
                    {{"--data", data(), "--weights", "/nonexistent"}, 1, "--weights"},
                });
}

TEST_F(Projects, BadData) {
  const auto folder = [](const char* name) { return work() / "bad_data" / name; };
  const auto fresh = [&](const char* name, std::int64_t samples = kSamples) {
    write_data(folder(name) / "train", samples, 3);
    return folder(name) / "train";
  };
  const fs::path short_images = fresh("truncated") / "images.npy";
  fs::resize_file(short_images, fs::file_size(short_images) - 3);
  write_npy(fresh("label") / "labels.npy", runtime::DType::u8, {kSamples}, std::string(kSamples - 1, '\1') + '\3');
  write_npy(fresh("negative") / "labels.npy", runtime::DType::i8, {kSamples}, std::string(kSamples - 1, '\1') + '\xFF');
  write_npy(fresh("float_labels") / "labels.npy", runtime::DType::f32, {kSamples}, std::string(4 * kSamples, '\0'));
  write_npy(fresh("fewer_labels") / "labels.npy", runtime::DType::u8, {kSamples - 1}, std::string(kSamples - 1, '\1'));
  write_npy(fresh("wider") / "images.npy", runtime::DType::f32, {kSamples, kFeatures + 1},
            std::string(4 * kSamples * (kFeatures + 1), '\0'));
  write_npy(fresh("empty") / "images.npy", runtime::DType::f32, {0, kFeatures}, "");
  fresh("few", kBatch - 1);
  std::string nans(4 * kSamples * kFeatures, '\0');
  for (std::size_t i = 0; i < nans.size(); i += 4) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(nans.data() + i, &nan, 4);
  }
  write_npy(fresh("nan") / "images.npy", runtime::DType::f32, {kSamples, kFeatures}, nans);
  write_file(fresh("garbage") / "labels.npy", "\x93NUMPY\x02\x00\xF0\xFF\xFF\xFF");
  const struct {
    const char* folder;
    const char* error;
  } cases[] = {
      {"truncated", "images.npy: data: expected 960 bytes for f32[40,6], found 957"},
      {"label", "sample 39 of \"labels\": expected a number from 0 to 2, found 3"},
      {"negative", "sample 39 of \"labels\": expected a number from 0 to 2, found -1"},
      {"float_labels", "expected integers for the model's input \"labels\""},
      {"fewer_labels", "labels.npy: expected 40 samples"},
      {"wider", "field \"images\": expected samples of [6]"},
      {"empty", "expected at least one sample"},
      {"few", "at least one batch of 8 samples, found 7"},
      {"nan", "training: step 1: expected a finite loss, found NaN"},
      {"garbage", "labels.npy: npy header"},
      {"absent", "absent"},
  };
  std::vector<Mistake> mistakes;
  for (const auto& c : cases) mistakes.push_back({{"--data", folder(c.folder).string()}, 1, c.error});
  expect_errors({trainer(), "--out", (work() / "bad_data_out").string()}, mistakes);
}

TEST_F(Projects, BadWeightsAndCheckpoints) {
  const std::string out = (work() / "good").string(), good = out + "/latest/weights.safetensors";
  ASSERT_EQ(train(out, {"--epochs", "2"}).exit_status, 0);
  const std::string bytes = read_file(good);
  const auto changed = [&](const char* name, const std::string& content) {
    write_file(work() / name, content);
    return (work() / name).string();
  };
  std::string renamed = bytes, huge = bytes;
  renamed.replace(renamed.find("hidden.bias"), 11, "hidden.bios");
  huge.replace(0, 8, std::string(7, '\xFF') + '\x7F');
  const std::vector<Mistake> weights = {
      {{"--weights", changed("empty.st", "")}, 1, "empty.st: header: expected 8 bytes of length, found 0 bytes"},
      {{"--weights", changed("cut.st", bytes.substr(0, bytes.size() - 1))}, 1, "cut.st"},
      {{"--weights", changed("long.st", bytes + "x")}, 1, "long.st: data"},
      {{"--weights", changed("huge.st", huge)}, 1, "huge.st: header: expected a length of at most 100000000"},
      {{"--weights", changed("renamed.st", renamed)}, 1, "missing: model.hidden.bias"},
      {{"--weights", out + "/latest/optimizer.safetensors"}, 1, "the tensors are not the model's"},
      {{"--weights", data() + "/train/images.npy"}, 1, "images.npy: header"},
  };
  expect_errors({classifier(), "--data", data()}, weights);
  expect_errors({trainer(), "--data", data(), "--out", (work() / "fresh").string()}, weights);

  // A damaged newest checkpoint is passed over, with a word; with every one damaged, resuming is an error.
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const std::string newest = fs::canonical(out + "/latest").string() + "/" + file, whole = read_file(newest);
    std::string flipped = whole;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 4);
    write_file(newest, flipped);
    const ProcessResult r = train(out, {"--epochs", "2", "--resume"});
    EXPECT_EQ(r.exit_status, 0) << r.output;
    EXPECT_NE(r.output.find("warning: damaged checkpoint"), std::string::npos) << r.output;
    EXPECT_EQ(read_file(newest), whole) << "the epoch was trained again, to the same bits";
  }
  for (const std::string& checkpoint : runtime::list_checkpoints(out))
    fs::resize_file(checkpoint + "/manifest.json", 10);
  expect_errors({trainer(), "--data", data(), "--out", out, "--resume"},
                {{{}, 1, "expected a checkpoint to resume from, found none that is whole"}});
}

/// Starts a program and kills it after so many microseconds; false when it was done before.
bool start_and_kill(const std::vector<std::string>& command, useconds_t microseconds, int& status) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int nothing = ::open("/dev/null", O_RDWR);
    for (int d = 0; d < 3; ++d) ::dup2(nothing, d);
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::usleep(microseconds);
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

// A checkpoint after every step, and a kill at a random moment, again and again, from the beginning where a run came to
// its end; then what a run that nobody disturbed has, bit for bit.
TEST_F(Projects, KilledAHundredTimes) {
  constexpr int kKills = 100;
  const unsigned seed = 20240117;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const std::string out = (work() / "killed").string(), straight = (work() / "undisturbed").string();
  const std::vector<std::string> options = {"--epochs", "60", "--checkpoint-every", "1", "--keep", "2"};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(train(straight, options).exit_status, 0);
  // However slow the machine: a run takes `whole` to its end, and is killed within a part of that; later, when it gets
  // nowhere so fast.
  const auto whole =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  const auto expect_undisturbed = [&] {
    for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
      EXPECT_EQ(read_file(out + "/latest/" + file), read_file(straight + "/latest/" + file)) << file;
  };
  std::int64_t latest = whole / 20;
  int kills = 0, ends = 0;
  std::int64_t last = -1;
  while (kills < kKills) {
    const bool resume = !runtime::list_checkpoints(out).empty();
    std::vector<std::string> command = {trainer(), "--data",    data(), "--out",
                                        out,       "--threads", "2",    resume ? "--resume" : "--overwrite"};
    command.insert(command.end(), options.begin(), options.end());
    int status = 0;
    if (!start_and_kill(command, static_cast<useconds_t>(random() % static_cast<std::uint64_t>(latest + 1)), status)) {
      ASSERT_EQ(status, 0) << "after " << kills << " kills";
      expect_undisturbed();
      fs::remove_all(out);
      last = -1;
      ++ends;
      continue;
    }
    ++kills;
    const std::vector<std::string> found = runtime::list_checkpoints(out);
    const std::int64_t step = found.empty() ? last : runtime::step_of(found[0]);
    if (step == last) latest = std::min(latest + latest / 8, whole);
    if (step > last + 20) latest = latest / 2;
    if (found.empty()) continue;
    EXPECT_TRUE(runtime::is_whole_checkpoint(found[0])) << found[0] << " after " << kills << " kills";
    EXPECT_GE(step, last) << "steps never go back";
    last = step;
  }
  std::cout << kills << " kills, step " << last << " after " << ends << " ends\n";
  EXPECT_TRUE(ends > 0 || last > 0) << "steps were made between kills";
  std::vector<std::string> rest = options;
  rest.emplace_back(runtime::list_checkpoints(out).empty() ? "--overwrite" : "--resume");
  EXPECT_EQ(train(out, rest).exit_status, 0);
  expect_undisturbed();
}

// The disk is full: a small file system where one can be mounted, else a limit on the size of files. The last whole
// checkpoint stays.
TEST_F(Projects, AFullDiskKeepsTheOldCheckpoint) {
  const fs::path disk = work() / "disk";
  fs::create_directories(disk);
  const bool mounted = ::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") == 0;
  if (!mounted)
    std::cout << "no file system can be mounted here: a limit on the size of files stands in for the full disk\n";
  const std::string out = (disk / "out").string();
  EXPECT_EQ(train(out, {"--epochs", "1"}).exit_status, 0);
  const std::vector<std::string> before = runtime::list_checkpoints(out);
  std::vector<std::string> command = {trainer(),  "--data",   data(), "--out",  out,
                                      "--resume", "--epochs", "50",   "--keep", "0"};
  if (!mounted) {
    std::string line = "trap '' XFSZ; ulimit -f 1; exec";
    for (const std::string& word : command) line += " '" + word + "'";
    command = {"bash", "-c", line};
  }
  const ProcessResult r = run(command);
  EXPECT_EQ(r.exit_status, 1) << r.output;
  EXPECT_NE(r.output.find("error: "), std::string::npos) << r.output;
  EXPECT_NE(r.output.find(mounted ? "No space left on device" : "File too large"), std::string::npos) << r.output;
  const std::vector<std::string> after = runtime::list_checkpoints(out);
  ASSERT_FALSE(after.empty());
  EXPECT_TRUE(runtime::is_whole_checkpoint(before[0]));
  for (const std::string& checkpoint : after) EXPECT_TRUE(runtime::is_whole_checkpoint(checkpoint)) << checkpoint;
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-step")) << entry.path();
  // An inference run cannot write its results there, either.
  if (mounted) {
    write_file(disk / "filler", std::string(65536, 'x'));
    const ProcessResult full = run({classifier(), "--data", data(), "--output", (disk / "logits.npy").string()});
    EXPECT_EQ(full.exit_status, 1);
    EXPECT_NE(full.output.find("No space left"), std::string::npos) << full.output;
    EXPECT_FALSE(fs::exists(disk / "logits.npy"));
    EXPECT_EQ(::umount(disk.c_str()), 0);
  }
}

// A folder that nobody may write into. Root may all the same, so there the folder lies on a read-only mount, where one
// can be made.
TEST_F(Projects, AReadOnlyFolderKeepsTheOldCheckpoint) {
  const fs::path folder = work() / "read_only";
  const std::string out = (folder / "out").string();
  ASSERT_EQ(train(out, {"--epochs", "1"}).exit_status, 0);
  const bool root_user = ::geteuid() == 0;
  if (root_user) {
    if (::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0)
      GTEST_SKIP() << "root, and nothing can be mounted here";
    ASSERT_EQ(::mount(nullptr, folder.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr), 0);
  } else {
    fs::permissions(out, fs::perms::owner_read | fs::perms::owner_exec);
  }
  const ProcessResult r = train(out, {"--epochs", "2", "--resume"});
  EXPECT_EQ(r.exit_status, 1) << r.output;
  EXPECT_NE(r.output.find(root_user ? "Read-only file system" : "Permission denied"), std::string::npos) << r.output;
  EXPECT_TRUE(runtime::is_whole_checkpoint(runtime::list_checkpoints(out).at(0)));
  if (root_user) {
    EXPECT_EQ(::umount(folder.c_str()), 0);
  } else {
    fs::permissions(out, fs::perms::owner_all);
  }
}

}  // namespace
}  // namespace graven
