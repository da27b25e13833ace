// The oracle of self-tests: a graph computed by the reference kernels, independently of what is emitted.
//
//   codegen::EmitOptions options;
//   options.execute = eager::reference_run;
#pragma once

#include "frontend/eager/executor.h"

namespace graven::eager {

/// `values` as for execute(); symbols stand at their maxima. In double precision; or, `rounded`, in the graph's own
/// dtypes, and with noise: every result of a node is moved by some roundings, as in stochastic arithmetic, so that the
/// difference of the two says what rounding can do.
inline void reference_run(const ir::Graph& graph, Environment& values, bool rounded) {
  execute(graph, values, {.oracle = rounded ? Oracle::reference : Oracle::double_reference, .noise = rounded});
}

}  // namespace graven::eager
