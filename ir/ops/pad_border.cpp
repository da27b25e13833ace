#include "ir/ops/pad_border_shared.h"

namespace graven::ir {

static void gradient_pad_border(GradientBuilder& g) {
  Attributes a = g.attributes();
  a.set("input_shape", g.type(g.input(0)).shape);
  g.set(0, g.call("pad_border_backward", {g.output_gradient()}, a));
}

const OpDef kPadBorder{
    .name = "pad_border",
    .doc =
        "y is x with elements of its own around it: PyTorch's padding modes reflect, replicate and circular. A "
        "negative pad cuts off. Pads are at "
        "most the dimension's size (circular), the size - 1 (reflect).",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = ops::border_attributes(),
    .infer = [](InferContext& c) { c.output(c.input(0).dtype, ops::infer_border(c, c.input(0).shape)); },
    .gradient = gradient_pad_border,
    .layout = {ImageLayout::Rule::moves},
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"pads", Ints{1, 0, 0, 1}}, {"mode", std::string("reflect")}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType dtype, Shape x, const char* mode, Ints pads) {
            cases.push_back({.note = note + ", " + mode,
                             .inputs = {ops::random(dtype, std::move(x), 0, 2)},
                             .attributes = {{"pads", std::move(pads)}, {"mode", std::string(mode)}},
                             .gradient = is_floating(dtype)});
          };
          for (const char* mode : {"reflect", "replicate", "circular"}) {
            add("row", DType::f32, {2, 3, 5}, mode, {0, 0, 0, 0, 2, 1});
            add("image", DType::f32, {2, 3, 4, 5}, mode, {0, 0, 0, 0, 1, 2, 3, 0});
            add("image, channels last", DType::f32, {2, 4, 5, 18}, mode, {0, 0, 3, 1, 1, 2, 0, 0});
            add("most of it", DType::f32, {1, 2, 4, 3}, mode, {0, 0, 0, 0, 3, 3, 2, 2});
            add("one image, channels last", DType::f32, {1, 5, 6, 4}, mode, {0, 0, 1, 1, 1, 1, 0, 0});
            add("volume", DType::f32, {1, 2, 3, 4, 3}, mode, {0, 0, 0, 0, 1, 2, 1, 0, 2, 1});
            add("cut on one side", DType::f32, {2, 5, 6}, mode, {0, 0, -1, 2, 3, -2});
            add("vector", DType::f32, {7}, mode, {3, 2});
            add("no padding", DType::f32, {2, 3}, mode, {0, 0, 0, 0});
            add("empty batch", DType::f32, {0, 2, 4}, mode, {0, 0, 0, 0, 1, 1});
          }
          add("wider than the input", DType::f32, {2, 3}, "replicate", {0, 0, 5, 7});
          for (DType d : kAllDTypes) add(std::string(name(d)), d, {2, 3, 4}, "reflect", {0, 0, 1, 1, 2, 1});
          return cases;
        },
};

}  // namespace graven::ir
