#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_of_copy(GradientBuilder& g) { g.set(0, g.output_gradient()); }

const OpDef kCopy{
    .name = "copy",
    .doc = "y = x, in memory of its own.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .infer = ops::infer_any,
    .gradient = gradient_of_copy,
    .rank_layouts = ops::same_layout,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::clear,
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0}, Shape{1, 1}})
            cases.push_back({.note = shape.to_string(), .inputs = {ops::random(DType::f32, shape)}});
          for (DType d : kAllDTypes)
            cases.push_back(
                {.note = std::string(name(d)), .inputs = {ops::random(d, {4}, 0, 2)}, .gradient = is_floating(d)});
          return cases;
        },
};

}  // namespace graven::ir
