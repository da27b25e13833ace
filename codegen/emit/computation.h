// What a training graph computes, apart from how: the digest that checkpoints go by. Two graphs with the same digest
// take the same steps on the same variables within rounding, wherever they were written, whatever their modules are
// arranged as, and however a step is shared among ranks, kept in memory or fused. So a run goes on with a program that
// was emitted again: by another version, from a file with another comment, for another number of ranks.
//
//   graph.config[std::string(kComputation)] = computation_digest(graph);   // of the trace
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace graven::codegen {

/// Key of Graph::config: the digest of the trace, which passes leave as it is.
inline constexpr std::string_view kComputation = "computation";
/// Hexadecimal digits of a digest.
inline constexpr std::size_t kComputationDigits = 16;

/// What is digested: operators with their attributes, what they read and the types of what they make; names, types and
/// order of variables; losses, clipping, optimizers with options and schedules; mixed precision and the scaling of
/// losses. Left out are names of other values, lines, modules, and the rest of Graph::config.
std::string computation_digest(const ir::Graph& graph);
/// Sets kComputation: of a trace what it computes, whatever it says; a graph behind passes keeps what its trace was.
/// User error where that is no digest.
void keep_computation(ir::Graph& graph);

}  // namespace graven::codegen
