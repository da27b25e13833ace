// Makes one step of the batches of several ranks, processes that each train on their share of the data
// (Graph::config, "data_parallel"): behind the last part of a rank's batch its gradients become the mean of all ranks'.
//
//   g = accumulate(sum(g), p, part, parts)     ->     r = accumulate(sum(g), p, part, parts)
//                                                     g = all_reduce(r, part, parts)               sum(g) <- g
//
// Each sum begins right behind where its gradient is made, beside the rest of backward, and is done when the update
// begins (OpDef::collective). So all ranks clip and update by the same numbers, and their parameters stay the same.
//
// Batch norms that ask for it (`sync`) have the statistics of all ranks from here on, each part's when it is computed.
//
// Where the ranks share what they update (ir/sharding.h), each has its shard of the mean alone: reduce_scatter stands
// in the place of all_reduce, or accumulate_shard, which adds up the shard alone, in that of both.
#include <map>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/sharding.h"

namespace graven::ir {

void reduce_gradients(Graph& graph, const PassOptions&) {
  const ValueId part = graph.add_hyper(kPartName, DType::i64), parts = graph.add_hyper(kPartsName, DType::i64);
  const Uses uses(graph);
  const Sharding sharding(graph);
  for (Node& node : graph.nodes)
    if (node.is(kBatchNormTraining, kBatchNormBackward) && node.attributes.flag("sync"))
      node.attributes.set("over_ranks", true);
  const std::size_t count = graph.nodes.size();
  std::map<NodeId, Node> behind;
  for (Gradient& g : graph.gradients) {
    const NodeId maker = uses.maker(g.value);
    GRAVEN_CHECK(g.sum != kNone && maker >= 0, "a gradient is reduced over ranks that was not accumulated");
    const std::string parameter = graph.value(g.parameter).name;
    const bool shared = sharding.is_large(graph.type(g.value));
    if (shared && sharding.stage() > 1) {
      graph.nodes[at(maker)].op = &kAccumulateShard;
      continue;
    }
    const ValueId mean =
        graph.add_node(shared ? kReduceScatter : kAllReduce, {g.value, part, parts}, {}, graph.nodes[at(maker)].origins,
                       Phase::backward, "mean_over_ranks(grad(" + parameter + "))")[0];
    for (Donation& d : graph.donations)
      if (d.variable == g.sum) d.value = mean;
    if (graph.value(g.value).name == "grad(" + parameter + ")") graph.swap_names(g.value, mean);
    graph.value(g.value).name = parameter + ".rank_gradient";
    g.value = mean;
    behind.emplace(maker, std::move(graph.nodes.back()));
    graph.nodes.pop_back();
  }
  std::vector<Node> nodes;
  nodes.reserve(count + behind.size());
  for (std::size_t n = 0; n < count; ++n) {
    nodes.push_back(std::move(graph.nodes[n]));
    if (const auto found = behind.find(static_cast<NodeId>(n)); found != behind.end())
      nodes.push_back(std::move(found->second));
  }
  graph.nodes = std::move(nodes);
  graph.compact();
}

}  // namespace graven::ir
