#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_where(GradientBuilder& g) {
  const ops::Term condition(g, g.input(0)), dz(g, g.output_gradient()), zero = dz.constant(0);
  if (g.needs(1)) g.set_reduced(1, ops::where(condition, dz, zero));
  if (g.needs(2)) g.set_reduced(2, ops::where(condition, zero, dz));
}

const OpDef kWhere{
    .name = "where",
    .doc = "z = condition ? x : y, all three broadcast as in NumPy.",
    .inputs = {{.name = "condition", .dtype = DType::boolean}, {"x"}, {"y"}},
    .dtypes = kAnyDType,
    .gradient = gradient_where,
    .scalar = [](ElementRule& e) { return select(nonzero(e.x()), e.y(), e.z()); },
    .amp = AmpClass::clear,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto mask = [](Shape s) { return ops::random(DType::boolean, std::move(s), 0, 2); };
          for (DType d : kAllDTypes) {
            const bool b = d == DType::boolean;
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {mask({4, 5}), ops::random(d, {4, 5}, b ? 0 : -4, b ? 2 : 4),
                                        ops::random(d, {5}, b ? 0 : -4, b ? 2 : 4)},
                             .gradient = is_floating(d)});
          }
          cases.push_back({.note = "all broadcast",
                           .inputs = {mask({4, 1}), ops::random(DType::f32, {}), ops::random(DType::f32, {3})}});
          cases.push_back(
              {.note = "empty", .inputs = {mask({0}), ops::random(DType::f32, {}), ops::random(DType::f32, {0})}});
          return cases;
        },
};

}  // namespace graven::ir
