#include "ir/ops/resample_shared.h"

namespace graven::ir {

static void infer_resample_backward(InferContext& c) {
  Shape x = c.input(0).shape;
  c.require(!x.empty(), "a tensor of rank 0 cannot be resampled");
  const auto dim = static_cast<std::size_t>(ops::normalize_dim(c, "dim", x.rank()));
  const Shape& from = c.attributes.shape("input_size");
  c.require(from.rank() == 1, [&] { return "'input_size' must have one dimension, got " + from.to_string(); });
  x[dim] = from[0];
  const Shape y = ops::infer_resample(c, x);
  c.require(c.input(0).shape == y, "dy must be " + describe(c.input(0).dtype, y) + ", got " + c.input(0).to_string());
  c.output(c.input(0).dtype, x);
}

static void gradient_resample_backward(GradientBuilder& g) {
  Attributes a = g.attributes();
  a.erase("input_size");
  g.set(0, g.call("resample", {g.output_gradient()}, a));
}

const OpDef kResampleBackward{
    .name = "resample_backward",
    .doc = "dx, the gradient of resample: each dy is added to the elements that it was made of, by their weights.",
    .inputs = {{"dy"}},
    .attributes = ops::join(ops::resample_attributes(),
                            {{"input_size", AttributeType::shape, {}, "of x along dim, one dimension"}}),
    .infer = infer_resample_backward,
    .gradient = gradient_resample_backward,
    .layout = {ImageLayout::Rule::moves},
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 3.0 * static_cast<double>(node.input(0).shape.numel().maximum())};
        },
    .forms = {{.attributes = {{"dim", std::int64_t{1}},
                              {"size", Shape{8}},
                              {"mode", std::string("linear")},
                              {"input_size", Shape{4}}},
               .shapes = {{4, 8}}}},
    .cases =
        [] {
          // The gradient rule of resample goes through the others.
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape dy, std::int64_t input_size, const char* mode) {
            const std::int64_t size = dy[1].value();
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, std::move(dy))},
                             .attributes = {{"dim", std::int64_t{1}},
                                            {"size", Shape{size}},
                                            {"mode", std::string(mode)},
                                            {"input_size", Shape{input_size}}}});
          };
          add("linear", DType::f32, {2, 8, 3}, 4, "linear");
          add("from one", DType::f32, {2, 5, 1}, 1, "linear");
          add("no lines", DType::f32, {0, 8, 3}, 4, "nearest");
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {2, 5, 3}, 7, "cubic");
          return cases;
        },
};

}  // namespace graven::ir
