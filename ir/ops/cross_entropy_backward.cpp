#include "ir/ops/cross_entropy_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_cross_entropy_backward(InferContext& c) {
  const TensorType& probabilities = c.input(1);
  ops::require_rank(c, 1, 2, "probabilities");
  ops::check_labels(c, 2, probabilities.shape[0]);
  ops::check_cross_entropy(c, 3, probabilities);
  const TensorType loss{probabilities.dtype, ops::reduction_of(c) == 0 ? Shape{probabilities.shape[0]} : Shape{}};
  c.require(c.input(0) == loss, "dloss must be " + loss.to_string() + ", got " + c.input(0).to_string());
  c.output(probabilities.dtype, probabilities.shape);
}

static std::vector<ValueId> gradient_of_own_classes(Graph& graph, const Node& node, const std::vector<ValueId>& inputs,
                                                    std::int64_t ranks) {
  const ops::RankNodes b(graph, node);
  const ValueId probabilities = inputs[1], labels = inputs[2];
  const Shape p = b.shape(probabilities), column{p[0], 1};
  const DType dtype = b.dtype(probabilities);
  const std::int64_t ignored = node.attributes.integer("ignore_index");
  const auto [own, mine] = b.index_on_rank(labels, p[1].value(), ranks, ignored);
  const ValueId counts = b.add(kNe, {labels, b.scalar(static_cast<double>(ignored), DType::i64)}, {}, "counts");
  ValueId scale = inputs[0];
  const std::string reduction = node.attributes.text("reduction");
  if (reduction == "mean") scale = b.add(kDiv, {scale, b.count(counts, dtype)}, {}, "scale");
  const ValueId of_row = b.add(kWhere, {counts, scale, b.scalar(0, dtype)}, {}, "scale_of_rows");
  const ValueId scales = b.add(kReshape, {of_row}, {{"shape", column}}, "scale_column");
  // Less one at the label.
  const ValueId classes =
      b.add(kArange, {}, {{"start", 0.0}, {"step", 1.0}, {"shape", Shape{p[1]}}, {"dtype", DType::i64}}, "classes");
  const ValueId at = b.add(kReshape, {own}, {{"shape", column}}, "own_column");
  const ValueId is_mine = b.add(kReshape, {mine}, {{"shape", column}}, "mine_column");
  const ValueId same = b.add(kEq, {classes, at}, {}, "same");
  const ValueId is_label = b.add(kLogicalAnd, {same, is_mine}, {}, "is_label");
  const ValueId less = b.add(kSub, {probabilities, b.scalar(1, dtype)}, {}, "less");
  const ValueId difference = b.add(kWhere, {is_label, less, probabilities}, {}, "difference");
  return {b.add(kMul, {difference, scales}, {}, "own")};
}

static void layouts_of_cross_entropy_backward(RankRules& rules) {
  if (rules.has_input(3) || rules.node().attributes().number("label_smoothing") != 0) return;
  RankLayouts way = rules.way();
  way.inputs[1] = way.outputs[0] = RankLayout::split(1);
  way.nodes = gradient_of_own_classes;
  rules.add(std::move(way));
}

const OpDef kCrossEntropyBackward{
    .name = "cross_entropy_backward",
    .doc =
        "dlogits[row, c] = scale * (p_c ((1 - e) w_y + e / classes * sum of w) - (c == y) (1 - e) w_y - e / classes * "
        "w_c) with the letters of "
        "cross_entropy; scale = dloss, divided by the sum of w_y for a mean; 0 in rows with the label ignore_index.",
    .inputs = {{"dloss"},
               {"probabilities"},
               {.name = "labels", .dtype = DType::i64, .classes_of = 1},
               ops::kOptionalWeight},
    .attributes = ops::cross_entropy_attributes(),
    .infer = infer_cross_entropy_backward,
    .rank_layouts = layouts_of_cross_entropy_backward,
    .amp = AmpClass::black,
    .forms = {{.shapes = {{}, {4, 4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, std::string reduction, bool weighted = false,
                         std::int64_t rows = 6) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(d, reduction == "none" ? Shape{rows} : Shape{}),
                            ops::random(d, {rows, 10}, 0, 1), ops::random(DType::i64, {rows}, 0, 10),
                            weighted ? ops::random(d, {10}, 0.5, 2) : ops::absent()},
                 .attributes = {{"reduction", std::move(reduction)}, {"label_smoothing", weighted ? 0.2 : 0.0}},
                 .gradient = false});
          };
          for (const char* reduction : {"mean", "sum", "none"}) add(reduction, DType::f32, reduction);
          add("weights and smoothing", DType::f32, "mean", true);
          add("one row", DType::f32, "mean", false, 1);
          add("no rows", DType::f32, "sum", false, 0);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, "mean");
          return cases;
        },
};

}  // namespace graven::ir
