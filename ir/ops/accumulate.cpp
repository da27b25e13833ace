#include "ir/ops/gradient_sum_shared.h"

namespace graven::ir {

const OpDef kAccumulate = ops::sum_over_parts(
    "accumulate",
    "The sum of a gradient over the parts of a batch: x / scale in part 0, sum + x / scale in the others, and in "
    "the last one, parts - 1, what comes of it divided by parts: the mean. x / scale is x * (1 / scale), the "
    "reciprocal rounded to f32, as torch.amp.GradScaler.unscale_ has it; without a scale it is x.",
    false);

}  // namespace graven::ir
