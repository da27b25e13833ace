// How long a node takes: of an operator's FLOPs and bytes (OpDef::cost) and of what a machine reaches. The defaults are
// those by which passes compare nodes with one another (seconds_of in ir/op.h); the simulator (codegen/simulate) has a
// machine's own.
#pragma once

#include "ir/op.h"

namespace graven::ir {

struct Rates {
  double flops = 1e11;   ///< FLOP a second
  double bytes = 1e10;   ///< a second, from and to memory
  double call = 0;       ///< seconds that a call takes besides
  bool at_once = false;  ///< arithmetic goes on beside memory traffic: the longer of the two counts, not their sum
};

/// `at_once`: the roofline model (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
double seconds_of(const Cost& cost, const Rates& rates);

}  // namespace graven::ir
