// What passes and plans ask about a graph: who makes and who reads a value, what stays the same from call to call,
// whose memory a value is. Made in one walk each, and valid until the graph changes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace graven::ir {

/// Something of each value, such as a flag. It is read by (v), and then what was said at the beginning of values that
/// are new, and of kNone; it is written by [v].
template <class T>
class ByValue {
 public:
  explicit ByValue(T unknown = {}) : unknown_{std::move(unknown)} {}
  const T& operator()(ValueId v) const { return v >= 0 && at(v) < known_.size() ? known_[at(v)].it : unknown_.it; }
  T& operator[](ValueId v) {
    if (known_.size() <= at(v)) known_.resize(at(v) + 1, unknown_);
    return known_[at(v)].it;
  }

 private:
  struct Item {  // so that a flag is one, too, and no bit of a vector<bool>
    T it;
  };
  Item unknown_;
  std::vector<Item> known_;
};

/// Who makes and who reads each value.
class Uses {
 public:
  explicit Uses(const Graph& graph);
  /// -1 of inputs, parameters, ...
  NodeId maker(ValueId v) const { return maker_(v); }
  /// The same as a node, where it still stands in the graph; nullptr if none makes it.
  const Node* maker(const Graph& graph, ValueId v) const {
    return maker_(v) < 0 ? nullptr : &graph.nodes[at(maker_(v))];
  }
  /// In order, each once.
  const std::vector<NodeId>& readers(ValueId v) const { return readers_(v); }
  /// Whether it is a result of the graph: an output, a loss, a gradient, or what a variable holds after the call.
  bool is_result(ValueId v) const { return is_result_(v); }
  /// The node that alone reads `v`; -1 where there are several, or none, or it is a result of the graph.
  NodeId only_reader(ValueId v) const { return is_result(v) || readers(v).size() != 1 ? -1 : readers(v)[0]; }

 private:
  ByValue<NodeId> maker_{-1};
  ByValue<std::vector<NodeId>> readers_;
  ByValue<bool> is_result_;
};

/// Whether it draws random numbers, which depend on the step's seed: it is never folded and never merged.
bool is_random(const Node& node);

/// Whether its results are the same in each call in which its inputs are: it draws no random numbers, and depends
/// neither on the rank nor on a size that a symbol stands for.
bool depends_on_inputs_alone(const Node& node);

/// Of an update: what it multiplies its gradients by; kNone where it takes them as they are.
ValueId factor_of(const Node& update);
/// The update of some of its parameters, by position in its lists.
Node part_of_update(const Node& update, const std::vector<std::size_t>& chosen);

/// By value: whether it is given, of one of these kinds, and the same in each call.
ByValue<bool> fixed(const Graph& graph, std::initializer_list<ValueKind> kinds);

/// Whether a donation says that the variable holds another value after the call.
bool is_changed(const Graph& graph, ValueId variable);

/// By value that an update makes: what it makes it of; kNone of others.
ByValue<ValueId> updated_from(const Graph& graph);

/// By value: the variable that it is a version of, which is the variable itself, what it holds after the call, and what
/// updates take on the way from the one to the other; kNone of other values.
ByValue<ValueId> variable_of(const Graph& graph);

/// By value: the value whose memory it is, through the aliases among the first `count` nodes (reshape); else itself.
std::vector<ValueId> memory_roots(const Graph& graph, std::size_t count);
inline std::vector<ValueId> memory_roots(const Graph& graph) { return memory_roots(graph, graph.nodes.size()); }

}  // namespace graven::ir
