#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_gradient_norm(InferContext& c) {
  c.require(c.input_count() > 0, "expects at least one tensor");
  c.require(c.attributes.number("norm_type") > 0, "'norm_type' must be positive");
  c.output(c.input(0).dtype, {});
}

/// A product and a sum for each element.
static Cost cost_gradient_norm(const NodeView& node) {
  double elements = 0;
  for (std::size_t i = 0; i < node.input_count(); ++i)
    elements += static_cast<double>(node.input(i).shape.numel().maximum());
  return {.flops = 2 * elements};
}

static std::vector<TestCase> cases_of_gradient_norm() {
  const auto tensors = [](DType dtype) {
    std::vector<TestCase::Input> inputs;
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{37}, Shape{0, 4}, Shape{1}, Shape{2, 19, 700}})
      inputs.push_back(ops::random(dtype, shape));
    return inputs;
  };
  std::vector<TestCase> cases;
  for (const double order : {2.0, 1.0, 3.0, 0.5, std::numeric_limits<double>::infinity()})
    cases.push_back({.note = "order " + ops::text_of(order),
                     .inputs = tensors(DType::f32),
                     .attributes = {{"norm_type", order}},
                     .gradient = false});
  cases.push_back({.note = "no elements",
                   .inputs = {ops::random(DType::f32, {0}), ops::random(DType::f32, {3, 0})},
                   .gradient = false});
  for (const DType d : {DType::f64, DType::f16, DType::bf16})
    cases.push_back({.note = std::string(name(d)), .inputs = tensors(d), .gradient = false});
  return cases;
}

const OpDef kGradientNorm{
    .name = "gradient_norm",
    .doc =
        "(sum of |x|^norm_type over all elements of all tensors)^(1 / norm_type), or the largest |x|: what a stage of "
        "a "
        "pipeline has to say for the norm of all gradients, which is clip_factor's of these norms. Added up in double. "
        "A NaN makes it NaN.",
    .inputs = {{.name = "xs", .variadic = true}},
    .attributes = {{"norm_type", AttributeType::number, 2.0, "the order, above 0; infinity: the largest magnitude"}},
    .infer = infer_gradient_norm,
    .cost = cost_gradient_norm,
    .amp = AmpClass::black,
    .cases = cases_of_gradient_norm,
};

}  // namespace graven::ir
