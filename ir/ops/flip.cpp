#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_flip(InferContext& c) {
  const Shape& shape = c.input(0).shape;
  ops::require_kernel_rank(c, shape.rank());
  // An empty list is no dimension here.
  if (!c.attributes.integers("dims").empty()) (void)ops::normalize_dims(c, "dims", shape.rank());
  ops::infer_any(c);
}

static void gradient_flip(GradientBuilder& g) { g.set(0, g.call("flip", {g.output_gradient()}, g.attributes())); }

const OpDef kFlip{
    .name = "flip",
    .doc = "y is x with the order of its elements along dims turned round.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes =
        {{"dims", AttributeType::integers, {}, "counted from the end when negative; none: nothing is turned"}},
    .infer = infer_flip,
    .gradient = gradient_flip,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"dims", Ints{1}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType dtype, Shape x, Ints dims) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(dtype, std::move(x), 0, 2)},
                             .attributes = {{"dims", std::move(dims)}},
                             .gradient = is_floating(dtype)});
          };
          add("vector", DType::f32, {7}, {0});
          add("last", DType::f32, {2, 5}, {-1});
          add("first", DType::f32, {3, 4}, {0});
          add("both", DType::f32, {3, 4}, {0, 1});
          add("outer two", DType::f32, {2, 3, 4}, {0, 2});
          add("none", DType::f32, {2, 3}, {});
          add("empty", DType::f32, {0, 3}, {0});
          add("one", DType::f32, {1, 1}, {0});
          add("rank 0", DType::f32, {}, {});
          for (DType d : kAllDTypes) add(std::string(name(d)), d, {2, 3}, {1});
          return cases;
        },
};

}  // namespace graven::ir
