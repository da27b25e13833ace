// The oracle of self-tests: a graph computed in double precision by the reference kernels, independently of what is emitted.
//
//   codegen::EmitOptions options;
//   options.execute = eager::double_reference;
#pragma once

#include "frontend/eager/executor.h"

namespace graven::eager {

/// `values` as for execute(); symbols stand at their maxima.
inline void double_reference(const ir::Graph& graph, Environment& values) { execute(graph, values, {.oracle = Oracle::double_reference}); }

}  // namespace graven::eager
