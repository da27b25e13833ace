#include "ir/ops/cross_entropy_shared.h"
#include "ir/ops/rank_shared.h"

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

/// Each rank has some of the classes: the largest logit, the sum of the exponentials and the label's logit are of all.
static std::vector<ValueId> cross_entropy_of_own_classes(Graph& graph, const Node& node,
                                                         const std::vector<ValueId>& inputs, std::int64_t ranks) {
  const ops::RankNodes b(graph, node);
  const ValueId logits = inputs[0], labels = inputs[1];
  const Shape x = b.shape(logits), column{x[0], 1};
  const DType dtype = b.dtype(logits);
  const std::int64_t ignored = node.attributes.integer("ignore_index");
  const auto [own, mine] = b.index_on_rank(labels, x[1].value(), ranks, ignored);
  const Ints classes{1}, of_ranks{0};
  // Of all ranks' largest ones the largest.
  const ValueId own_largest = b.add(kAmax, {logits}, {{"dims", classes}, {"keepdim", false}}, "own_largest");
  const ValueId row = b.add(kReshape, {own_largest}, {{"shape", Shape{1, x[0]}}}, "own_largest_row");
  const ValueId all = b.convert(row, RankLayout::split(0), {}, ranks, "largest_of_ranks");
  const ValueId largest = b.add(kAmax, {all}, {{"dims", of_ranks}, {"keepdim", false}}, "largest");
  const ValueId less = b.add(kReshape, {largest}, {{"shape", column}}, "largest_column");
  const ValueId shifted = b.add(kSub, {logits, less}, {}, "shifted");
  const ValueId powers = b.add(kExp, {shifted}, {}, "powers");
  const ValueId own_sum = b.add(kSum, {powers}, {{"dims", classes}, {"keepdim", false}}, "own_sum");
  const ValueId sum = b.convert(own_sum, RankLayout::partial_sum(), {}, ranks, "sum");
  const ValueId over = b.add(kReshape, {sum}, {{"shape", column}}, "sum_column");
  const ValueId probabilities = b.add(kDiv, {powers, over}, {}, "probabilities");
  // The logit of the label is one rank's.
  const ValueId at = b.add(kReshape, {own}, {{"shape", column}}, "own_column");
  const ValueId found = b.add(kGather, {shifted, at}, {{"dim", std::int64_t{1}}}, "found");
  const ValueId flat = b.add(kReshape, {found}, {{"shape", Shape{x[0]}}}, "found_row");
  const ValueId term = b.add(kWhere, {mine, flat, b.scalar(0, dtype)}, {}, "own_label");
  const ValueId label = b.convert(term, RankLayout::partial_sum(), {}, ranks, "label");
  const ValueId log_sum = b.add(kLog, {sum}, {}, "log_sum");
  const ValueId loss = b.add(kSub, {log_sum, label}, {}, "losses");
  const ValueId counts = b.add(kNe, {labels, b.scalar(static_cast<double>(ignored), DType::i64)}, {}, "counts");
  const ValueId losses = b.add(kWhere, {counts, loss, b.scalar(0, dtype)}, {}, "losses_that_count");
  if (node.attributes.text("reduction") == "none") return {losses, probabilities};
  const ValueId total = b.add(kSum, {losses}, {{"dims", of_ranks}, {"keepdim", false}}, "total");
  if (node.attributes.text("reduction") == "sum") return {total, probabilities};
  return {b.add(kDiv, {total, b.count(counts, dtype)}, {}, "mean"), probabilities};
}

/// By classes, where all of them have one weight.
static void layouts_of_cross_entropy(RankRules& rules) {
  if (rules.has_input(2) || rules.node().attributes().number("label_smoothing") != 0) return;
  RankLayouts way = rules.way();
  way.inputs[0] = RankLayout::split(1);
  way.outputs[1] = RankLayout::split(1);
  way.nodes = cross_entropy_of_own_classes;
  // The largest logits of all, and two sums.
  const double ranks = static_cast<double>(rules.ranks());
  way.bytes = static_cast<double>(rules.input(0)[0].maximum()) *
              static_cast<double>(size_of(rules.node().input(0).dtype)) * (ranks - 1) * (1 + 4 / ranks);
  rules.add(std::move(way));
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
    .rank_layouts = layouts_of_cross_entropy,
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
