// Every pass by name; pipeline.cpp puts them in order and says why. Each is documented where it is defined: ir/passes/<name>.cpp.
#pragma once

#include "ir/graph.h"
#include "ir/passes/pass.h"

namespace graven::ir {

void remove_dead_nodes(Graph& graph, const PassOptions& options);
void differentiate(Graph& graph, const PassOptions& options);
void add_optimizer_updates(Graph& graph, const PassOptions& options);

}  // namespace graven::ir
