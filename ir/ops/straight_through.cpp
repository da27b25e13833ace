#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_straight_through(InferContext& c) {
  c.require(c.input(0) == c.input(1),
            [&] { return "x must be " + c.input(1).to_string() + " like `before`, got " + c.input(0).to_string(); });
  ops::infer_any(c);
}

static void gradient_of_straight_through(GradientBuilder& g) { g.set(1, g.output_gradient()); }

const OpDef kStraightThrough{
    .name = "straight_through",
    .doc =
        "y = x, whose gradient is that of `before`: of what is changed without autograd before it is read "
        "(the straight-through estimator, Bengio, Leonard and Courville 2013).",
    .inputs = {{"x"}, {"before"}},
    .dtypes = kAnyDType,
    .infer = infer_straight_through,
    .gradient = gradient_of_straight_through,
    .alias = true,
    .amp = AmpClass::clear,
    .cases =
        [] {
          std::vector<TestCase> cases;
          // By its definition no derivative, which finite differences would find.
          for (const Shape& shape : {Shape{2, 3}, Shape{0, 3}, Shape{1}, Shape{}})
            cases.push_back({.note = "shape " + shape.to_string(),
                             .inputs = {ops::random(DType::f32, shape), ops::random(DType::f32, shape)},
                             .gradient = false});
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {6}, 0, 2), ops::random(d, {6}, 0, 2)},
                             .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
