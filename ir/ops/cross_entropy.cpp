#include "ir/ops/cross_entropy_shared.h"

namespace graven::ir {

static void infer_cross_entropy(InferContext& c) {
  const TensorType& logits = c.input(0);
  ops::require_floating(c, 0);
  ops::require_rank(c, 0, 2, "logits");
  ops::check_labels(c, 1, logits.shape[0]);
  ops::fixed(c, logits.shape[1], "the number of classes");
  c.output(logits.dtype, ops::reduction_of(c) == 0 ? Shape{logits.shape[0]} : Shape{});
  c.output(logits.dtype, logits.shape);
}

static void gradient_cross_entropy(GradientBuilder& g) {
  ValueId gradient = kNone;
  if (g.output_gradient() != kNone)
    gradient = g.call("cross_entropy_backward", {g.output_gradient(), g.output(1), g.input(1)}, {{"reduction", g.attributes().at("reduction")}});
  if (g.output_gradient(1) != kNone) {
    const ValueId through = g.call("softmax_backward", {g.output_gradient(1), g.output(1)}, {{"dim", std::int64_t{1}}});
    gradient = gradient == kNone ? through : g.call("add", {gradient, through});
  }
  g.set(0, gradient);
}

extern const OpDef kCrossEntropy;
const OpDef kCrossEntropy{
    .name = "cross_entropy",
    .doc =
        "loss = the mean (or sum, or list) over rows of -ln(probabilities[row, labels[row]]), probabilities = softmax(logits) along the classes: "
        "PyTorch's cross_entropy with class indices. Labels must lie in [0, classes).",
    .inputs = {{"logits"}, {"labels"}},
    .attributes = {ops::loss_reduction_attribute()},
    .infer = infer_cross_entropy,
    .gradient = gradient_cross_entropy,
    .kernel = [](const NodeView& node) { return ops::cross_entropy_call(node, "cross_entropy", node.input(0).shape); },
    .cost = [](const NodeView& node) { return Cost{.flops = 6 * static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, std::int64_t rows, std::int64_t classes, std::string reduction) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, {rows, classes}, -3, 3), ops::random(DType::i64, {rows}, 0, static_cast<double>(classes))},
                             .attributes = {{"reduction", std::move(reduction)}}});
          };
          add("mean", DType::f32, 6, 10, "mean");
          add("sum", DType::f32, 6, 10, "sum");
          add("none", DType::f32, 6, 10, "none");
          add("one class", DType::f32, 3, 1, "mean");
          add("many classes", DType::f32, 3, 77, "mean");
          for (DType d : ops::kFloats) add(std::string(name(d)), d, 4, 5, "mean");
          return cases;
        },
};

}  // namespace graven::ir
