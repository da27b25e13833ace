// A part of verify_plan: memory spaces and streams.
#pragma once

#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

/// Checks that each step runs where the target says, that what it reads and writes lies there, and that streams may
/// run beside each other: of two steps that read and write the same bytes, one is done when the other begins, whatever
/// the streams' speed. Internal error otherwise.
void verify_streams(const ir::Graph& graph, const Plan& plan);

}  // namespace graven::codegen
