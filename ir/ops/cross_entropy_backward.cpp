#include "ir/ops/cross_entropy_shared.h"

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
