#include "ir/ops/random_shared.h"

namespace graven::ir {

const OpDef kRandomNormal{
    .name = "random_normal",
    .doc =
        "y normal with mean 0 and deviation 1, by Box and Muller (1958) from pairs of words of Philox4x32-10 with key "
        "seed ^ stream and counter "
        "(element / 4, step) (Salmon et al. 2011). PyTorch's randn by another generator: numbers differ, the "
        "distribution does not.",
    .inputs = {{"seed", InputRole::seed}, {"step", InputRole::step}},
    .dtypes = {DType::f32, DType::f64},
    .attributes = ops::random_attributes(),
    .infer = ops::infer_random,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 60 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .random = true,
    .forms = {{.attributes = {{"shape", Shape{4}}}}},
    .cases = [] { return ops::random_cases(); },
};

}  // namespace graven::ir
