// Emitted projects whose ranks have tensors in parts (enable_tensor_parallel, Tensor::set_layout): what they compute is
// what one process does, whatever is split, and so is what their checkpoints hold.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codegen/emit/project.h"
#include "graven/graven.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "tests/frontend/error_text.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"

namespace graven {
namespace {

namespace fs = std::filesystem;
using codegen::ProcessResult;
using tests::kClasses;
using tests::kFeatures;
using tests::Launcher;
using tests::launchers;
using tests::read_file;

fs::path work() { return fs::path(GRAVEN_BINARY_DIR) / "layouts_work"; }
std::string path(const std::string& out) { return (work() / out).string(); }
std::string program(const std::string& project, const Launcher& l) {
  return (work() / project / ("build-" + l.name) / project).string();
}
void build(const std::string& project, const Launcher& l) {
  tests::build_project(work() / project, l.name, {"-DGRAVEN_MPI=ON", "-DMPI_CXX_COMPILER=" + l.compiler});
}
void train(const std::string& project, const Launcher& l, int ranks, const std::string& out,
           const std::vector<std::string>& more) {
  std::vector<std::string> options = {"--out", path(out), "--seed", "5", "--threads", "1"};
  options.insert(options.end(), more.begin(), more.end());
  const ProcessResult r = tests::run_ranks(l, ranks, program(project, l), options, work());
  EXPECT_EQ(r.exit_status, 0) << r.output;
}
void expect_near(const std::string& a, const std::string& b, double bound) {
  for (const char* file : {"/latest/weights.safetensors", "/latest/optimizer.safetensors"})
    EXPECT_LT(tests::difference(path(a) + file, path(b) + file), bound) << a << ", " << b << file;
}

/// The conversions of an emitted project, "from to".
std::vector<std::string> conversions(const std::string& project) {
  std::vector<std::string> found;
  const ir::Graph graph = ir::read_graph((work() / project / "graph.json").string());
  for (const ir::Node& node : graph.nodes)
    if (node.is(ir::kConvertLayout)) found.push_back(node.attributes.text("from") + " " + node.attributes.text("to"));
  return found;
}

constexpr std::int64_t kBatch = 4, kSamples = 48;

struct Perceptron : nn::Module<Perceptron> {
  nn::Linear first = child("first", nn::Linear(kFeatures, 96)), second = child("second", nn::Linear(96, 24)),
             third = child("third", nn::Linear(24, kClasses));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.2));
  Tensor forward(const Tensor& x) { return third(relu(second(dropout(relu(first(x)))))); }
};

/// Two optimizers, one clips; and an average of the weights that reads what all ranks have updated.
struct Classify : nn::Graph<Classify> {
  Perceptron model = child("model", Perceptron());
  Perceptron average = child("average", Perceptron());
  optim::SGD sgd{model.first.parameters(), {.lr = 0.05, .momentum = 0.9, .clip_grad_max_norm = 0.05}};
  // A large epsilon: steps go by the size of gradients, not by the sign of those that are rounding alone.
  optim::AdamW adam{{model.second.weight, model.second.bias, model.third.weight, model.third.bias},
                    {.lr = 0.02, .eps = 0.05, .weight_decay = 0.01}};
  explicit Classify(bool splits_input = false) : splits_input_(splits_input) {
    average.requires_grad_(false);
    add_optimizer(sgd);
    add_optimizer(adam);
  }
  Tensor build(Tensor images, Tensor labels) {
    if (splits_input_) images.set_layout(layout::split(0));
    Tensor loss = cross_entropy(model(images), labels);
    loss.backward();
    nn::AfterUpdate after;
    nn::utils::update_average_(average, model, 0.9);
    return loss;
  }

 private:
  bool splits_input_;
};

struct Gpt2 : nn::Graph<Gpt2> {
  models::GPT2LMHeadModel model =
      child("model",
            models::GPT2LMHeadModel({.n_layer = 2, .n_head = 4, .n_embd = 64, .n_positions = 8, .vocab_size = 2048}));
  optim::AdamW optimizer{model.parameters(), {.lr = 1e-3, .eps = 1e-4, .clip_grad_max_norm = 1}};
  Gpt2() { add_optimizer(optimizer); }
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten());
    loss.backward();
    return loss;
  }
};

/// As in Megatron-LM: columns, then rows; heads; and the table of tokens by rows, which is the layer of logits, too.
void mark(Gpt2& graph) {
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
    fs::remove_all(work());
    fs::create_directories(work());
    tests::write_data(work() / "data/train", kSamples, 1);
    tests::write_data(work() / "data/test", 11, 2);
    std::ofstream text(work() / "text.txt");
    for (int i = 0; i < 120; ++i) text << "line " << i * i % 97 << (i % 3 == 0 ? " of a text\n" : ", and so on\n");
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
    codegen::emit(graph, work() / name, {.name = name, .format = false});
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
  // Rows of ranks with batches of their own: two of two, beside one process that has two batches a step.
  const std::vector<std::string> twice = {"--data", path("data"), "--epochs", "2", "--accumulation-steps", "1"};
  train("two", l, 4, "out_two_of_two", twice);
  train("one", l, 2, "out_two_of_one", twice);
  expect_near("out_two_of_two", "out_two_of_one", 2e-5);
}

TEST_F(Layouts, TransformersByHeadsAndWords) {
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  const Launcher l = launchers().front();
  const auto emit = [&](const std::string& name, std::int64_t ranks) {
    manual_seed(4);
    Gpt2 graph;
    mark(graph);
    if (ranks > 1) graph.enable_tensor_parallel(ranks);
    graph.set_gradient_accumulation_steps(2);
    graph.compile(spec({4, 8}, i64, "tokens"), spec({4, 8}, i64, "targets"));
    codegen::emit(graph, work() / name, {.name = name, .format = false});
    build(name, l);
  };
  const std::vector<std::string> data = {"--data", path("text.txt"), "--data-format", "text", "--steps", "6"};
  emit("gpt_one", 1);
  train("gpt_one", l, 1, "out_gpt_one", data);
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
  }
}

}  // namespace
}  // namespace graven
