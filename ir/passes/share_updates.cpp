// Makes each of several ranks update its shard of the parameters alone (Graph::config, "zero_stage"; ir/sharding.h):
//
//   new(p) = adam(p, g, m, v, ...)     ->     own(p)  = adam(p, g, m, v, ...)       of its elements, m and v are theirs
//                                             new(p)  = all_gather(own(p))               where the ranks have all of p
//
// An optimizer that asks for norms of whole tensors (UpdateRule::norm: LAMB, LARS) has two updates of a group, of the
// parameters that are shared and of those that are not: the kernel adds up the former's squares over the ranks.
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

bool has_norms(const Node& update) { return !UpdateRule(*update.op, update.attributes, false).norms().empty(); }

void require_shardable(const Graph& graph, const Node& update) {
  const OpDef& op = *update.op;
  const bool whole = std::all_of(op.inputs.begin(), op.inputs.end(), [](const InputSpec& s) {
    return s.role != InputRole::state || s.shape == StateShape::parameter;
  });
  if (op.rule == nullptr || !whole)
    throw UserError("enable_zero: the optimizer " + std::string(op.name) + " of the graph " + graph.name +
                    " looks at rows and columns of whole parameters, of which each rank would have a piece; it has "
                    "optimizers whose elements are updated one by one, or by norms (SGD, Adam, AdamW, RMSprop, "
                    "Adagrad, Lion, LAMB, LARS and others)");
  const InputRange parameters = input_range(update, InputRole::parameter);
  for (std::size_t i = 0; i < parameters.count; ++i) {
    const ValueId p = update.inputs[parameters.begin + i];
    if (has_norms(update) && graph.type(p).dtype != DType::f32)
      throw UserError("enable_zero: the optimizer " + std::string(op.name) + " of the graph " + graph.name +
                      " adds up norms over ranks of parameters in f32, found " + graph.value(p).name + ", " +
                      graph.type(p).to_string());
  }
}

/// Of an update's parallel lists the entries of some parameters.
Node part_of(const Node& update, const std::vector<std::size_t>& which) {
  Node part = update;
  part.inputs.clear();
  part.outputs.clear();
  for (std::size_t s = 0; s < update.op->inputs.size(); ++s) {
    const InputRange range = input_range(*update.op, update.inputs.size(), s);
    if (range.begin >= update.inputs.size()) break;  // the last one may be left out
    if (!update.op->inputs[s].variadic)
      part.inputs.push_back(update.inputs[range.begin]);
    else
      for (const std::size_t i : which) part.inputs.push_back(update.inputs[range.begin + i]);
  }
  const auto donated = donated_by(update);
  for (const std::size_t input : donated_inputs(*part.op, part.inputs))
    for (const auto& [from, output] : donated)
      if (update.inputs[from] == part.inputs[input]) part.outputs.push_back(update.outputs[output]);
  return part;
}

/// Updates that ask for norms: of parameters that are shared, and of the others.
void split_updates_with_norms(Graph& graph, const Sharding& sharding) {
  std::vector<Node> nodes;
  nodes.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    std::vector<std::size_t> own, shared;
    if (is_update(*node.op) && node.op->rule != nullptr && has_norms(node)) {
      const InputRange parameters = input_range(node, InputRole::parameter);
      for (std::size_t i = 0; i < parameters.count; ++i)
        (sharding.is_large(graph.type(node.inputs[parameters.begin + i])) ? shared : own).push_back(i);
    }
    if (own.empty() || shared.empty()) {
      nodes.push_back(std::move(node));
      continue;
    }
    nodes.push_back(part_of(node, shared));
    nodes.push_back(part_of(node, own));
  }
  graph.nodes = std::move(nodes);
}

}  // namespace

void share_updates(Graph& graph, const PassOptions&) {
  const Sharding sharding(graph);
  const ByValue<bool> shards = sharding.shards_of_gradients(graph);
  split_updates_with_norms(graph, sharding);
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
    } else if (reads && !shards(node.outputs[0])) {
      const ValueId v =
          *std::find_if(node.inputs.begin(), node.inputs.end(), [&](ValueId x) { return x != kNone && shards(x); });
      throw UserError("enable_zero: " + place_text(node) + " of the graph " + graph.name + " reads " +
                      graph.value(v).name +
                      ", of which each rank has its shard alone; clip_grad_norm_(), clip_grad_value_() and the "
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
