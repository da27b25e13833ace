// Gathers parameters of which each rank keeps its shard alone (Graph::config, "zero_stage" 3; ir/sharding.h): all of
// one is there while a module computes with it, and its memory is the arena's.
//
//   y = linear(x, w)           ->     a = gather_shards(w)      y = linear(x, a)
//   dx = ...(dy, w)            ->     b = gather_shards(w)      dx = ...(dy, b)        in the backward phase, once more
//
// Each module that reads it has it gathered anew, in each phase: between, nobody keeps it. What reads it behind its
// update gathers what the update makes of it.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/sharding.h"

namespace graven::ir {

void gather_parameters(Graph& graph, const ByValue<bool>& is_shard) {
  ByValue<ValueId> shard_of{kNone};  // of a parameter, and of what it is to hold
  for (const ValueId p : graph.parameters)
    if (is_shard(p)) shard_of[p] = p;
  for (const Donation& d : graph.donations)
    if (is_shard(d.variable)) shard_of[d.value] = d.variable;
  for (const ValueId v : graph.outputs)
    if (shard_of(v) != kNone)
      throw UserError("enable_zero: the graph " + graph.name + " returns " + graph.value(v).name +
                      ", of which each rank has its shard alone");
  std::map<std::tuple<ValueId, Phase, std::vector<std::string>>, ValueId> gathered;
  std::vector<Node> nodes;
  const auto gather = [&](ValueId v, const Node& reader) {
    const auto [known, fresh] =
        gathered.emplace(std::tuple(v, reader.phase, modules_of(reader.origins)), ValueId{kNone});
    if (!fresh) return known->second;
    std::string name = graph.value(shard_of(v)).name + ".gathered";
    if (reader.phase > Phase::forward) name += "_in_" + std::string(ir::name(reader.phase));
    while (graph.find(name) != kNone) name += "_again";
    known->second = graph.add_node(kGatherShards, {v}, {}, reader.origins, reader.phase, name)[0];
    Node node = std::move(graph.nodes.back());
    graph.nodes.pop_back();
    node.recomputes = reader.phase == Phase::backward;
    nodes.push_back(std::move(node));
    return known->second;
  };
  for (std::size_t n = 0, count = graph.nodes.size(); n < count; ++n) {
    Node node = std::move(graph.nodes[n]);
    if (!is_update(*node.op))
      for (ValueId& v : node.inputs)
        if (v != kNone && shard_of(v) != kNone) v = gather(v, node);
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  graph.compact();
}

void gather_parameters(Graph& graph, const PassOptions&) {
  const Sharding sharding(graph);
  ByValue<bool> is_shard;
  for (const Gradient& g : graph.gradients)
    if (sharding.is_kept_in_shards(graph.type(g.parameter))) is_shard[g.parameter] = true;
  gather_parameters(graph, is_shard);
}

}  // namespace graven::ir
