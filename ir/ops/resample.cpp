#include "ir/ops/resample_shared.h"

namespace graven::ir {

static void gradient_resample(GradientBuilder& g) {
  Attributes a = g.attributes();
  const Shape& x = g.type(g.input(0)).shape;
  a.set("input_size", Shape{x[static_cast<std::size_t>(a.integer("dim"))]});
  g.set(0, g.call("resample_backward", {g.output_gradient()}, a));
}

const OpDef kResample{
    .name = "resample",
    .doc =
        "y has `size` elements along dim where x has others: nearest, linear or cubic (Keys 1981, a = -3/4) "
        "interpolation, or the mean over each "
        "element's area (adaptive average pooling). PyTorch's interpolate and adaptive_avg_pool, one dimension at a "
        "time. Element j of y lies at "
        "(j + 1/2) scale - 1/2 in x, or at j (in - 1) / (size - 1) with align_corners; nearest takes floor(j scale), "
        "nearest-exact floor((j + 1/2) "
        "scale).",
    .inputs = {{"x"}},
    .attributes = ops::resample_attributes(),
    .infer = [](InferContext& c) { c.output(c.input(0).dtype, ops::infer_resample(c, c.input(0).shape)); },
    .gradient = gradient_resample,
    .layout = {ImageLayout::Rule::moves},
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 3.0 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .forms = {{.attributes = {{"dim", std::int64_t{1}}, {"size", Shape{8}}, {"mode", std::string("linear")}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType dtype, Shape x, std::int64_t dim, std::int64_t size,
                         std::string_view mode, bool align = false, double scale = 0) {
            cases.push_back({.note = note + ", " + std::string(mode),
                             .inputs = {ops::random(dtype, std::move(x))},
                             .attributes = {{"dim", dim},
                                            {"size", Shape{size}},
                                            {"mode", std::string(mode)},
                                            {"align_corners", align},
                                            {"scale", scale}}});
          };
          for (const std::string_view mode : ops::kResampleModes) {
            add("twice", DType::f32, {2, 3, 5}, -1, 10, mode);
            add("rows", DType::f32, {2, 3, 4, 5}, 2, 7, mode);
            add("channels last", DType::f32, {2, 4, 18}, 1, 8, mode);
            add("down", DType::f32, {3, 9, 2}, 1, 4, mode);
            add("to one", DType::f32, {2, 6}, 1, 1, mode);
            add("from one", DType::f32, {2, 1}, 1, 3, mode);
            add("same size", DType::f32, {2, 5}, 1, 5, mode);
            add("empty batch", DType::f32, {0, 4}, 1, 8, mode);
            for (DType d : ops::kFloats) add(std::string(name(d)), d, {2, 4}, 1, 6, mode);
          }
          for (const std::string_view mode : {"linear", "cubic"}) {
            add("corners", DType::f32, {2, 5, 3}, 1, 9, mode, true);
            add("corners to one", DType::f32, {2, 5}, 1, 1, mode, true);
            add("scale", DType::f32, {2, 5}, 1, 8, mode, false, 1 / 1.7);
          }
          add("scale", DType::f32, {2, 5}, 1, 8, "nearest", false, 1 / 1.7);
          add("long rows", DType::f32, {1, 3, 4100}, 1, 5, "linear");
          add("many elements", DType::f32, {2, 50, 3}, 1, 150, "cubic");
          add("many taps", DType::f32, {2, 45, 70}, 1, 4, "area");
          return cases;
        },
};

}  // namespace graven::ir
