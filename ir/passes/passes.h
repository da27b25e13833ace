// Every pass by name; pipeline.inc puts them in order and says why. Each is documented where it is defined:
// ir/passes/<name>.cpp.
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"
#include "ir/passes/pass.h"

namespace graven::ir {

#define GRAVEN_PASS(name, ...) void name(Graph& graph, const PassOptions& options);
#include "ir/passes/pipeline.inc"
#undef GRAVEN_PASS

/// Names of the parameters that get a gradient: those that an optimizer trains and a loss depends on. Only these have
/// optimizer state in the program.
std::set<std::string> parameters_with_gradients(const Graph& graph);

/// Whether an optimizer's group asks for it.
bool clips_gradients(const Graph& graph);

/// Whether the graph asks for update_in_backward and has an update.
bool updates_in_backward(const Graph& graph);

}  // namespace graven::ir
