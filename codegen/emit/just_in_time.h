// What just-in-time compilation takes of a graph: the graph behind all passes, its plan, and the texts of its project.
#pragma once

#include <map>
#include <string>

#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

struct JustInTime {
  ir::Graph graph;
  Plan plan;
  std::map<std::string, std::string> files;  ///< by path
  std::string name_space;                    ///< of what the files declare
};

/// As render_project(), which see; `options` have jit_entry.
JustInTime render_just_in_time(const ir::Graph& graph, const EmitOptions& options, EmitReport& report);

}  // namespace graven::codegen
