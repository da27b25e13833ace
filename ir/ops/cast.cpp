#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_cast(InferContext& c) { c.output(c.attributes.dtype("dtype"), c.input(0).shape); }

static void gradient_cast(GradientBuilder& g) {
  if (!is_floating(g.type(g.output()).dtype)) return;
  g.set(0, g.call("cast", {g.output_gradient()}, {{"dtype", g.type(g.input(0)).dtype}}));
}

const OpDef kCast{
    .name = "cast",
    .doc = "y = x as another dtype: nearest even among floating dtypes, towards zero to integers, x != 0 to bool.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"dtype", AttributeType::dtype, {}, "of the result"}},
    .infer = infer_cast,
    .gradient = gradient_cast,
    .scalar = [](ElementRule& e) { return e.x(); },
    .amp = AmpClass::clear,
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (DType from : kAllDTypes)
            for (DType to : kAllDTypes) {
              const bool b = from == DType::boolean;
              const double low = b || to == DType::u8 ? 0 : -20;
              cases.push_back({.note = std::string(name(from)) + " to " + std::string(name(to)),
                               .inputs = {ops::random(from, {9}, low, b ? 2 : 20)},
                               .attributes = {{"dtype", to}},
                               .gradient = is_floating(from) && is_floating(to)});
            }
          cases.push_back(
              {.note = "one", .inputs = {ops::random(DType::f32, {1, 1})}, .attributes = {{"dtype", DType::f16}}});
          cases.push_back(
              {.note = "rank 0", .inputs = {ops::random(DType::f32, {})}, .attributes = {{"dtype", DType::f64}}});
          cases.push_back({.note = "empty",
                           .inputs = {ops::random(DType::f32, {0})},
                           .attributes = {{"dtype", DType::i32}},
                           .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
