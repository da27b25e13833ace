// A plan as text: what memory and work it takes, its order, where each buffer lies and how long it lives.
//
//   std::cout << memory_summary(graph, plan) << memory_table(graph, plan);
#pragma once

#include <string>

#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

/// What backward computes again of the forward phase, and what it costs.
struct Recomputation {
  std::size_t steps = 0;
  double flops = 0, bytes = 0;  ///< a call, part of Plan::flops and Plan::bytes
  /// The estimated time of a step over that without it, minus 1 (ir::seconds_of).
  double slowdown = 0;
};
Recomputation recomputation_of(const ir::Graph& graph, const Plan& plan);

/// Bytes of the arena's buffers that are written by forward and read by backward.
std::int64_t kept_bytes(const ir::Graph& graph, const Plan& plan);

/// A few lines: each arena's bytes beside their lower bound and their sum without reuse; the bytes of parameters,
/// buffers and optimizer state; the work of a call; the steps of each stream where there are several; what is kept for
/// backward, and what that computes again.
std::string memory_summary(const ir::Graph& graph, const Plan& plan);

/// The arena's bytes, and one line a buffer: offset, bytes, first and last step, the values that lie in it.
std::string memory_table(const ir::Graph& graph, const Plan& plan);

/// One line a step, in the order of execution: its number, phase, kernel, and the values that it writes.
std::string order_table(const ir::Graph& graph, const Plan& plan);

}  // namespace graven::codegen
