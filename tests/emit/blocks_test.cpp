// Repeated blocks as functions: what model.cpp says of them, and that it computes what was recorded.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "codegen/build/process.h"
#include "codegen/emit/names.h"
#include "codegen/emit/project.h"
#include "tests/patterns.h"
#include "tests/read_text.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t times_in(const std::string& text, const std::string& part) {
  std::ptrdiff_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Nesting, PutsMembersIntoTheStructOfTheirBlock) {
  const Nesting nesting({"h_1", "h_10", "features_2"});
  const struct {
    const char *member, *nested;
  } cases[] = {
      {"h_1_attn_weight", "h_1.attn_weight"},
      {"h_10_attn_weight", "h_10.attn_weight"},
      {"h_11_attn_weight", "h_11_attn_weight"},
      {"features_2_conv_0", "features_2.conv_0"},
      {"features_2", "features_2"},
      {"features_20_conv", "features_20_conv"},
      {"features_2_0_weight", "features_2_0_weight"},  // no identifier without what is before it
      {"features_2_class", "features_2_class"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(nesting(c.member).dotted(), c.nested);
    EXPECT_EQ(nesting(c.member).joined(), c.member);
  }
}

/// Called as a kernel is, so that its function may not be.
struct Elementwise : nn::Module<Elementwise> {
  nn::Linear in, out;
  nn::LayerNorm norm;
  nn::Dropout dropout = child("dropout", nn::Dropout(0.1));
  Elementwise(std::int64_t width, std::int64_t hidden)
      : in(child("in", nn::Linear(width, hidden))),
        out(child("out", nn::Linear(hidden, width))),
        norm(child("norm", nn::LayerNorm(width))) {}
  Tensor forward(Tensor x, Tensor scale) { return x + dropout(out(gelu(in(norm(x))))) * scale; }
};

struct Tower : nn::Module<Tower> {
  nn::Linear stem = child("stem", nn::Linear(12, 24));
  nn::ModuleList<Elementwise> blocks = child("blocks", nn::ModuleList<Elementwise>());
  nn::Linear head = child("head", nn::Linear(24, 5));
  Tensor scale = linspace(0.5, 1.5, 16 * 24).reshape({16, 24});  // a constant that is too large for the code
  Tower() {
    for (const std::int64_t hidden : {48, 96, 40, 64}) blocks.push_back(Elementwise(24, hidden));
  }
  Tensor forward(Tensor x) {
    x = stem(x);
    for (Elementwise& block : blocks) x = block(x, scale);
    return head(x);
  }
};

struct TrainTower : nn::Graph<TrainTower> {
  Tower model = child("model", Tower());
  optim::AdamW optimizer{model.parameters(), {.lr = 1e-3}};
  TrainTower() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model(x), y);
    loss.backward();
    return loss;
  }
};

TEST(Blocks, AreFunctionsThatComputeWhatWasRecorded) {
  TrainTower graph;
  graph.compile(spec({16, 12}, "x"), spec({16}, i64, "y"));
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / "tower";
  fs::remove_all(folder);
  emit(graph, folder, {.name = "tower"});
  const std::string model = read_text(folder / "model.cpp"), evaluation = read_text(folder / "evaluation.cpp");
  // One function for each phase, whatever the sizes, and one call of it a block.
  EXPECT_EQ(times_in(model, "void Calls::elementwise_block(const auto& param, const auto& buf, const f32* x"), 1)
      << model;
  EXPECT_EQ(
      times_in(model, "void Calls::elementwise_block_backward(const auto& param, const auto& grad, const auto& buf,"),
      1);
  EXPECT_EQ(times_in(model, "  elementwise_block<config::blocks_"), 4);
  EXPECT_EQ(times_in(model, "  elementwise_block_backward<config::blocks_"), 4);
  EXPECT_EQ(times_in(model, " Calls::elementwise_block"), 2);
  EXPECT_EQ(times_in(evaluation, "void EvaluationCalls::elementwise_block("), 1) << evaluation;
  EXPECT_EQ(times_in(evaluation, "  elementwise_block<config::"), 4);
  EXPECT_EQ(times_in(read_text(folder / "params.h"), "GRAVEN_BLOCK(blocks_"), 4);
  const auto run = [&](const std::vector<std::string>& command) {
    const ProcessResult r = run_process(command, {.directory = folder.string(), .seconds = 500});
    EXPECT_EQ(r.exit_status, 0) << r.output;
  };
  run({"cmake", "-S", ".", "-B", "build", "-DGRAVEN_LEVELS=native",
       "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror"});
  run({"cmake", "--build", "build", "--target", "selftest", "-j2"});
  run({"build/selftest"});
}

/// A GPT-2 as it is trained; its tensors are small, which changes no line.
struct TrainGpt2 : nn::Graph<TrainGpt2> {
  models::GPT2LMHeadModel model;
  optim::AdamW optimizer{model.parameters(), {.lr = 1e-3, .weight_decay = 0.1, .clip_grad_max_norm = 1}};
  explicit TrainGpt2(std::int64_t layers)
      : model(child("model", models::GPT2LMHeadModel(
                                 {.n_layer = layers, .n_head = 2, .n_embd = 16, .n_positions = 8, .vocab_size = 50}))) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten());
    loss.backward();
    return loss;
  }
};

TEST(Blocks, LargeNetworksAreAFewPages) {
  TrainGpt2 graph(12);
  graph.compile(spec({2, 8}, i64, "tokens"), spec({2, 8}, i64, "targets"));
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / "gpt2_pages";
  fs::remove_all(folder);
  emit(graph, folder, {.name = "gpt2_pages"});
  const std::string model = read_text(folder / "model.cpp"), configs = read_text(folder / "configs.h");
  EXPECT_LE(times_in(model, "\n"), 500);
  EXPECT_LE(times_in(configs, "\n"), 350) << "of the training and of the evaluation";
  EXPECT_EQ(times_in(model, " Calls::gpt2_block(") + times_in(model, " Calls::gpt2_block_backward("), 2);
  EXPECT_EQ(times_in(model, " Calls::gpt2_block"), 2);
  EXPECT_EQ(times_in(configs, " : transformer_h_0 {"), 11) << "dropout draws other numbers in each";
  // The norm of all gradients is one call, and nothing but the update multiplies by its factor.
  EXPECT_EQ(times_in(model, "  clip_factor(threads,"), 1);
  EXPECT_EQ(times_in(model, "buf.clip_0_factor"), 3) << "with its workspace's name";
  EXPECT_EQ(times_in(model, "<mul>"), times_in(model, "matmul<mul>"));
}

/// How many values stand on one another in a plan, each where the one below it ends.
int deepest(const std::string& plan) {
  std::map<std::string, std::string> below;
  for (const tests::Match& line :
       tests::matches(plan, R"(^GRAVEN_VALUE(?:_OF)?\((?:(\w+), )?(\w+), +\w+, +(?:\d+|\w+::(\w+)\(\)),)")) {
    const std::string &block = line.groups[1], &name = line.groups[2];
    below[block.empty() ? name : block + "_" + name] = line.groups[3];
  }
  std::map<std::string, int> depths;
  const std::function<int(const std::string&)> depth_of = [&](const std::string& name) {
    if (name.empty()) return 0;
    EXPECT_TRUE(below.count(name)) << name;
    const auto known = depths.find(name);
    return known != depths.end() ? known->second : depths[name] = 1 + depth_of(below[name]);
  };
  int result = 0;
  for (const auto& [name, _] : std::map(below)) result = std::max(result, depth_of(name));
  return result;
}

TEST(Blocks, OfDeepNetworksHavePlansThatEveryCompilerFollows) {
  TrainGpt2 graph(30);
  const ir::Graph& traced = graph.trace(spec({2, 8}, i64, "tokens"), spec({2, 8}, i64, "targets"));
  for (const char* target : {"cpu", "cuda"}) {
    const auto files = render_project(traced, {.name = "deep", .target = target, .format = false});
    EXPECT_GT(times_in(files.at("memory_plan.h"), "\nGRAVEN_VALUE_OF(transformer_h_29, "), 20);
    EXPECT_GT(deepest(files.at("memory_plan.h")), 50) << target;
    EXPECT_LE(deepest(files.at("memory_plan.h")), 125) << target << ": nvcc follows 128 constexpr functions";
  }
}

TEST(Blocks, ThousandsOfCallsOfAFewFunctionsAreOneFile) {
  TrainGpt2 graph(60);
  const auto files = render_project(graph.trace(spec({2, 8}, i64, "tokens"), spec({2, 8}, i64, "targets")),
                                    {.name = "deep", .format = false});
  EXPECT_LE(times_in(files.at("model.cpp"), "\n"), 700);
  EXPECT_EQ(times_in(files.at("model.cpp"), "  gpt2_block<config::transformer_h_"), 60);
  EXPECT_EQ(times_in(files.at("model.cpp"), "  gpt2_block_backward<config::transformer_h_"), 60);
  EXPECT_EQ(files.count("model_forward_1.cpp"), 0u);
}

/// What is left beside the blocks does not fit one file, and functions of blocks are templates of one.
TEST(Blocks, WhereTooMuchIsLeftAreWrittenOut) {
  struct Infer : nn::Graph<Infer> {
    Tower model = child("model", Tower());
    nn::Linear last = child("last", nn::Linear(5, 5));
    Infer() { model.eval(); }
    Tensor build(Tensor x) {
      Tensor y = model(x);
      for (int i = 0; i < 1000; ++i) y = last(y);
      return y;
    }
  } graph;
  NoGradGuard no_grad;
  graph.last.weight.copy_(eye(5));
  graph.compile(spec({16, 12}, "x"));
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / "written_out";
  fs::remove_all(folder);
  emit(graph, folder, {.name = "written_out"});
  EXPECT_EQ(times_in(read_text(folder / "params.h"), "GRAVEN_BLOCK"), 0);
  EXPECT_EQ(times_in(read_text(folder / "model_forward_1.cpp"), "config::model_blocks_3_"), 4);
  const auto run = [&](const std::vector<std::string>& command) {
    const ProcessResult r = run_process(command, {.directory = folder.string(), .seconds = 500});
    EXPECT_EQ(r.exit_status, 0) << r.output;
  };
  run({"cmake", "-S", ".", "-B", "build", "-DGRAVEN_LEVELS=native",
       "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror"});
  run({"cmake", "--build", "build", "--target", "selftest", "-j2"});
  run({"build/selftest"});
}

TEST(Blocks, OfNetworksThatRepeatNothingThereAreNone) {
  struct Infer : nn::Graph<Infer> {
    models::LeNet model = child("model", models::LeNet());
    Infer() { model.eval(); }
    Tensor build(Tensor x) { return model(x); }
  } graph;
  graph.compile(spec({1, 1, 28, 28}, "x"));
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / "no_blocks";
  fs::remove_all(folder);
  emit(graph, folder, {.name = "no_blocks"});
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".h") {
      EXPECT_EQ(times_in(read_text(entry.path()), "GRAVEN_BLOCK"), 0) << entry.path();
    }
}

}  // namespace
}  // namespace graven::codegen
