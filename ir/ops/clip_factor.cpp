#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_clip_factor(InferContext& c) {
  c.require(c.input_count() > 0, "expects at least one tensor");
  c.require(c.attributes.number("max_norm") >= 0, "'max_norm' must not be negative");
  c.require(c.attributes.number("norm_type") > 0, "'norm_type' must be positive");
  c.output(c.input(0).dtype, {});
}

/// A product and a sum for each element.
static Cost cost_clip_factor(const NodeView& node) {
  double elements = 0;
  for (std::size_t i = 0; i < node.input_count(); ++i)
    elements += static_cast<double>(node.input(i).shape.numel().maximum());
  return {.flops = 2 * elements};
}

static std::vector<TestCase> cases_of_clip_factor() {
  const auto tensors = [](DType dtype) {
    std::vector<TestCase::Input> inputs;
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{37}, Shape{0, 4}, Shape{1}, Shape{2, 19, 700}})
      inputs.push_back(ops::random(dtype, shape));
    return inputs;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<TestCase> cases;
  for (const double order : {2.0, 1.0, 3.0, 0.5, infinity})
    cases.push_back({.note = "order " + ops::text_of(order),
                     .inputs = tensors(DType::f32),
                     .attributes = {{"max_norm", 0.75}, {"norm_type", order}},
                     .gradient = false});
  cases.push_back(
      {.note = "small enough", .inputs = tensors(DType::f32), .attributes = {{"max_norm", 1e6}}, .gradient = false});
  cases.push_back(
      {.note = "to nothing", .inputs = tensors(DType::f32), .attributes = {{"max_norm", 0.0}}, .gradient = false});
  cases.push_back({.note = "no elements",
                   .inputs = {ops::random(DType::f32, {0}), ops::random(DType::f32, {3, 0})},
                   .attributes = {{"max_norm", 2.0}},
                   .gradient = false});
  std::vector<TestCase::Input> many;  // more than a launch takes
  for (std::int64_t i = 0; i < 60; ++i) many.push_back(ops::random(DType::f32, {i + 1}));
  cases.push_back({.note = "many", .inputs = many, .attributes = {{"max_norm", 3.0}}, .gradient = false});
  for (const DType d : {DType::f64, DType::f16, DType::bf16})
    cases.push_back(
        {.note = std::string(name(d)), .inputs = tensors(d), .attributes = {{"max_norm", 0.75}}, .gradient = false});
  return cases;
}

const OpDef kClipFactor{
    .name = "clip_factor",
    .doc =
        "min(max_norm / (norm + 1e-6), 1), norm the (sum of |x|^norm_type over all elements of all tensors)^(1 / "
        "norm_type), or the largest |x|: what torch.nn.utils.clip_grad_norm_ multiplies gradients by. Added up in "
        "double. A NaN makes it NaN.",
    .inputs = {{.name = "xs", .variadic = true}},
    .attributes = {{"max_norm", AttributeType::number, std::nullopt, "what the norm may be, 0 or more"},
                   {"norm_type", AttributeType::number, 2.0, "the order, above 0; infinity: the largest magnitude"},
                   {"over_ranks", AttributeType::boolean, false, "each rank has its shards of the tensors alone"}},
    .infer = infer_clip_factor,
    .cost = cost_clip_factor,
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"max_norm", 1.0}}}},
    .cases = cases_of_clip_factor,
};

}  // namespace graven::ir
