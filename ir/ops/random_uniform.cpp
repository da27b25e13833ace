#include "ir/ops/random_shared.h"

namespace graven::ir {

const OpDef kRandomUniform{
    .name = "random_uniform",
    .doc =
        "y uniform in [0, 1), in steps of 2^-24: the words of Philox4x32-10 with key seed ^ stream and counter "
        "(element / 4, step) (Salmon et al. "
        "2011). "
        "PyTorch's rand by another generator: numbers differ, the distribution does not.",
    .inputs = {{"seed", InputRole::seed}, {"step", InputRole::step}},
    .dtypes = {DType::f32, DType::f64},
    .attributes = ops::random_attributes(),
    .infer = ops::infer_random,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 20 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .random = true,
    .forms = {{.attributes = {{"shape", Shape{4}}}}},
    .cases = [] { return ops::random_cases(); },
};

}  // namespace graven::ir
