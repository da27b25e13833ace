#include "ir/ops/gradient_sum_shared.h"

namespace graven::ir {

const OpDef kAccumulateShard = ops::sum_over_parts(
    "accumulate_shard",
    "accumulate of the mean of x over all ranks, of which each rank keeps its shard alone: `sum` has n / ranks "
    "elements there. With one rank it is accumulate.",
    true);

}  // namespace graven::ir
