// Parts the stages of a pipeline once more (ir/passes/split_stages.cpp), behind the fusions, where these have made
// something common: a weight that two stages read is packed, or cast, once; from here on each stage does it for itself.
// Then each phase's nodes stand stage by stage.
//
//   p = pack(w)    read in stages 0 and 1    ->    p = pack(w)    p.stage_1 = pack(w)
#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/stages.h"

namespace graven::ir {

namespace {

/// What a stage changes while the parts of a step run, other stages do not see.
void require_own_variables(const Graph& graph) {
  const std::vector<std::int32_t> stage = stages_of_nodes(graph);
  const Uses uses(graph);
  for (const Donation& d : graph.donations) {
    const NodeId maker = uses.maker(d.value);
    if (maker < 0 || graph.nodes[at(maker)].phase == Phase::update) continue;
    for (const NodeId reader : uses.readers(d.variable))
      if (stage[at(reader)] != stage[at(maker)])
        throw UserError("set_stage: '" + graph.value(d.variable).name + "' is changed in " + "stage " +
                        std::to_string(stage[at(maker)]) + " while a step runs, and read in " + "stage " +
                        std::to_string(stage[at(reader)]) + ": expected one stage")
            .at(graph.nodes[at(reader)].origins);
  }
}

}  // namespace

void settle_stages(Graph& graph, const PassOptions&) {
  require_own_variables(graph);
  cross_stages(graph, true);
  sort_by_stage(graph);
}

}  // namespace graven::ir
