// Each pass alone: the graph before it and the graph after it, as compact text (ir/text.h) in
// tests/passes/<pass>/<case>.txt. `test_passes --bless` writes what follows the pass anew; the difference is for the
// reviewer to read. A new case is a new file: the graph before, as `graven show` prints it, and then --bless.
#include "ir/passes/pass.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>

#include "codegen/targets/cuda/target.h"
#include "graphs.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/targets/scattered_target.h"

namespace graven::tests {
namespace {

bool bless = false;

/// The graph as the pass finds it in the pipeline.
Graph prepared(Graph g, const std::string& until) {
  ir::PassOptions options;
  options.to = until;
  ir::run_passes(g, options);
  return g;
}

Graph small_mlp() { return mlp_training(4, 8); }

/// A graph of one input x f32[2,3] and what `build` makes of it.
Graph of(void (*build)(Graph&, Recorder&, ValueId)) {
  Graph g;
  g.name = "Case";
  const ValueId x = g.add_input("x", {DType::f32, {2, 3}});
  Recorder record(g);
  build(g, record, x);
  return g;
}

/// One norm over all gradients.
Graph clipping(Graph g) {
  g.optimizers[0].groups[0].options.insert({{"clip_grad_max_norm", 1}, {"clip_grad_norm_type", 2}});
  return g;
}

const std::filesystem::path kCases = std::filesystem::path(GRAVEN_SOURCE_DIR) / "tests" / "passes";

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A file of cases: a graph, a line "==== after PASS" (with " (cuda)" behind it where that is the target, or another),
/// and the graph that the pass makes of it.
struct Case {
  std::string pass, name, before, separator, after;
  const ir::TargetTraits* target = &ir::kHost;
  std::filesystem::path path() const { return kCases / pass / (name + ".txt"); }
};

Case read_case(const std::filesystem::path& path) {
  Case c;
  c.pass = path.parent_path().filename().string();
  c.name = path.stem().string();
  const std::string text = read_text(path);
  const std::size_t begin = text.find("==== after "), end = text.find('\n', begin);
  c.before = text.substr(0, begin);
  if (begin == std::string::npos) return c;  // a new case: the test says what is missing
  c.separator = text.substr(begin, end - begin);
  c.after = text.substr(std::min(text.size(), end + 2));  // there is an empty line between
  for (const ir::TargetTraits* target : {&codegen::cuda_target().passes, &kScattered})
    if (c.separator.ends_with(" (" + std::string(target->name) + ")")) c.target = target;
  return c;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> table = [] {
    std::vector<Case> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kCases))
      if (entry.path().extension() == ".txt") found.push_back(read_case(entry.path()));
    std::sort(found.begin(), found.end(), [](const Case& a, const Case& b) { return a.path() < b.path(); });
    return found;
  }();
  return table;
}

/// The graph of a case before its pass.
Graph graph_of(const std::string& pass, const std::string& name) {
  const Case c = read_case(kCases / pass / (name + ".txt"));
  return ir::from_text(c.before, c.path().string());
}

/// Compares what the pass makes with the file, or writes it.
void check_case(const Case& c, const std::string& after) {
  const std::string suffix = c.target == &ir::kHost ? "" : " (" + std::string(c.target->name) + ")",
                    separator = "==== after " + c.pass + suffix;
  if (bless) {
    std::ofstream(c.path(), std::ios::binary) << c.before << separator << "\n\n" << after;
    return;
  }
  EXPECT_EQ(c.separator, separator) << c.path();
  if (after == c.after) return;
  std::istringstream now(after), then(c.after);
  std::string a, b;
  const std::string above = c.before + c.separator;
  auto line = 3 + std::count(above.begin(), above.end(), '\n');
  for (; std::getline(now, a), std::getline(then, b), a == b && now; ++line) {
  }
  ADD_FAILURE() << c.path().string() << ":" << line << "\n  now:      " << a << "\n  expected: " << b
                << "\nIf the change is meant, run: test_passes --bless, and read the difference";
}

class PassTest : public testing::TestWithParam<Case> {};

TEST_P(PassTest, RewritesAsBefore) {
  const Case& c = GetParam();
  Graph g = ir::from_text(c.before, c.path().string());
  ir::PassOptions options;
  options.target = c.target;
  options.from = options.to = c.pass;
  ir::run_passes(g, options);
  check_case(c, ir::to_text(g));
}

INSTANTIATE_TEST_SUITE_P(Passes, PassTest, testing::ValuesIn(cases()),
                         [](const auto& i) { return i.param.pass + "_" + i.param.name; });

// ---- the pipeline ---------------------------------------------------------------------------------------------------

const std::vector<std::pair<std::string, Graph (*)()>>& networks() {
  static const std::vector<std::pair<std::string, Graph (*)()>> table = {
      {"mlp", small_mlp},
      {"lenet", [] { return lenet_training(); }},
      {"lenet_inference", [] { return lenet_inference(); }},
      {"residual_inference", [] { return residual_inference(ir::Dim("batch", 8)); }},
      {"residual_training", [] { return residual_training(); }},
      {"polynomial", [] { return polynomial_training(); }},
      {"algebra", [] { return graph_of("simplify_algebra", "identities"); }},
      {"chains",
       [] {
         Graph g = graph_of("fuse_elementwise", "chains");
         g.stage = "trace";  // it is as it was recorded
         return g;
       }},
  };
  return table;
}

TEST(Pipeline, EveryPassHasACaseAndAReason) {
  for (const ir::Pass& pass : ir::pipeline()) {
    EXPECT_FALSE(pass.reason.empty()) << pass.name;
    EXPECT_TRUE(std::any_of(cases().begin(), cases().end(), [&](const Case& c) { return c.pass == pass.name; }))
        << pass.name;
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(GRAVEN_SOURCE_DIR) / "ir" / "passes" /
                                        (std::string(pass.name) + ".cpp")))
        << pass.name;
  }
}

TEST(Pipeline, EveryDumpIsAValidInputAgain) {
  // Two runs may meet.
  const std::filesystem::path directory =
      std::filesystem::path(GRAVEN_BINARY_DIR) / ("passes_dump" + std::to_string(::getpid()));
  for (const auto& [name, make] : networks()) {
    std::filesystem::remove_all(directory);
    Graph whole = make();
    ir::PassOptions options;
    options.dump_directory = directory.string();
    ir::run_passes(whole, options);
    std::vector<std::filesystem::path> dumps;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) dumps.push_back(entry.path());
    std::sort(dumps.begin(), dumps.end());
    ASSERT_GE(dumps.size(), 8u);
    EXPECT_EQ(dumps[0].filename(), "00-trace.json");
    for (const auto& dump : dumps) {
      Graph again = ir::read_graph(dump.string());
      EXPECT_EQ(ir::to_json(again), read_text(dump)) << name << " " << dump.filename();
      // Started in the middle, it ends the same.
      const std::string stage = dump.stem().string().substr(3);
      const auto passes = ir::pipeline();
      std::size_t next = 0;
      for (std::size_t i = 0; i < passes.size(); ++i)
        if (passes[i].name == stage) next = i + 1;
      if (next < passes.size()) {
        ir::PassOptions rest;
        rest.from = passes[next].name;
        ir::run_passes(again, rest);
      }
      EXPECT_EQ(ir::to_json(again), ir::to_json(whole)) << name << " from " << stage;
    }
  }
  std::filesystem::remove_all(directory);
}

// A graph that has been through the last pass, as every emitted project's, is finished as it is.
TEST(Pipeline, NothingIsLeftOfAFinishedGraph) {
  for (const auto& [name, make] : networks()) {
    Graph g = make();
    ir::finish_passes(g, {});
    const std::string finished = ir::to_json(g);
    EXPECT_EQ(g.stage, ir::pipeline().back().name);
    EXPECT_TRUE(ir::finish_passes(g, {}).empty()) << name;
    EXPECT_EQ(ir::to_json(g), finished) << name;
    ir::PassOptions unknown;
    unknown.disabled = {"no_such_pass"};
    EXPECT_THROW(ir::finish_passes(g, unknown), UserError);
  }
}

TEST(Pipeline, IsDeterministic) {
  for (const auto& [name, make] : networks()) {
    Graph a = make(), b = make();
    ir::run_passes(a, {});
    ir::run_passes(b, {});
    EXPECT_EQ(ir::to_json(a), ir::to_json(b)) << name;
  }
}

TEST(Pipeline, EveryPassMayBeLeftOut) {
  for (const auto& [name, make] : networks())
    for (const ir::Pass& pass : ir::pipeline()) {
      Graph g = make();
      // Updates need gradients; without either, a training graph is half a graph.
      ir::PassOptions options;
      options.disabled = {std::string(pass.name)};
      EXPECT_NO_THROW(ir::run_passes(g, options)) << name << " without " << pass.name;
    }
}

TEST(Pipeline, RefusesUnknownNames) {
  for (ir::PassOptions options :
       {ir::PassOptions{.disabled = {"no_such_pass"}, .from = {}, .to = {}, .dump_directory = {}},
        ir::PassOptions{.disabled = {}, .from = "no_such_pass", .to = {}, .dump_directory = {}},
        ir::PassOptions{.disabled = {}, .from = {}, .to = "no_such_pass", .dump_directory = {}},
        ir::PassOptions{.disabled = {}, .from = "fuse_elementwise", .to = "differentiate", .dump_directory = {}}}) {
    Graph g = small_mlp();
    EXPECT_THROW(ir::run_passes(g, options), UserError);
  }
}

std::size_t count(const Graph& g, std::string_view op) {
  return static_cast<std::size_t>(
      std::count_if(g.nodes.begin(), g.nodes.end(), [&](const ir::Node& n) { return n.op->name == op; }));
}

TEST(Pipeline, LeNetBecomesWhatItShould) {
  Graph g = lenet_training();
  ir::run_passes(g, {});
  // Every relu is an epilogue, forward and backward.
  EXPECT_EQ(count(g, "relu"), 0u);
  EXPECT_EQ(count(g, "where"), 0u);
  EXPECT_EQ(count(g, "fused_elementwise"), 0u);
  EXPECT_EQ(count(g, "sgd"), 1u);
  // One permute to the linear layers, one back: with one channel the images are a reshape away.
  EXPECT_EQ(count(g, "permute"), 2u);
  EXPECT_EQ(count(g, "lowered_conv2d_backward_input"), 1u);

  Graph i = lenet_inference();
  ir::run_passes(i, {});
  std::size_t forward_permutes = 0, forward_packs = 0;
  for (const ir::Node& n : i.nodes) {
    forward_permutes += n.phase == ir::Phase::forward && n.op->name == "permute";
    forward_packs += n.phase == ir::Phase::forward && n.op->name.substr(0, 4) == "pack";
  }
  EXPECT_EQ(forward_permutes, 0u);
  EXPECT_EQ(forward_packs, 0u);
  EXPECT_EQ(count(i, "fused_elementwise"), 0u);
}

TEST(Pipeline, ResidualNetworkBecomesTwoConvolutionsAndAMean) {
  Graph g = residual_inference();
  ir::run_passes(g, {});
  std::vector<std::string_view> forward;
  for (const ir::Node& n : g.nodes)
    if (n.phase == ir::Phase::forward && !n.op->alias) forward.push_back(n.op->name);
  EXPECT_EQ(forward, (std::vector<std::string_view>{"permute", "lowered_conv2d", "lowered_conv2d", "mean"}));
}

TEST(Pipeline, OnCudaNothingIsPacked) {
  for (const auto& [name, make] : networks()) {
    Graph g = make();
    ir::PassOptions options;
    options.target = &codegen::cuda_target().passes;
    ir::run_passes(g, options);
    EXPECT_EQ(count(g, "pack_linear_weight") + count(g, "pack_conv2d_weight"), 0u) << name;
    for (const ir::Node& n : g.nodes) EXPECT_TRUE(n.attributes.flag_or("channels_last", true)) << name;
  }
}

TEST(Pipeline, EvaluationIsForwardOnly) {
  const Graph g = ir::evaluation_graph(residual_training());
  ir::verify(g);
  EXPECT_EQ(g.outputs.size(), 2u);
  EXPECT_EQ(g.type(g.outputs[1]).shape, (Shape{2, 5}));
  EXPECT_EQ(count(g, "batch_norm_training"), 0u);
  EXPECT_TRUE(g.donations.empty());
  EXPECT_EQ(count(g, "batch_norm"), 2u);
  Graph lowered = g;
  ir::run_passes(lowered, {});
  EXPECT_EQ(count(lowered, "batch_norm"), 0u);

  // What is drawn is drawn with a seed and a step that do not change.
  const Graph noisy = of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId seed = g.add_value("seed", ir::ValueKind::hyper, {DType::i64, {}}),
                  step = g.add_value("step", ir::ValueKind::hyper, {DType::i64, {}});
    const ValueId noise = r("", "random_normal", {seed, step},
                            {{"shape", Shape{2, 3}}, {"dtype", DType::f32}, {"stream", std::int64_t{1}}});
    g = train(g, r("", "sum", {r("", "mul", {r("", "add", {x, noise}), parameter(g, "w", {3})})}, {{"dims", Ints{}}}),
              sgd(g));
  });
  const Graph quiet = ir::evaluation_graph(noisy);
  EXPECT_EQ(count(quiet, "random_normal"), 1u);
  for (const ir::Node& n : quiet.nodes)
    for (const ValueId v : n.inputs) EXPECT_NE(quiet.value(v).kind, ir::ValueKind::hyper) << n.op->name;
}

// ---- errors ---------------------------------------------------------------------------------------------------------

std::string error_of(Graph g) {
  try {
    ir::run_passes(g, {});
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Differentiate, NamesTheOperatorWithoutGradient) {
  const Graph g = of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId y = r("model", "linear", {x, parameter(g, "w", {3, 3})});
    const ValueId z = r("model.last", "linear_backward_input", {y, parameter(g, "v", {3, 3})});
    g = train(g, r("loss", "sum", {z}, {{"dims", Ints{}}}), sgd(g));
  });
  const std::string text = error_of(g);
  EXPECT_NE(text.find("model.last (linear_backward_input): has no gradient"), std::string::npos) << text;
  EXPECT_NE(text.find("at network.cpp:2"), std::string::npos) << text;
}

TEST(Differentiate, RefusesALossThatNothingTrains) {
  const Graph g =
      of([](Graph& g, Recorder& r, ValueId x) { g = train(g, r("loss", "sum", {x}, {{"dims", Ints{}}}), sgd(g)); });
  EXPECT_NE(error_of(g).find("no parameter that is to be trained has part in it"), std::string::npos) << error_of(g);
  const Graph detached = of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId y = r("", "detach", {r("", "mul", {x, parameter(g, "w", {3})})});
    g = train(g, r("loss", "sum", {y}, {{"dims", Ints{}}}), sgd(g));
  });
  EXPECT_NE(error_of(detached).find("no parameter that is to be trained has part in it"), std::string::npos)
      << error_of(detached);
}

TEST(Differentiate, FrozenParametersHaveNoGradient) {
  Graph g = of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId w = parameter(g, "w", {3}), frozen = g.add_parameter("frozen", {DType::f32, {3}}, false);
    g = train(g, r("loss", "sum", {r("", "mul", {r("", "mul", {x, w}), frozen})}, {{"dims", Ints{}}}), sgd(g));
  });
  ASSERT_EQ(g.optimizers[0].groups[0].parameters.size(), 2u) << "the optimizer has it all the same";
  g = prepared(std::move(g), "differentiate");
  ASSERT_EQ(g.gradients.size(), 1u);
  EXPECT_EQ(g.value(g.gradients[0].parameter).name, "w");
}

TEST(ClipGradients, RefusesWhatIsNoNorm) {
  for (const auto& [option, value] :
       {std::pair{"clip_grad_max_norm", -1.0}, {"clip_grad_max_norm", std::nan("")}, {"clip_grad_norm_type", 0.0}}) {
    Graph g = clipping(small_mlp());
    g.optimizers[0].groups[0].options[option] = value;
    EXPECT_NE(error_of(g).find(std::string("option ") + option + ": expected a positive number, found "),
              std::string::npos)
        << error_of(g);
  }
}

TEST(ClipGradients, LeavesGradientsWithoutElementsAlone) {
  Graph g = of([](Graph& graph, Recorder& r, ValueId x) {
    const ValueId none = parameter(graph, "none", {0, 3}), w = parameter(graph, "w", {1, 3});
    const ValueId sums = r("", "add",
                           {r("", "sum", {r("", "linear", {x, none})}, {{"dims", Ints{0, 1}}}),
                            r("", "sum", {r("", "linear", {x, w})}, {{"dims", Ints{0, 1}}})});
    graph = train(graph, sums, sgd(graph, 0));
  });
  g.optimizers[0].groups[0].options["clip_grad_norm_type"] = std::numeric_limits<double>::infinity();
  g.optimizers[0].groups[0].options["clip_grad_max_norm"] = 1;
  ir::run_passes(g, {});
  ASSERT_EQ(count(g, "clip_factor"), 1u);
  for (const ir::Node& n : g.nodes) EXPECT_TRUE(!n.is(ir::kClipFactor) || n.inputs.size() == 1);
}

TEST(AddOptimizerUpdates, RefusesUnknownKindsAndOptions) {
  Graph g = small_mlp();
  g.optimizers[0].kind = "sdg";
  EXPECT_NE(error_of(g).find("found 'sdg'"), std::string::npos) << error_of(g);
  g = small_mlp();
  g.optimizers[0].groups[0].options["momentun"] = 1;
  EXPECT_NE(error_of(g).find("has no option 'momentun'"), std::string::npos) << error_of(g);
}

TEST(AddOptimizerUpdates, RefusesNamesOfTheTrainingLoop) {
  Graph g = small_mlp();
  g.add_input("step", {DType::f32, {3}});
  EXPECT_NE(error_of(g).find("the name 'step' belongs to the training loop"), std::string::npos) << error_of(g);
}

// ---- size -----------------------------------------------------------------------------------------------------------

/// A chain of layers with shortcuts, and a wide sum: about `nodes` nodes.
Graph synthetic(int nodes) {
  Graph g;
  g.name = "Synthetic";
  Recorder r(g);
  ValueId x = g.add_input("x", {DType::f32, {8, 16}});
  const ValueId w = parameter(g, "w", {16, 16}), b = parameter(g, "b", {16});
  ValueId sum = x;
  for (int i = 0; i * 5 < nodes; ++i) {
    const std::string path = "model.block" + std::to_string(i);
    const ValueId y = r(path, "tanh", {r(path, "mul", {r(path, "linear", {x, w, b}), r.number(0.5)})});
    x = r(path, "add", {x, y});
    if (i % 7 == 0) sum = r(path, "maximum", {sum, x});
  }
  g.outputs = {sum, x};
  return g;
}

TEST(Pipeline, LargeGraphs) {
  Graph g = synthetic(20000);
  const std::size_t before = g.nodes.size();
  const auto start = std::chrono::steady_clock::now();
  for (const ir::PassTiming& t :
       ir::run_passes(g, {.disabled = {}, .from = {}, .to = {}, .dump_directory = {}, .verify = false}))
    std::cout << "  " << t.name << ": " << t.milliseconds << " ms, " << t.nodes_before << " -> " << t.nodes_after
              << " nodes\n";
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::cout << "  " << before << " nodes: " << elapsed.count() << " s\n";
  const auto write_start = std::chrono::steady_clock::now();
  const std::string text = ir::to_json(g);
  const auto read_start = std::chrono::steady_clock::now();
  const Graph again = ir::from_json(text, "large");
  const auto end = std::chrono::steady_clock::now();
  std::cout << "  JSON of " << text.size() / 1000000 << " MB: written in "
            << std::chrono::duration<double>(read_start - write_start).count() << " s, read in "
            << std::chrono::duration<double>(end - read_start).count() << " s\n";
  EXPECT_LT(g.nodes.size(), before);
  EXPECT_EQ(again.nodes.size(), g.nodes.size());
  ir::verify(g);
}

}  // namespace
}  // namespace graven::tests

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--bless") {
      std::cerr << "unknown argument " << argv[i] << "; --bless rewrites the texts\n";
      return 2;
    }
    graven::tests::bless = true;
  }
  return RUN_ALL_TESTS();
}
