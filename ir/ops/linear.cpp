#include "ir/ops/linear_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_linear(InferContext& c) {
  const TensorType& x = c.input(0);
  c.require(!x.shape.empty(), [&] { return "the input must have at least one dimension, got " + x.to_string(); });
  const ops::LinearSizes s = ops::linear_weight(c, 1);
  c.require(x.shape.back() == Dim(s.k), [&] {
    return "weight expects " + ops::count_of(s.k, "feature") + ", input has " + x.shape.back().to_string();
  });
  if (c.has_input(2))
    c.require(c.input(2).shape == Shape{s.n},
              [&] { return "bias must be " + describe(x.dtype, {s.n}) + ", got " + c.input(2).to_string(); });
  TensorType y = x;
  y.shape[y.shape.rank() - 1] = s.n;
  c.output(y.dtype, y.shape);
}

static void gradient_linear(GradientBuilder& g) {
  const ValueId dy = g.output_gradient();
  if (g.needs(0)) g.set(0, g.call("linear_backward_input", {dy, g.input(1)}));
  const bool bias = g.has_input(2) && g.needs(2);
  if (g.needs(1) || bias) {
    const std::vector<ValueId> grads = g.call_many("linear_backward_weight", {dy, g.input(0)});
    g.set(1, grads[0]);
    if (bias) g.set(2, grads[1]);
  }
}

static Cost cost_linear(const NodeView& node) {
  return {.flops = 2.0 * static_cast<double>(node.output().shape.numel().maximum()) *
                   static_cast<double>(node.input(0).shape.back().maximum())};
}

static std::vector<TestCase> cases_linear() {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape x, Shape w, bool bias) {
    TestCase c{.note = std::move(note), .inputs = {ops::random(dtype, std::move(x)), ops::random(dtype, w)}};
    if (bias) c.inputs.push_back(ops::random(dtype, {w[0]}));
    cases.push_back(std::move(c));
  };
  add("plain", DType::f32, {5, 7}, {3, 7}, true);
  add("no bias", DType::f32, {5, 7}, {3, 7}, false);
  add("panels", DType::f32, {33, 50}, {48, 50}, true);
  add("ragged", DType::f32, {13, 19}, {37, 19}, true);
  add("one row", DType::f32, {1, 64}, {10, 64}, true);
  add("vector", DType::f32, {6}, {4, 6}, true);
  add("rank 3", DType::f32, {2, 3, 5}, {4, 5}, true);
  add("no rows", DType::f32, {0, 5}, {4, 5}, true);
  add("no features", DType::f32, {2, 0}, {4, 0}, true);
  for (DType d : ops::kFloats) add(std::string(name(d)), d, {4, 6}, {3, 6}, true);
  return cases;
}

/// By rows; by columns, each rank some features of the result; by terms of the sum over the features of x, of which the
/// bias is one.
static void layouts_of_linear(RankRules& rules) {
  const std::int64_t last = static_cast<std::int64_t>(rules.input(0).rank()) - 1;
  for (std::int64_t d = 0; d < last; ++d) ops::split_alike(rules, d, {0}, {0});
  ops::product_layouts(rules, last);
}

const OpDef kLinear{
    .name = "linear",
    .doc = "y[..., n] = x[..., k] w[n, k]^T + bias[n]: PyTorch's linear. Leading dimensions of x are rows.",
    .inputs = {{"x"}, {"weight", InputRole::weight}, ops::kOptionalBias},
    .infer = infer_linear,
    .gradient = gradient_linear,
    .rank_layouts = layouts_of_linear,
    .cost = cost_linear,
    .amp = AmpClass::white,
    .forms = {{},
              {.attributes = {{"packed", true}, {"in_features", std::int64_t{4}}, {"out_features", std::int64_t{4}}},
               .shapes = {{4, 4}, ops::packed_linear_weight(DType::bf16, 4, 4)}}},
    .cases = cases_linear,
};

}  // namespace graven::ir
