// Makes each of several ranks update its shard of the parameters alone (Graph::config, "zero_stage"; ir/sharding.h):
//
//   new(p) = adam(p, g, m, v, ...)     ->     own(p)  = adam(p, g, m, v, ...)       of its elements, m and v are theirs
//                                             new(p)  = all_gather(own(p))               where the ranks have all of p
//
// Norms of gradients, and whether these are finite, are of all ranks. What else would read a gradient is an error: a
// rank has its shard of it. In the graph shapes stay what they are on one rank.
#include <algorithm>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/sharding.h"
#include "ir/update_rule.h"

namespace graven::ir {

namespace {

std::string place_text(const Node& node) {
  const std::string place = place_of(node.origins);
  return std::string(node.op->name) + (place.empty() ? "" : " (" + place + ")");
}

/// Gradients of which a rank has its shard alone.
ByValue<bool> shards_of_gradients(const Graph& graph) {
  ByValue<bool> shards;
  for (const Node& node : graph.nodes)
    if (node.is(kReduceScatter, kAccumulateShard)) shards[node.outputs[0]] = true;
  return shards;
}

void require_shardable(const Graph& graph, const Node& update) {
  const OpDef& op = *update.op;
  const bool whole = std::all_of(op.inputs.begin(), op.inputs.end(), [](const InputSpec& s) {
    return s.role != InputRole::state || s.shape == StateShape::parameter;
  });
  if (op.rule == nullptr || !whole || !UpdateRule(op, update.attributes, false).norms().empty())
    throw UserError("enable_zero: the optimizer " + std::string(op.name) + " of the graph " + graph.name +
                    " looks at whole parameters (norms, rows and columns), of which each rank would have a piece; it "
                    "has optimizers whose elements are updated one by one (SGD, Adam, AdamW, RMSprop, Adagrad, Lion "
                    "and others)");
}

}  // namespace

void share_updates(Graph& graph, const PassOptions&) {
  const Sharding sharding(graph);
  const ByValue<bool> shards = shards_of_gradients(graph);
  std::vector<ValueId> updated;
  Origins origins;
  for (Node& node : graph.nodes) {
    const bool reads =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return v != kNone && shards(v); });
    if (is_update(*node.op)) {
      require_shardable(graph, node);
      origins = node.origins;
      const InputRange parameters = input_range(node, InputRole::parameter);
      for (const auto& [input, output] : donated_by(node))
        if (input >= parameters.begin && input < parameters.begin + parameters.count)
          updated.push_back(node.outputs[output]);
    } else if (reads && node.is(kClipFactor, kFiniteStep)) {
      node.attributes.set("over_ranks", true);
    } else if (reads) {
      const ValueId v =
          *std::find_if(node.inputs.begin(), node.inputs.end(), [&](ValueId x) { return x != kNone && shards(x); });
      throw UserError("enable_zero: " + place_text(node) + " of the graph " + graph.name + " reads " +
                      graph.value(v).name +
                      ", of which each rank has its shard alone; clip_grad_norm_() and the "
                      "optimizers can");
    }
  }
  for (const ValueId v : graph.outputs)
    if (shards(v))
      throw UserError("enable_zero: the graph " + graph.name + " returns " + graph.value(v).name +
                      ", of which each rank has its shard alone");
  if (updated.empty() || sharding.stage() > 2) return;
  std::vector<std::string> names;
  names.reserve(updated.size());
  for (const ValueId v : updated) names.push_back(graph.value(v).name);
  const std::vector<ValueId> whole =
      graph.add_node(kAllGather, updated, {{"least", sharding.least()}}, origins, Phase::update, "all_gather");
  Node gather = std::move(graph.nodes.back());
  graph.nodes.pop_back();
  ByValue<ValueId> becomes{kNone};
  for (std::size_t i = 0; i < updated.size(); ++i) {
    becomes[updated[i]] = whole[i];
    graph.swap_names(updated[i], whole[i]);
    graph.value(updated[i]).name = "own(" + names[i] + ")";
  }
  // What reads parameters behind their update reads them whole.
  const auto redirect = [&](ValueId& v) {
    if (v != kNone && becomes(v) != kNone) v = becomes(v);
  };
  for (Node& node : graph.nodes)
    for (ValueId& v : node.inputs) redirect(v);
  for (Donation& d : graph.donations) redirect(d.value);
  for (ValueId& v : graph.outputs) redirect(v);
  const auto last =
      std::find_if(graph.nodes.rbegin(), graph.nodes.rend(), [](const Node& n) { return is_update(*n.op); });
  graph.nodes.insert(last.base(), std::move(gather));
  sort_by_phase(graph);
  graph.compact();
}

}  // namespace graven::ir
