#include "ir/ops/linear_shared.h"

namespace graven::ir {

static void infer_pack_linear_weight(InferContext& c) {
  ops::require_rank(c, 0, 2, "weight");
  const std::int64_t n = ops::fixed(c.input(0).shape[0], "out_features"),
                     k = ops::fixed(c.input(0).shape[1], "in_features");
  const DType dtype = c.input(0).dtype;
  c.output(dtype, c.attributes.flag("transposed") ? ops::packed_linear_weight(dtype, k, n)
                                                  : ops::packed_linear_weight(dtype, n, k));
}

const OpDef kPackLinearWeight{
    .name = "pack_linear_weight",
    .doc =
        "Panels of 16 columns of w[n, k] for linear: packed[n / 16][k][16], zero-padded; transposed, for "
        "linear_backward_input: "
        "packed[k / 16][n][16]. Of bf16 in tiles: kernels/cpu/bf16_gemm.h.",
    .inputs = {{"weight", InputRole::weight}},
    .dtypes = {DType::f32, DType::bf16},
    .attributes = {{"transposed", AttributeType::boolean, false, "for products with w itself"}},
    .infer = infer_pack_linear_weight,
    .lowered = true,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::black,
    .packs = true,
    .forms = {{}, {.attributes = {{"transposed", true}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const bool transposed : {false, true})
            for (const Shape& w : {Shape{16, 5}, Shape{3, 7}, Shape{37, 33}, Shape{0, 4}, Shape{1, 1}})
              cases.push_back({.note = w.to_string() + (transposed ? " transposed" : ""),
                               .inputs = {ops::random(DType::f32, w)},
                               .attributes = {{"transposed", transposed}},
                               .gradient = false});
          cases.push_back(
              {.note = "bf16", .inputs = {ops::random(DType::bf16, {37, 33})}, .attributes = {}, .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
