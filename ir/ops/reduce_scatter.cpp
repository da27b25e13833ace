#include "ir/ops/gradient_sum_shared.h"

namespace graven::ir {

const OpDef kReduceScatter = ops::sum_over_ranks(
    "reduce_scatter",
    "all_reduce of which each rank keeps its shard alone, in its place in x: a piece of the elements, one for each "
    "rank; the rest is of no use behind it. With one rank, and in the parts before the last, x.");

}  // namespace graven::ir
