// What just-in-time compilation takes of a graph: the graph behind all passes, its plan, and the texts of its project.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/emit/calls.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "ir/executable.h"
#include "ir/graph.h"

namespace graven::codegen {

struct JustInTime {
  ir::Graph graph;
  Plan plan;
  std::map<std::string, std::string> files;  ///< by path
  std::string name_space;                    ///< of what the files declare
  std::vector<MeasuredCall> measured;        ///< the kernels' calls, phases in order
};

/// What the calls do with these sizes; `graph` is theirs.
std::vector<ir::CallDescription> describe_calls(const ir::Graph& graph, const std::vector<MeasuredCall>& calls,
                                                const ir::SymbolSizes& sizes);

/// Adds files of kernels/ and runtime/, as a project has them, with everything that they include. runtime/x.h brings
/// runtime/x.cpp.
void add_copied(std::map<std::string, std::string>& files, std::vector<std::string> wanted);

/// As render_project(), which see; `options` have jit_entry.
JustInTime render_just_in_time(const ir::Graph& graph, const EmitOptions& options, EmitReport& report);

}  // namespace graven::codegen
