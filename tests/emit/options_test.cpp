// What a graph's options change in the source that is emitted: order, placement, fusions, recomputation.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "codegen/emit/project.h"
#include "codegen/plan/arena.h"
#include "ir/diagnostic.h"
#include "tests/passes/graphs.h"

namespace graven::tests {
namespace {

std::string model_of(Graph graph, std::string_view key = {}, ir::Attribute value = true) {
  if (!key.empty()) graph.config[std::string(key)] = std::move(value);
  return codegen::render_project(graph, {.name = "options", .format = false}).at("model.cpp");
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

/// The calls of these kernels, each by the first letter of its line's kernel, in their order.
std::string order_of(const std::string& text, const std::map<std::string, char>& kernels) {
  std::map<std::size_t, char> found;
  for (const auto& [kernel, letter] : kernels)
    for (std::size_t at = text.find("\n  " + kernel); at != std::string::npos; at = text.find("\n  " + kernel, at + 1))
      found[at] = letter;
  std::string letters;
  for (const auto& [at, letter] : found) letters += letter;
  return letters;
}

/// m = amax(z), short work; a = x wa; b = x wb; c = softmax(a); d = cumsum(b); e = c we.
Graph branches() {
  Graph g;
  g.name = "Branches";
  const ValueId x = g.add_input("x", {DType::f32, {64, 64}});
  const ValueId z = g.add_input("z", {DType::f32, {4, 4}});
  std::map<std::string, ValueId> weights;
  for (const char* name : {"wa", "wb", "we"}) weights[name] = parameter(g, name, {64, 64});
  Recorder record(g);
  const ValueId m = record("m", "amax", {z}, {{"dims", Ints{0, 1}}});
  const ValueId a = record("a", "linear", {x, weights["wa"]}), b = record("b", "linear", {x, weights["wb"]});
  const ValueId c = record("c", "softmax", {a}, {{"dim", std::int64_t{1}}});
  const ValueId d = record("d", "cumsum", {b}, {{"dim", std::int64_t{1}}});
  g.outputs = {m, d, record("e", "linear", {c, weights["we"]})};
  return g;
}

TEST(GraphOptions, StraightenChoosesTheOrder) {
  const std::map<std::string, char> kernels = {{"reduce_max", 'm'}, {"linear", 'l'}, {"softmax", 's'}, {"cumsum", 'c'}};
  const std::pair<const char*, const char*> expected[] = {{"memory_first", "mlsllc"},
                                                          {"disable", "mllscl"},
                                                          {"speed_first", "mlsllc"},
                                                          {"overlap", "lsllcm"},
                                                          {"delay_short", "llsclm"}};
  for (const auto& [mode, order] : expected)
    EXPECT_EQ(order_of(model_of(branches(), ir::kStraightenAlgorithm, std::string(mode)), kernels), order) << mode;
  EXPECT_EQ(model_of(branches()), model_of(branches(), ir::kStraightenAlgorithm, std::string("memory_first")));
  EXPECT_THROW(model_of(branches(), ir::kStraightenAlgorithm, std::string("sideways")), UserError);
}

TEST(GraphOptions, CompressMemorySearchesOn) {
  // Lives that no placement in their own order fits well.
  std::uint64_t random = 5;
  const auto draw = [&](std::uint64_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((random >> 33) % below);
  };
  int better = 0;
  for (int trial = 0; trial < 12; ++trial) {
    std::vector<codegen::Buffer> buffers;
    for (int i = 0; i < 60; ++i) {
      const auto first = static_cast<std::int32_t>(draw(40));
      codegen::Buffer& b = buffers.emplace_back();
      b.bytes = 64 * (1 + draw(40));
      b.first = first;
      b.last = first + static_cast<std::int32_t>(draw(20));
    }
    const std::int64_t plain = codegen::place_buffers(buffers), compressed = codegen::place_buffers(buffers, true);
    EXPECT_LE(compressed, plain);
    EXPECT_GE(compressed, codegen::arena_lower_bound(buffers));
    better += compressed < plain ? 1 : 0;
  }
  EXPECT_GT(better, 0);
}

TEST(GraphOptions, ModelUpdateFusionIsOneCall) {
  const std::string call = "update_parameters<";
  EXPECT_EQ(count(model_of(mlp_training()), call), 1u);
  EXPECT_EQ(count(model_of(mlp_training(), ir::kNoModelUpdateFusion), call), 4u);
  Graph clipped = mlp_training();
  clipped.optimizers[0].groups[0].options.insert({{"clip_grad_max_norm", 1}, {"clip_grad_norm_type", 2}});
  // The factor of the norm is the update's, or a product of its own for each gradient.
  const std::string together = model_of(clipped), apart = model_of(clipped, ir::kNoModelUpdateFusion);
  EXPECT_NE(together, apart);
  EXPECT_EQ(count(together, "mul"), 0u) << together;
  EXPECT_GT(count(apart, "mul"), 0u);
}

TEST(GraphOptions, AddToOutputFusionIsAnEpilogue) {
  const std::string with = model_of(residual_inference()),
                    without = model_of(residual_inference(), ir::kNoAddToOutputFusion);
  EXPECT_GT(count(with, "conv2d<add"), count(without, "conv2d<add"));
  EXPECT_EQ(count(without, "conv2d<add"), 0u) << without;
}

TEST(GraphOptions, CastScaleFusionIsOneLoop) {
  Graph g;
  g.name = "Scale";
  const ValueId x = g.add_input("x", {DType::f32, {64, 64}});
  Recorder record(g);
  const ValueId scaled = record("", "mul", {record("", "exp", {x}), record.number(0.3)});
  g.outputs = {record("", "tanh", {scaled})};
  EXPECT_EQ(count(model_of(g), "elementwise<"), 1u);
  EXPECT_EQ(count(model_of(g, ir::kNoCastScaleFusion), "elementwise<"), 3u);
}

TEST(GraphOptions, MeasuredConvolutionsStandInTheConfigsOfCuda) {
  const auto configs_of = [](const char* target, bool measured) {
    Graph g;
    g.name = "Convolutions";
    const ValueId x = g.add_input("x", {DType::f32, {2, 3, 8, 8}}), w = parameter(g, "w", {4, 3, 3, 3}),
                  fc = parameter(g, "fc", {5, 4});
    Recorder record(g);
    const ValueId pooled = record("pooled", "mean", {record("y", "conv2d", {x, w})}, {{"dims", Ints{2, 3}}});
    g.outputs = {record("z", "linear", {pooled, fc})};
    if (measured) g.config[std::string(ir::kMeasuredConvolutions)] = true;
    return codegen::render_project(g, {.name = "convolutions", .target = target, .format = false}).at("configs.h");
  };
  EXPECT_EQ(count(configs_of("cuda", true), ".measured = true"), 1u) << configs_of("cuda", true);
  EXPECT_EQ(count(configs_of("cuda", false), "measured"), 0u);
  EXPECT_EQ(configs_of("cpu", true), configs_of("cpu", false)) << "the CPU's kernels are chosen by shapes alone";
}

TEST(GraphOptions, Tf32StandsInTheConfigsOfCudasProducts) {
  const auto configs_of = [](Graph g, const char* target, bool allowed) {
    if (allowed) g.config[std::string(ir::kAllowTf32)] = true;
    return codegen::render_project(g, {.name = "products", .target = target, .format = false}).at("configs.h");
  };
  for (const Graph& g : {mlp_training(64, 256), wide_inference()}) {
    EXPECT_EQ(count(configs_of(g, "cuda", false), "tf32"), 0u);
    EXPECT_EQ(configs_of(g, "cpu", true), configs_of(g, "cpu", false)) << "processors do not round";
  }
  const std::string products = configs_of(mlp_training(64, 256), "cuda", true);
  EXPECT_EQ(count(products, ".tf32 = true"), count(products, "constexpr linear_config")) << products;
  EXPECT_GT(count(configs_of(wide_inference(), "cuda", true), ".tf32 = true"), 0u);
}

TEST(GraphOptions, WhatIsRecomputedStandsInBackwardUnderItsBanner) {
  const Graph graph = mlp_training(256, 64);
  Graph asks = graph;
  asks.checkpoints = {{"model", 0}};
  for (ir::Node& node : asks.nodes)
    for (ir::Origin& o : node.origins)
      if (o.module.starts_with("model")) o.checkpoint = 1;
  const std::string plain = model_of(graph), text = model_of(asks);
  EXPECT_EQ(count(plain, "recompute"), 0u);
  EXPECT_EQ(count(text, "---- recompute "), 1u) << text;
  EXPECT_GT(text.find("---- recompute "), text.find("::backward() const"));
  EXPECT_EQ(count(text, "  linear"), count(plain, "  linear") + 1);
}

}  // namespace
}  // namespace graven::tests
