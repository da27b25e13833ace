// How a pass rewrites a graph: it takes the old node list and writes the new one in a single walk. Values keep their
// numbers; a value that is replaced is forwarded to its replacement wherever it is read later, in the graph's outputs,
// losses and gradients, too.
//
//   void drop_detach(Graph& graph, const PassOptions&) {
//     Rewriter rewriter(graph);
//     for (Node& node : rewriter.old()) {
//       rewriter.forward_inputs(node);
//       if (node.op->name == "detach")
//         rewriter.replace(node.outputs[0], node.inputs[0]);
//       else
//         rewriter.keep(std::move(node));
//     }
//     rewriter.finish();
//   }
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

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
    if (v == kNone || static_cast<std::size_t>(v) >= forward_.size()) return v;
    ValueId end = v;
    while (static_cast<std::size_t>(end) < forward_.size() && forward_[static_cast<std::size_t>(end)] != kNone)
      end = forward_[static_cast<std::size_t>(end)];
    while (v != end)
      v = std::exchange(forward_[static_cast<std::size_t>(v)], end);  // paths stay short, so that the walk stays linear
    return end;
  }
  void forward_inputs(Node& node) {
    for (ValueId& v : node.inputs) v = resolve(v);
  }
  /// From here on, `by` is read where `value` was.
  void replace(ValueId value, ValueId by) {
    by = resolve(by);
    if (by == value) return;
    if (forward_.size() <= static_cast<std::size_t>(value)) forward_.resize(graph_.values.size(), kNone);
    forward_[static_cast<std::size_t>(value)] = by;
  }
  /// Appends a node whose inputs are forwarded already.
  void keep(Node node) { graph_.nodes.push_back(std::move(node)); }

  /// Appends a new node, typed by its operator's entry; see Graph::add_node.
  std::vector<ValueId> add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes,
                           const Origins& origins, Phase phase, std::string name) {
    return graph_.add_node(get_op(op), std::move(inputs), std::move(attributes), origins, phase, std::move(name));
  }
  ValueId add_one(std::string_view op, std::vector<ValueId> inputs, Attributes attributes, const Origins& origins,
                  Phase phase, std::string name) {
    return add(op, std::move(inputs), std::move(attributes), origins, phase, std::move(name)).at(0);
  }

  /// Forwards what the graph itself refers to.
  void finish() {
    for (ValueId& v : graph_.outputs) v = resolve(v);
    for (Loss& l : graph_.losses) {
      l.value = resolve(l.value);
      l.gradient = resolve(l.gradient);
    }
    for (Gradient& g : graph_.gradients) g.value = resolve(g.value);
  }

  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  std::vector<Node> old_;
  std::vector<ValueId> forward_;  ///< by value; kNone: stands for itself
};

/// No optimizer and no loss: weights change only from outside, so what depends on them alone may be prepared.
inline bool is_inference(const Graph& graph) { return graph.losses.empty() && graph.optimizers.empty(); }

/// Whether the node writes into its input i (as its operator's entry says), and that is present.
bool is_mutated(const Node& node, std::size_t i);

/// The number that `v` holds everywhere, if a `full` node made it. Looks at `producer`, as made by Uses or kept by the
/// pass.
const Node* producer_named(const Graph& graph, const std::vector<NodeId>& producer, ValueId v, std::string_view op);

/// Orders the nodes by phase, keeping their order within each.
void sort_by_phase(Graph& graph);

}  // namespace graven::ir
