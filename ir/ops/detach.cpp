#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kDetach{
    .name = "detach",
    .doc = "y = x, through which no gradient flows back.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .infer = ops::infer_any,
    .rank_layouts = ops::same_layout,
    .alias = true,
    .amp = AmpClass::clear,
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const Shape& shape : {Shape{2, 3}, Shape{0, 3}, Shape{1}, Shape{}})
            cases.push_back(
                {.note = "shape " + shape.to_string(), .inputs = {ops::random(DType::f32, shape)}, .gradient = false});
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)), .inputs = {ops::random(d, {6}, 0, 2)}, .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
