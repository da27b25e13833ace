#include "ir/ops/gradient_sum_shared.h"

namespace graven::ir {

const OpDef kAllReduce = ops::sum_over_ranks(
    "all_reduce",
    "The mean of x over all ranks, the processes that train one model together, behind the last part of a step, "
    "parts - 1; x in the others, and where there is one rank. The sum is begun where the node stands and done when "
    "its phase is, so only nodes of a later phase read it.");

}  // namespace graven::ir
