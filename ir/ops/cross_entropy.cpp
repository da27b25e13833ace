#include "ir/ops/cross_entropy_shared.h"

namespace graven::ir {

static void infer_cross_entropy(InferContext& c) {
  const TensorType& logits = c.input(0);
  ops::require_rank(c, 0, 2, "logits");
  ops::check_labels(c, 1, logits.shape[0]);
  ops::check_cross_entropy(c, 2, logits);
  c.output(logits.dtype, ops::reduction_of(c) == 0 ? Shape{logits.shape[0]} : Shape{});
  c.output(logits.dtype, logits.shape);
}

static void gradient_cross_entropy(GradientBuilder& g) {
  ValueId gradient = kNone;
  if (g.output_gradient() != kNone)
    gradient =
        g.call("cross_entropy_backward",
               {g.output_gradient(), g.output(1), g.input(1), g.has_input(2) ? g.input(2) : kNone}, g.attributes());
  if (g.output_gradient(1) != kNone) {
    const ValueId through = g.call("softmax_backward", {g.output_gradient(1), g.output(1)}, {{"dim", std::int64_t{1}}});
    gradient = gradient == kNone ? through : g.call("add", {gradient, through});
  }
  g.set(0, gradient);
}

const OpDef kCrossEntropy{
    .name = "cross_entropy",
    .doc =
        "With p = softmax(logits) of a row, y its label, w = weight (1 when absent) and e = label_smoothing: -(1 - e) "
        "w_y ln p_y - e / classes * the "
        "sum "
        "over classes of w_c ln p_c; the list over rows, its sum, or that divided by the sum of w_y. PyTorch's "
        "cross_entropy with class indices; "
        "rows with "
        "the label ignore_index do not count, any other label outside [0, classes) is an error when it runs. Outputs: "
        "loss, p. weight gets no "
        "gradient.",
    .inputs = {{"logits"}, {.name = "labels", .dtype = DType::i64, .classes_of = 0}, ops::kOptionalWeight},
    .attributes = ops::cross_entropy_attributes(),
    .outputs = {"loss", "probabilities"},
    .infer = infer_cross_entropy,
    .gradient = gradient_cross_entropy,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 6 * static_cast<double>(node.input(0).shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .forms = {{.shapes = {{4, 4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, std::int64_t rows, std::int64_t classes, std::string reduction,
                         bool weighted = false, double smoothing = 0, std::int64_t ignored = -100) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(d, {rows, classes}, -3, 3),
                            ops::random(DType::i64, {rows}, 0, static_cast<double>(classes)),
                            weighted ? ops::random(d, {classes}, 0.5, 2) : ops::absent()},
                 .attributes = {
                     {"reduction", std::move(reduction)}, {"ignore_index", ignored}, {"label_smoothing", smoothing}}});
          };
          add("mean", DType::f32, 6, 10, "mean");
          add("sum", DType::f32, 6, 10, "sum");
          add("none", DType::f32, 6, 10, "none");
          add("one class", DType::f32, 3, 1, "mean");
          add("many classes", DType::f32, 3, 77, "mean");
          add("weights", DType::f32, 6, 10, "mean", true);
          add("weights, none", DType::f32, 6, 10, "none", true);
          add("smoothing", DType::f32, 6, 10, "mean", false, 0.1);
          add("smoothing, weights and an ignored label", DType::f32, 9, 3, "mean", true, 0.3, 1);
          add("smoothing, weights and an ignored label, sum", DType::f32, 9, 3, "sum", true, 0.3, 1);
          for (const char* reduction : {"mean", "sum", "none"})
            add("no rows, " + std::string(reduction), DType::f32, 0, 5, reduction);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, 4, 5, "mean");
          return cases;
        },
};

}  // namespace graven::ir
