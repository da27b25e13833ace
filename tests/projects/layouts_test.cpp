// Emitted projects whose ranks have tensors in parts (enable_tensor_parallel, Tensor::set_layout): what they compute is
// what one process does, whatever is split, and so is what their checkpoints hold.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "codegen/emit/project.h"
#include "graven/graven.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "ir/rank_layout.h"
#include "kernels/cpu/convert_layout.h"
#include "runtime_min/npy.h"
#include "runtime_min/number.h"
#include "tests/frontend/error_text.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"
#include "tests/projects/networks.h"
#include "tests/projects/workplace.h"

namespace graven {
namespace {

namespace fs = std::filesystem;
using codegen::ProcessResult;
using tests::kClasses;
using tests::kFeatures;
using tests::Launcher;
using tests::launchers;

const tests::Workplace kPlace("layouts_work");
fs::path work() { return kPlace.folder(); }
std::string path(const std::string& out) { return kPlace.path(out); }
std::string program(const std::string& project, const Launcher& l) { return kPlace.program(project, l); }
void build(const std::string& project, const Launcher& l) { kPlace.build(project, l); }
void train(const std::string& project, const Launcher& l, int ranks, const std::string& out,
           const std::vector<std::string>& more) {
  kPlace.train(project, l, ranks, out, more);
}
void expect_near(const std::string& a, const std::string& b, double bound) { kPlace.expect_near(a, b, bound); }

/// The conversions of an emitted project, "from to".
std::vector<std::string> conversions(const std::string& project) {
  std::vector<std::string> found;
  const ir::Graph graph = ir::read_graph((work() / project / "graph.json").string());
  for (const ir::Node& node : graph.nodes)
    if (node.is(ir::kConvertLayout)) found.push_back(node.attributes.text("from") + " " + node.attributes.text("to"));
  return found;
}

constexpr std::int64_t kBatch = 4, kSamples = 48;

struct Classify : tests::AveragedPerceptron<Classify> {
  explicit Classify(bool splits_input = false, double factor = 1)
      : AveragedPerceptron(96, 24), splits_input_(splits_input), factor_(factor) {
    add_optimizer(sgd);
    add_optimizer(adam);
  }
  Tensor build(Tensor images, Tensor labels) {
    if (splits_input_) images.set_layout(layout::split(0));
    Tensor loss = cross_entropy(model(images), labels);
    if (factor_ != 1) loss = factor_ * loss;
    train_on(loss);
    return loss;
  }

 private:
  bool splits_input_;
  double factor_;
};

struct Gpt2 : nn::Graph<Gpt2> {
  models::GPT2LMHeadModel model =
      child("model",
            models::GPT2LMHeadModel({.n_layer = 2, .n_head = 4, .n_embd = 64, .n_positions = 8, .vocab_size = 2048}));
  optim::AdamW optimizer{model.parameters(), {.lr = 1e-2, .eps = 0.05, .clip_grad_max_norm = 1}};
  explicit Gpt2(bool follows_accuracy = false) {
    if (follows_accuracy)
      add_optimizer(
          optimizer,
          lr_scheduler::ReduceLROnPlateau(
              optimizer, {.mode = lr_scheduler::PlateauMode::max, .factor = 0.5, .patience = 0, .threshold = 1}));
    else
      add_optimizer(optimizer);
  }
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten());
    loss.backward();
    return loss;
  }
};

/// As in Megatron-LM: columns, then rows; heads; and the table of tokens by rows, which is the layer of logits, too.
void mark(auto& graph) {
  for (auto& block : graph.model.transformer.h) {
    block.attn.c_attn.weight.set_layout(layout::split(1));
    block.attn.c_proj.weight.set_layout(layout::split(0));
    block.mlp.c_fc.weight.set_layout(layout::split(-1));
    block.mlp.c_proj.weight.set_layout(layout::split(0));
  }
  graph.model.transformer.wte.weight.set_layout(layout::split(0));
}

class Layouts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    kPlace.begin();
    tests::write_data(work() / "data/train", kSamples, 1);
    tests::write_data(work() / "data/test", 11, 2);
    std::ofstream text(work() / "text.txt");
    for (int i = 0; i < 120; ++i) text << "line " << i * i % 97 << (i % 3 == 0 ? " of a text\n" : ", and so on\n");
    std::ofstream shorter(work() / "short.txt"), held(work() / "held.txt");
    for (int i = 0; i < 40; ++i) shorter << "line " << i % 10 << ", and so on\n";
    for (int i = 0; i < 7; ++i) held << "line " << 9 - i << ", and more so\n";
  }
};

TEST_F(Layouts, LinearLayersByColumnsAndRows) {
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  const Launcher l = launchers().front();
  const std::vector<std::string> data = {"--data", path("data"), "--epochs", "2"};
  const auto emit = [&](const std::string& name, std::int64_t ranks, bool parallel, bool splits_input) {
    manual_seed(3);
    Classify graph(splits_input);
    graph.model.first.weight.set_layout(layout::split(0));
    graph.model.second.weight.set_layout(layout::split(1));
    if (ranks > 1) graph.enable_tensor_parallel(ranks);
    if (parallel) graph.enable_data_parallel();
    graph.compile(spec({kBatch, kFeatures}, "images"), spec({kBatch}, i64, "labels"));
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
    build(name, l);
  };
  emit("one", 1, true, false);
  emit("two", 2, true, false);
  emit("three", 3, false, false);
  emit("rows", 2, false, true);
  train("one", l, 1, "out_one", data);
  train("two", l, 2, "out_two", data);
  train("three", l, 3, "out_three", data);
  train("rows", l, 2, "out_rows", data);
  for (const char* out : {"out_two", "out_three", "out_rows"}) expect_near("out_one", out, 2e-5);
  // Stopped and gone on with, bit for bit; with the bytes that have to be sent, and no more.
  train("two", l, 2, "out_cut", {"--data", path("data"), "--epochs", "2", "--steps", "7"});
  train("two", l, 2, "out_cut", {"--data", path("data"), "--epochs", "2", "--resume"});
  kPlace.expect_same("out_two", "out_cut");
  const ProcessResult bench =
      tests::run_ranks(l, 2, program("two", l),
                       {"--bench", "4", "--threads", "1", "--weights", path("two/weights.safetensors")}, work());
  ASSERT_EQ(bench.exit_status, 0) << bench.output;
  const std::size_t begin = bench.output.find("{\"peer\"");
  const auto line = nlohmann::json::parse(bench.output.substr(begin, bench.output.find('\n', begin) - begin));
  EXPECT_GT(line.at("least_sent_bytes").get<double>(), 0);
  EXPECT_LE(line.at("sent_bytes").get<double>(), 1.02 * line.at("least_sent_bytes").get<double>());
  EXPECT_GE(line.at("sent_bytes").get<double>(), 0.98 * line.at("least_sent_bytes").get<double>());
  // The project is emitted again from itself, and checks itself as the first rank alone.
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{std::string(GRAVEN_BINARY_DIR) + "/graven", "emit", path("two"), "-o", path("two"),
                                 "--no-format", "--check"},
        std::vector<std::string>{path("two/build-" + l.name + "/selftest")}}) {
    const ProcessResult r = codegen::run_process(command, {.directory = work().string(), .seconds = 120});
    EXPECT_EQ(r.exit_status, 0) << r.output;
  }
  // A checkpoint is whole: ranks of other numbers go on with it, and one process.
  const auto go_on = [&](const std::string& name, int ranks, const std::vector<std::string>& until) {
    std::vector<std::string> arguments = data;
    arguments.insert(arguments.end(), until.begin(), until.end());
    train(name, l, ranks, "out_mixed", arguments);
  };
  go_on("two", 2, {"--steps", "7"});
  go_on("three", 3, {"--steps", "14", "--resume"});
  go_on("one", 1, {"--steps", "17", "--resume"});
  go_on("rows", 2, {"--resume"});
  expect_near("out_one", "out_mixed", 2e-5);
  // A weight of the whole model goes on in a program of another number.
  train("three", l, 3, "out_weights",
        {"--data", path("data"), "--steps", "1", "--weights", path("out_two/latest/weights.safetensors")});
  // Numbers of ranks that it is not made for, and a rank that dies.
  for (const int ranks : {1, 2}) {
    const ProcessResult r = tests::run_ranks(l, ranks, program("three", l), {"--data", path("data")}, work());
    EXPECT_NE(r.exit_status, 0);
    EXPECT_NE(r.output.find("ranks: expected 3 ranks, which have the tensors of the model in parts"), std::string::npos)
        << r.output;
  }
  const ProcessResult killed = tests::signal_one_rank(l, 3, program("three", l),
                                                      {"--data", path("data"), "--out", path("out_killed"), "--epochs",
                                                       "1000000", "--checkpoint-every", "5", "--threads", "1"},
                                                      "KILL", path("out_killed"));
  EXPECT_EQ(killed.output.find("status 0"), std::string::npos) << killed.output;
  EXPECT_FALSE(nn::load(path("out_killed/latest/weights.safetensors")).empty());
  // Rows of ranks with batches of their own: two of two, beside one process that has two batches a step.
  const std::vector<std::string> twice = {"--data", path("data"), "--epochs", "2", "--accumulation-steps", "1"};
  train("two", l, 4, "out_two_of_two", twice);
  train("one", l, 2, "out_two_of_one", twice);
  expect_near("out_two_of_two", "out_two_of_one", 2e-5);
}

TEST_F(Layouts, TransformersByHeadsAndWords) {
  if (!tests::all_tests()) GTEST_SKIP() << "a slow one: tests/run.sh --all";
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  const Launcher l = launchers().front();
  const auto emit = [&](const std::string& name, std::int64_t ranks) {
    manual_seed(4);
    Gpt2 graph(true);
    mark(graph);
    if (ranks > 1) graph.enable_tensor_parallel(ranks);
    graph.set_gradient_accumulation_steps(2);
    graph.compile(spec({4, 8}, i64, "tokens"), spec({4, 8}, i64, "targets"));
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
    build(name, l);
  };
  const std::vector<std::string> data = {"--data", path("text.txt"), "--data-format", "text", "--steps",
                                         "6",      "--test-data",    path("held.txt")};
  // By epochs: what the held-out set says, and the rate that follows its accuracy.
  const auto epochs = [&](const std::string& name, int ranks) {
    const std::string log = path("log_" + name);
    train(name, l, ranks, "out_epochs_" + name,
          {"--data", path("short.txt"), "--data-format", "text", "--epochs", "4", "--test-data", path("held.txt"),
           "--log", log});
    std::ifstream lines(log);
    std::vector<nlohmann::json> found;
    for (std::string line; std::getline(lines, line);)
      if (nlohmann::json j = nlohmann::json::parse(line); j.at("event") == "epoch") found.push_back(std::move(j));
    return found;
  };
  emit("gpt_one", 1);
  train("gpt_one", l, 1, "out_gpt_one", data);
  const std::vector<nlohmann::json> expected = epochs("gpt_one", 1);
  ASSERT_EQ(expected.size(), 4U);
  EXPECT_GT(expected[3].at("accuracy").get<double>(), 0.1);
  EXPECT_LT(expected[3].at("lr").get<double>(), 1e-2) << "the accuracy has not doubled in each epoch";
  for (const int ranks : {2, 4}) {
    const std::string name = "gpt_" + std::to_string(ranks);
    emit(name, ranks);
    const std::vector<std::string> found = conversions(name);
    // Two sums a block and direction; one of the table, one of what goes back from the logits, two of the loss, which
    // the ranks' largest logits are gathered for; and the norms of what is split.
    EXPECT_EQ(std::count(found.begin(), found.end(), "partial_sum broadcast"), 2 * 2 * 2 + 4)
        << testing::PrintToString(found);
    EXPECT_EQ(std::count(found.begin(), found.end(), "split(0) broadcast"), 2) << testing::PrintToString(found);
    EXPECT_EQ(found.size(), 2 * 2 * 2 + 4 + 2) << testing::PrintToString(found);
    // Each rank has half of the heads, and of the tokens.
    const ir::Graph graph = ir::read_graph((work() / name / "graph.json").string());
    const auto type = [&](const char* parameter) { return graph.type(graph.find(parameter)).to_string(); };
    EXPECT_EQ(type("model.transformer.h.0.attn.c_attn.weight"), "f32[64," + std::to_string(192 / ranks) + "]");
    EXPECT_EQ(type("model.transformer.h.0.attn.c_attn.bias"), "f32[" + std::to_string(192 / ranks) + "]");
    EXPECT_EQ(type("model.transformer.wte.weight"), "f32[" + std::to_string(2048 / ranks) + ",64]");
    train(name, l, ranks, "out_" + name, data);
    expect_near("out_gpt_one", "out_" + name, 2e-5);
    const std::vector<nlohmann::json> evaluated = epochs(name, ranks);
    ASSERT_EQ(evaluated.size(), expected.size());
    for (std::size_t e = 0; e < expected.size(); ++e) {
      EXPECT_EQ(evaluated[e].at("accuracy"), expected[e].at("accuracy"));
      EXPECT_EQ(evaluated[e].at("lr"), expected[e].at("lr"));
      EXPECT_NEAR(evaluated[e].at("test_loss").get<double>(), expected[e].at("test_loss").get<double>(), 1e-4);
    }
    const ProcessResult r = codegen::run_process({path(name + "/build-" + l.name + "/selftest")},
                                                 {.directory = path(name), .seconds = 120});
    EXPECT_EQ(r.exit_status, 0) << r.output;
  }
}

struct ConvNet : nn::Module<ConvNet> {
  nn::Conv2d first = child("first", nn::Conv2d(1, 8, 3, {.padding = {1, 1}, .bias = false}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(8));
  nn::Conv2d depthwise = child("depthwise", nn::Conv2d(8, 8, 3, {.padding = {1, 1}, .groups = 8}));
  nn::Conv2d second = child("second", nn::Conv2d(8, 12, 1));
  nn::Linear last = child("last", nn::Linear(12 * 2, kClasses));
  ConvNet() {
    first.weight.set_layout(layout::split(0));
    depthwise.weight.set_layout(layout::split(0));
    second.weight.set_layout(layout::split(1));
    last.weight.set_layout(layout::split(1));
  }
  Tensor forward(const Tensor& x) {
    Tensor h = relu(norm(first(x.reshape({-1, 1, 2, 3}))));
    h.set_layout(layout::split(1));
    h = relu(depthwise(h));
    h.set_layout(layout::split(1));
    h = relu(max_pool2d(second(h), {2, 2}, {.stride = {{1, 1}}}));
    h.set_layout(layout::split(1));
    return last(h.flatten(1));
  }
};
struct ClassifyImages : nn::Graph<ClassifyImages> {
  ConvNet model = child("model", ConvNet());
  optim::SGD sgd{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  ClassifyImages() { add_optimizer(sgd); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(model(images), labels);
    loss.backward();
    return loss;
  }
};

TEST_F(Layouts, ConvolutionsByChannels) {
  if (!tests::all_tests()) GTEST_SKIP() << "a slow one: tests/run.sh --all";
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  const Launcher l = launchers().front();
  const auto emit = [&](const std::string& name, std::int64_t ranks) {
    manual_seed(7);
    ClassifyImages graph;
    if (ranks > 1) graph.enable_tensor_parallel(ranks);
    graph.enable_data_parallel();
    graph.compile(spec({kBatch, kFeatures}, "images"), spec({kBatch}, i64, "labels"));
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
    build(name, l);
  };
  const std::vector<std::string> data = {"--data", path("data"), "--epochs", "2"};
  emit("conv_one", 1);
  emit("conv_two", 2);
  train("conv_one", l, 1, "out_conv_one", data);
  train("conv_two", l, 2, "out_conv_two", data);
  expect_near("out_conv_one", "out_conv_two", 2e-5);
  const auto running = [&](const std::string& out) {
    for (const auto& [name, t] : nn::load(path(out + "/latest/weights.safetensors")))
      if (name == "model.norm.running_var") return t.to_vector<double>();
    return std::vector<double>();
  };
  const std::vector<double> one = running("out_conv_one"), two = running("out_conv_two");
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 2e-5 * std::abs(one[i]));
  train("conv_two", l, 4, "out_conv_rows", data);
  const ir::Graph graph = ir::read_graph((work() / "conv_two/graph.json").string());
  EXPECT_EQ(graph.type(graph.find("model.norm.running_var")).to_string(), "f32[4]");
  EXPECT_EQ(graph.type(graph.find("model.depthwise.bias")).to_string(), "f32[4]");
}

TEST_F(Layouts, MixedPrecisionAndRecomputation) {
  if (!tests::all_tests()) GTEST_SKIP() << "a slow one: tests/run.sh --all";
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  const Launcher l = launchers().back();
  const auto emit = [&](const std::string& name, std::int64_t ranks) {
    manual_seed(4);
    Gpt2 graph;
    mark(graph);
    if (ranks > 1) graph.enable_tensor_parallel(ranks);
    graph.enable_amp();
    graph.model.transformer.h[0].activation_checkpointing();
    graph.compile(spec({2, 8}, i64, "tokens"), spec({2, 8}, i64, "targets"));
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
    build(name, l);
  };
  const std::vector<std::string> data = {"--data", path("text.txt"), "--data-format", "text", "--steps", "4"};
  emit("amp_one", 1);
  emit("amp_two", 2);
  train("amp_one", l, 1, "out_amp_one", data);
  train("amp_two", l, 2, "out_amp_two", data);
  // bf16 has eight bits, and sums of halves are rounded otherwise.
  expect_near("out_amp_one", "out_amp_two", 0.02);
}

TEST_F(Layouts, AnOverflowOnOneRankSkipsTheStepOfAll) {
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  const Launcher l = launchers().front();
  const auto emit = [&](const std::string& name, std::int64_t ranks) {
    manual_seed(3);
    Classify graph(false, 256);
    graph.model.first.weight.set_layout(layout::split(0));
    graph.model.second.weight.set_layout(layout::split(1));
    // So large that elements of gradients overflow, now on one rank and now on the other.
    graph.set_grad_scaler(amp::GradScaler({.init_scale = 0x1p127, .growth_interval = 1}));
    if (ranks > 1) graph.enable_tensor_parallel(ranks);
    graph.compile(spec({kBatch, kFeatures}, "images"), spec({kBatch}, i64, "labels"));
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
    build(name, l);
  };
  const std::vector<std::string> data = {"--data", path("data"), "--epochs", "4"};
  emit("scaled_one", 1);
  emit("scaled_two", 2);
  train("scaled_one", l, 1, "out_scaled_one", data);
  train("scaled_two", l, 2, "out_scaled_two", data);
  expect_near("out_scaled_one", "out_scaled_two", 2e-5);
  const auto skipped = [&](const std::string& out) {
    std::vector<std::int64_t> found;
    for (const auto& [name, t] : nn::load(path(out + "/latest/optimizer.safetensors")))
      if (name.starts_with("grad_scaler-skipped")) found.push_back(t.item<std::int64_t>());
    return found;
  };
  const std::vector<std::int64_t> expected = skipped("out_scaled_one");
  EXPECT_EQ(skipped("out_scaled_two"), expected);
  ASSERT_EQ(expected.size(), 2U);
  for (const std::int64_t steps : expected) {
    EXPECT_GT(steps, 5);
    EXPECT_LT(steps, 40);
  }
}

template <class Model>
struct Infer : nn::Graph<Infer<Model>> {
  Model model;
  explicit Infer(Model given) : model(this->child("model", std::move(given))) { model.eval(); }
  Tensor build(Tensor x) { return model(x); }
};

TEST_F(Layouts, InferencesComputeWhatOneProcessDoes) {
  if (!tests::all_tests()) GTEST_SKIP() << "a slow one: tests/run.sh --all";
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  std::mt19937 random(5);
  std::string tokens;
  for (int i = 0; i < 5 * 8; ++i) {
    const std::int64_t token = random() % 2048;
    tokens.append(reinterpret_cast<const char*>(&token), sizeof token);
  }
  tests::write_npy(work() / "tokens.npy", runtime::DType::i64, {5, 8}, tokens);
  const auto emit_mlp = [](const std::string& name, std::int64_t ranks) {
    manual_seed(3);
    Infer<tests::Perceptron> graph{tests::Perceptron(96, 24)};
    graph.model.first.weight.set_layout(layout::split(0));
    graph.model.second.weight.set_layout(layout::split(1));
    if (ranks > 1) graph.enable_tensor_parallel(ranks);
    graph.compile(spec({ir::Dim("batch", kBatch), kFeatures}, "images"));
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
  };
  const auto emit_gpt = [](const std::string& name, std::int64_t ranks) {
    manual_seed(4);
    Infer<models::GPT2LMHeadModel> graph{
        models::GPT2LMHeadModel({.n_layer = 2, .n_head = 4, .n_embd = 64, .n_positions = 8, .vocab_size = 2048})};
    mark(graph);
    if (ranks > 1) graph.enable_tensor_parallel(ranks);
    graph.compile(spec({2, 8}, i64, "tokens"));  // the last of five samples fills a batch
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
  };
  const struct {
    std::string name, data;
    std::function<void(const std::string&, std::int64_t)> emit;
  } cases[] = {{"infer_mlp", path("data/test/images.npy"), emit_mlp}, {"infer_gpt", path("tokens.npy"), emit_gpt}};
  const Launcher l = launchers().front();
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string one = c.name + "_one", two = c.name + "_two";
    c.emit(one, 1);
    c.emit(two, 2);
    EXPECT_FALSE(conversions(two).empty());
    tests::build_project(work() / one, l.name, {});
    build(two, l);
    const auto run = [&](const std::string& name, int ranks, std::vector<std::string> more) {
      more.insert(more.end(), {"--threads", "1"});
      return tests::run_ranks(l, ranks, program(name, l), more, work());
    };
    for (const auto& [name, ranks] : {std::pair(one, 1), std::pair(two, 2)}) {
      const ProcessResult r = run(name, ranks, {"--data", c.data, "--output", path(name + ".npy")});
      ASSERT_EQ(r.exit_status, 0) << r.output;
      const std::size_t line = r.output.find(" samples in ");
      EXPECT_NE(line, std::string::npos) << r.output;
      EXPECT_EQ(r.output.find(" samples in ", line + 1), std::string::npos) << "more than one rank prints\n"
                                                                            << r.output;
    }
    const runtime::Array expected = runtime::read_npy(path(one + ".npy")),
                         found = runtime::read_npy(path(two + ".npy"));
    ASSERT_EQ(found.shape, expected.shape);
    for (std::int64_t i = 0; i < runtime::count_of(expected.shape); ++i) {
      const double x = runtime::number_at(expected.dtype, expected.bytes.data(), i);
      ASSERT_NEAR(runtime::number_at(found.dtype, found.bytes.data(), i), x, 1e-5 * (1 + std::abs(x))) << i;
    }
    // It prints and is timed likewise, and checks itself as the first rank alone.
    EXPECT_EQ(run(two, 2, {"--data", c.data, "--show", "1"}).exit_status, 0);
    const ProcessResult bench = run(two, 2, {"--bench", "0.05", "--json"});
    EXPECT_EQ(bench.exit_status, 0) << bench.output;
    EXPECT_NE(bench.output.find("\"median_ms\""), std::string::npos) << bench.output;
    const ProcessResult test =
        codegen::run_process({path(two + "/build-" + l.name + "/selftest")}, {.directory = path(two), .seconds = 120});
    EXPECT_EQ(test.exit_status, 0) << test.output;
    for (const int ranks : {1, 3}) {
      const ProcessResult r = run(two, ranks, {"--data", c.data});
      EXPECT_NE(r.exit_status, 0);
      EXPECT_NE(r.output.find("ranks: expected 2 ranks, which have the tensors of the model in parts"),
                std::string::npos)
          << r.output;
    }
    // A rank whose file is another one's, as a copy of earlier weights is.
    const std::string own = (work() / two / "weights.safetensors").string(), other = path(two + "_other.safetensors");
    std::string bytes = tests::read_file(own);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::ofstream(other, std::ios::binary) << bytes;
    const std::string call = kPlace.program(two, l) + " --data " + c.data + " --weights ";
    const ProcessResult apart = run_ranks(
        l, 2, "/bin/sh",
        {"-c", "[ \"${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\" = 0 ] && exec " + call + own + "; exec " + call + other},
        work());
    EXPECT_NE(apart.exit_status, 0);
    EXPECT_NE(apart.output.find("error: rank 1: the weights: expected the first rank's, "), std::string::npos)
        << apart.output;
    const ProcessResult r = run(two, 2, {"--data", "nowhere"});
    EXPECT_NE(r.exit_status, 0);
    EXPECT_NE(r.output.find("error: rank 0: nowhere"), std::string::npos) << r.output;
  }
}

/// Ranks that are threads of this process.
class ThreadTeam : public kernels::Team {
 public:
  struct Shared {
    explicit Shared(int ranks) : barrier(ranks), rows(static_cast<std::size_t>(ranks)) {}
    std::barrier<> barrier;
    std::vector<const std::byte*> rows;
  };
  ThreadTeam(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_.rows.size()); }
  void exchange(const void* rows, void* received, std::int64_t bytes) override {
    copy(rows, received, bytes, rank_ * bytes);
  }
  void gather(const void* own, void* rows, std::int64_t bytes) override { copy(own, rows, bytes, 0); }

 private:
  void copy(const void* own, void* to, std::int64_t bytes, std::int64_t offset) {
    shared_.rows[static_cast<std::size_t>(rank_)] = static_cast<const std::byte*>(own);
    shared_.barrier.arrive_and_wait();
    for (std::size_t r = 0; r < shared_.rows.size(); ++r)
      std::memcpy(static_cast<std::byte*>(to) + static_cast<std::int64_t>(r) * bytes, shared_.rows[r] + offset,
                  static_cast<std::size_t>(bytes));
    shared_.barrier.arrive_and_wait();
  }
  Shared& shared_;
  int rank_;
};

TEST(Conversions, OfEachLayoutToEachOther) {
  const ir::Shape shape{6, 12, 2};
  constexpr std::int64_t n = 6 * 12 * 2;
  using ir::RankLayout;
  const RankLayout layouts[] = {{},
                                RankLayout::split(0),
                                RankLayout::split(1),
                                RankLayout::split(1, 2),
                                RankLayout::split(0, 3),
                                RankLayout::partial_sum()};
  const auto run_of = [&](const RankLayout& l, std::int64_t ranks) -> std::int64_t {
    if (!l.is_split()) return l.is_partial() ? -1 : 0;
    return l.dim == 0 ? 6 / (l.blocks * ranks) * 24 : 12 / (l.blocks * ranks) * 2;
  };
  // What a rank has by the definition: of terms each rank has another one.
  const auto part = [&](const RankLayout& l, std::int64_t ranks, std::int64_t rank) {
    std::vector<float> own;
    for (std::int64_t i = 0; i < n; ++i) {
      const float value = static_cast<float>(i + 1);
      const std::int64_t place[] = {i / 24, i / 2 % 12}, size[] = {6, 12};
      if (l.is_partial())
        own.push_back(rank + 1 < ranks ? value * static_cast<float>(rank)
                                       : value * static_cast<float>(1 - (ranks - 1) * (ranks - 2) / 2));
      else if (!l.is_split() || place[l.dim] % (size[l.dim] / l.blocks) / (size[l.dim] / l.blocks / ranks) == rank)
        own.push_back(value);
    }
    return own;
  };
  for (const int ranks : {1, 2, 3})
    for (const RankLayout& from : layouts)
      for (const RankLayout& to : layouts) {
        if (!ir::can_have(shape, from, ranks) || !ir::can_have(shape, to, ranks)) continue;
        std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
        ThreadTeam::Shared shared(ranks);
        std::vector<std::thread> threads;
        for (int r = 0; r < ranks; ++r)
          threads.emplace_back([&, r] {
            ThreadTeam team(shared, r);
            kernels::Threads one(1);
            one.set_team(&team);
            const std::vector<float> x = part(from, ranks, r);
            std::vector<float> y(part(to, ranks, r).size(), -1), room(static_cast<std::size_t>(2 * (n + ranks)));
            kernels::convert_layout<float>(
                one, {.n = n, .ranks = ranks, .from = run_of(from, ranks), .to = run_of(to, ranks)}, y.data(), x.data(),
                room.data());
            results[static_cast<std::size_t>(r)] = y;
          });
        for (std::thread& t : threads) t.join();
        const std::string what = from.to_string() + " to " + to.to_string() + ", " + std::to_string(ranks) + " ranks";
        if (to.is_partial()) {
          std::vector<float> sum(static_cast<std::size_t>(n), 0);
          for (const std::vector<float>& y : results)
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += y[i];
          EXPECT_EQ(sum, part({}, ranks, 0)) << what;
        } else {
          for (int r = 0; r < ranks; ++r)
            EXPECT_EQ(results[static_cast<std::size_t>(r)], part(to, ranks, r)) << what << ", rank " << r;
        }
      }
}

TEST(LayoutsOfGraphs, WhatUsersMaySayWrongly) {
  struct Small : nn::Graph<Small> {
    nn::Linear model = child("model", nn::Linear(kFeatures, 40));
    using GraphBase::add_optimizer;
    std::function<void(Tensor&)> marks = [](Tensor&) {};
    bool trains = true;
    Tensor build(Tensor x) {
      Tensor y = model(x);
      marks(y);
      Tensor loss = y.square().mean();
      if (trains) loss.backward();
      return loss;
    }
  };
  const auto said = [](auto change) {
    Small graph;
    return test::error_of([&] {
      graph.model.weight.set_layout(layout::split(0));
      change(graph);
      if (!graph.training() && graph.trains) {
        optim::SGD sgd(graph.model.parameters(), {.lr = 0.1});
        graph.add_optimizer(sgd);
      }
      graph.enable_tensor_parallel(4);
      graph.compile(spec({4, kFeatures}, "x"));
      codegen::emit(graph, work() / "small", {.name = "small", .selftest = 0, .format = false});
    });
  };
  const struct {
    std::string text, expected;
  } cases[] = {
      {said([](Small&) {}), "no error"},
      {said([](Small& g) { g.model.weight.set_layout(layout::split(1)); }),
       "set_layout: model.weight f32[40,6]: split(1) of 4 ranks: expected a dimension that they divide"},
      {said([](Small& g) { g.model.weight.set_layout(layout::split(2)); }),
       "split(2): expected a dimension of f32[40,6]"},
      {said([](Small& g) { g.model.weight.set_layout(layout::partial_sum()); }),
       "expected split(dimension) or broadcast of a parameter, found partial_sum"},
      {said([](Small& g) { g.marks = [](Tensor& y) { y.set_layout(layout::split(-1)); }; }), "no error"},
      {said([](Small& g) { g.marks = [](Tensor& y) { y.set_layout(layout::partial_sum()); }; }), "no error"},
      {said([](Small& g) { g.marks = [](Tensor& y) { (y > 0).set_layout(layout::partial_sum()); }; }),
       "expected floating-point numbers, of which there are terms"},
      {said([](Small&) { zeros({4, 4}).set_layout(layout::split(0)); }), "no error"},
      {said([](Small& g) { g.model.weight.set_layout(layout::broadcast()); }), "no error"},
      {said([](Small& g) {
         optim::LAMB lamb(g.model.parameters(), {.lr = 0.1});
         g.add_optimizer(lamb);
       }),
       "expected an optimizer whose elements are updated one by one of what is split, found lamb"},
      {said([](Small& g) { g.model.set_stage(0); }), "asks for stages of a pipeline (set_stage)"},
      {said([](Small& g) { g.enable_zero(1); }), "(enable_zero): one of the two"},
      {said([](Small& g) { g.set_grad_scaler(amp::GradScaler()); }), "no error"},
      {said([](Small& g) { g.enable_tensor_parallel(0); }), "expected a number of ranks from 1 to 65536, got 0"},
      {said([](Small& g) { g.trains = false; }), "no error"},
  };
  for (const auto& c : cases) EXPECT_NE(c.text.find(c.expected), std::string::npos) << c.expected << "\n" << c.text;
  // What a step adds up has the layout of its parameter, wherever terms of it come from.
  struct Rows : nn::Graph<Rows> {
    nn::Linear a = child("a", nn::Linear(64, 128)), b = child("b", nn::Linear(128, 64));
    nn::LayerNorm norm = child("norm", nn::LayerNorm(64));
    optim::SGD sgd{{a.weight, a.bias, b.weight, b.bias, norm.weight, norm.bias}, {.lr = 0.1}};
    Rows() { add_optimizer(sgd); }
    Tensor build(Tensor x) {
      x.set_layout(layout::split(0));
      Tensor loss = norm(b(relu(a(x)))).square().mean();
      loss.backward();
      return loss;
    }
  };
  for (const std::int64_t parts : {1, 2})
    for (const bool parallel : {false, true}) {
      Rows rows;
      rows.b.weight.set_layout(layout::split(0));
      rows.enable_tensor_parallel(4);
      rows.set_gradient_accumulation_steps(parts);
      if (parallel) rows.enable_data_parallel();
      rows.compile(spec({1024 * parts, 64}, "x"));
      codegen::emit(rows, work() / "rows_of_graphs", {.name = "rows", .selftest = 0, .format = false});
    }
  // In the host's process there is one rank, which has all.
  Small graph;
  graph.model.weight.set_layout(layout::split(0));
  optim::SGD sgd(graph.model.parameters(), {.lr = 0.0});
  graph.add_optimizer(sgd);
  graph.enable_tensor_parallel(4);
  EXPECT_NE(graph.repr().find("tensor_parallel=4"), std::string::npos);
  const Tensor x = randn({4, kFeatures});
  EXPECT_NEAR(graph(x).item<float>(), graph.model(x).square().mean().item<float>(), 1e-6);
}

}  // namespace
}  // namespace graven
