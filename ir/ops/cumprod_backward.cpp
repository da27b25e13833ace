#include "ir/ops/scan_shared.h"

namespace graven::ir {

static void infer_cumprod_backward(InferContext& c) {
  c.require(c.input(0) == c.input(1),
            "x must be " + c.input(0).to_string() + " like dy, got " + c.input(1).to_string());
  ops::infer_scan(c);
}

const OpDef kCumprodBackward{
    .name = "cumprod_backward",
    .doc =
        "dx, the gradient of cumprod: dx[k] is the sum over j >= k of dy[j] times the product of x[0..j] without x[k]. "
        "No division: x may be 0.",
    .inputs = {{"dy"}, {"x"}},
    .attributes = {ops::scan_dim()},
    .infer = infer_cumprod_backward,
    .layout = {ImageLayout::Rule::moves},
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases =
        [] {
          auto cases = ops::scan_cases(2, false);
          cases.push_back({.note = "zeros",
                           .inputs = {ops::random(DType::f32, {2, 5}), ops::random(DType::f32, {2, 5}, 0, 0)},
                           .attributes = {{"dim", std::int64_t{1}}},
                           .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
