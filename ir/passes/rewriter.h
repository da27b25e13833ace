// How a pass rewrites a graph: it takes the old node list and writes the new one in a single walk. Values keep their
// numbers; a value that is replaced is forwarded to its replacement wherever it is read later, in the graph's outputs,
// losses, gradients and donations, too.
//
//   void drop_detach(Graph& graph, const PassOptions&) {
//     Rewriter rewriter(graph);
//     for (Node& node : rewriter.old()) {
//       rewriter.forward_inputs(node);
//       if (node.is(kDetach))
//         rewriter.replace(node.outputs[0], node.inputs[0]);
//       else
//         rewriter.keep(std::move(node));
//     }
//     rewriter.finish();
//   }
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/analysis.h"
#include "ir/graph.h"
#include "ir/ops.h"

namespace graven::ir {

class Rewriter {
 public:
  /// Takes the nodes out of the graph.
  explicit Rewriter(Graph& graph) : graph_(graph), old_(std::move(graph.nodes)) {
    graph.nodes = {};
    graph.nodes.reserve(old_.size() + 16);
  }

  std::vector<Node>& old() { return old_; }
  const std::vector<Node>& old() const { return old_; }

  /// What `v` stands for now.
  ValueId resolve(ValueId v) {
    ValueId end = v;
    while (forward_(end) != kNone) end = forward_(end);
    while (v != end) v = std::exchange(forward_[v], end);  // paths stay short, so that the walk stays linear
    return end;
  }
  void forward_inputs(Node& node) {
    for (ValueId& v : node.inputs) v = resolve(v);
  }
  /// From here on, `by` is read where `value` was.
  void replace(ValueId value, ValueId by) {
    by = resolve(by);
    if (by != value) forward_[value] = by;
  }
  /// Appends a node whose inputs are forwarded already.
  void keep(Node node) {
    for (const ValueId v : node.outputs) maker_[v] = static_cast<NodeId>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(node));
  }
  /// Appends a new node of one output, typed by its operator's entry; see Graph::add_node.
  ValueId add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, const Origins& origins, Phase phase,
              std::string name) {
    const ValueId v =
        graph_.add_node(op, std::move(inputs), std::move(attributes), origins, phase, std::move(name)).at(0);
    maker_[v] = static_cast<NodeId>(graph_.nodes.size()) - 1;
    return v;
  }
  /// The node of the new list that makes `v`, until another is appended; nullptr if there is none (yet).
  Node* maker(ValueId v) const { return maker_(v) < 0 ? nullptr : &graph_.nodes[at(maker_(v))]; }
  /// The same if it is of this operator; nullptr otherwise.
  const Node* maker(ValueId v, const OpDef& op) const {
    const Node* const node = maker(v);
    return node != nullptr && node->is(op) ? node : nullptr;
  }

  /// Forwards what the graph itself refers to.
  void finish() {
    for (ValueId& v : graph_.outputs) v = resolve(v);
    for (Loss& l : graph_.losses) {
      l.value = resolve(l.value);
      l.gradient = resolve(l.gradient);
    }
    for (Gradient& g : graph_.gradients) g.value = resolve(g.value);
    for (Donation& d : graph_.donations) d.value = resolve(d.value);
  }

  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  std::vector<Node> old_;
  ByValue<ValueId> forward_{kNone};  ///< kNone: stands for itself
  ByValue<NodeId> maker_{-1};        ///< in the new list
};

/// Makes the node one of its operator's lowered form, with that one's further attributes at their defaults.
inline void make_lowered(Node& node) {
  node.op = &lowered(*node.op);
  for (const AttributeSpec& spec : node.op->attributes)
    if (node.attributes.find(spec.name) == nullptr) node.attributes.set(spec.name, spec.fallback.value());
}

/// No optimizer and no loss: weights change only from outside, so what depends on them alone may be prepared.
inline bool is_inference(const Graph& graph) { return graph.losses.empty() && graph.optimizers.empty(); }

/// Orders the nodes by phase, keeping their order within each.
void sort_by_phase(Graph& graph);

/// Of a node whose inputs' entries are known: its outputs are the same in each call where its inputs are, as fixed()
/// has it of what is given.
inline void follow_fixed(const Node& node, ByValue<bool>& known) {
  bool all = depends_on_inputs_alone(node);
  for (ValueId v : node.inputs) all = all && (v == kNone || known(v));
  for (ValueId v : node.outputs) known[v] = all;
}

}  // namespace graven::ir
