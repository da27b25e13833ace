// Updates each module's parameters as soon as their gradients are there and nothing of the step reads the parameters
// later, where the new values may take over the memory of the old ones, so that a gradient's memory serves the next
// one: the step then holds one module's gradients at a time instead of all of them. For graphs that ask for it
// (Graph::config, "update_in_backward"), because backward and update are no longer apart: nobody can look at the
// gradients between them.
//
// An update works element by element, so it gives the same bits as the update of all parameters together.
#include <algorithm>
#include <map>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// The index of the last node of forward and backward that a value's class of aliases waits for.
class Readiness {
 public:
  explicit Readiness(const Graph& graph) : root_(memory_roots(graph)) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (node.phase == Phase::update) continue;
      for (const ValueId v : node.inputs)
        if (v != kNone) last_use_[root_[at(v)]] = static_cast<NodeId>(n);
      for (const ValueId v : node.outputs) made_[v] = static_cast<NodeId>(n);
    }
  }
  NodeId made(ValueId v) const { return made_(v); }
  NodeId last_use(ValueId v) const { return last_use_(root_[at(v)]); }

 private:
  std::vector<ValueId> root_;
  ByValue<NodeId> last_use_{-1}, made_{-1};
};

std::string module_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

}  // namespace

bool updates_in_backward(const Graph& graph) { return graph.flag(kUpdateInBackward) && !graph.optimizers.empty(); }

void update_in_backward(Graph& graph, const PassOptions&) {
  const Readiness readiness(graph);
  NodeId first_of_backward = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].phase <= Phase::forward) first_of_backward = static_cast<NodeId>(n);
  std::vector<std::vector<Node>> behind(graph.nodes.size());
  std::vector<bool> replaced(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase != Phase::update || !is_update(*node.op)) continue;
    const InputRange parameters = input_range(node, InputRole::parameter);
    struct Group {
      std::vector<std::size_t> chosen;
      NodeId ready = 0;
    };
    std::map<std::string, Group> groups;  // by module
    for (std::size_t i = 0; i < parameters.count; ++i) {
      Group& group = groups[module_of(graph.value(node.inputs[parameters.begin + i]).name)];
      group.chosen.push_back(i);
      group.ready = std::max(group.ready, first_of_backward);
      if (const ValueId factor = factor_of(node); factor != kNone)
        group.ready = std::max(group.ready, readiness.made(factor));
      for (std::size_t s = 0; s < node.op->inputs.size(); ++s) {
        const InputRange range = input_range(*node.op, node.inputs.size(), s);
        if (!node.op->inputs[s].variadic || node.inputs[range.begin + i] == kNone) continue;
        const ValueId v = node.inputs[range.begin + i];
        group.ready = std::max(
            {group.ready, readiness.made(v), node.op->inputs[s].donated() ? readiness.last_use(v) : NodeId{-1}});
      }
    }
    for (const auto& [module, group] : groups) {
      Node part = part_of_update(node, group.chosen);
      part.phase = Phase::backward;
      part.origins = {Origin{module, {}, 0}};
      behind[at(group.ready)].push_back(std::move(part));
    }
    replaced[n] = true;
  }
  std::vector<Node> nodes;
  nodes.reserve(graph.nodes.size() + behind.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!replaced[n]) nodes.push_back(std::move(graph.nodes[n]));
    for (Node& update : behind[n]) nodes.push_back(std::move(update));
  }
  graph.nodes = std::move(nodes);
}

}  // namespace graven::ir
