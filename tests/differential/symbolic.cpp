#include "tests/differential/symbolic.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/diagnostic.h"
#include "tests/differential/checks.h"
#include "tests/differential/random_graph.h"

namespace graven::tests {

using ir::Dim;
using ir::Graph;
using ir::kNone;
using ir::Node;
using ir::Shape;
using ir::ValueId;

namespace {

class Lift {
 public:
  Lift(const Graph& from, std::int64_t size)
      : from_(from), symbol_(fmt::format("n{}", size), size), to_(from.values.size(), kNone) {}

  std::optional<Graph> run() {
    graph_.name = from_.name;
    graph_.config = from_.config;
    for (const auto* list : {&from_.inputs, &from_.parameters})
      for (ValueId v : *list) {
        const ir::Value& leaf = from_.value(v);
        if (leaf.type.shape.rank() > 0 && leaf.type.shape[0] == symbol_.maximum()) {
          ir::TensorType type = leaf.type;
          type.shape[0] = symbol_;
          at(v) = graph_.add_input(leaf.name, type);
          // What refuses the symbol there, a weight's first dimension say, takes a leaf of fixed size.
          fixed_[at(v)] = graph_.add_input("fixed." + leaf.name, leaf.type);
          copy_limits(leaf.name, "fixed." + leaf.name);
        } else {
          at(v) = leaf.kind == ir::ValueKind::input    ? graph_.add_input(leaf.name, leaf.type)
                  : leaf.kind == ir::ValueKind::buffer ? graph_.add_buffer(leaf.name, leaf.type)
                                                       : graph_.add_parameter(leaf.name, leaf.type, false);
        }
      }
    for (const auto& [v, data] : from_.constants) at(v) = graph_.add_constant(from_.value(v).name, data);
    for (const Node& node : from_.nodes)
      if (!take(node)) give(node);
    std::vector<bool> read(graph_.values.size(), false);
    for (const Node& node : graph_.nodes)
      for (ValueId v : node.inputs)
        if (v != kNone) read[static_cast<std::size_t>(v)] = true;
    for (const Node& node : graph_.nodes)
      for (ValueId v : node.outputs)
        if (!read[static_cast<std::size_t>(v)] && !graph_.type(v).shape.is_static()) graph_.outputs.push_back(v);
    if (graph_.outputs.empty()) return std::nullopt;
    make_trees(graph_);
    return std::move(graph_);
  }

 private:
  ValueId& at(ValueId v) { return to_[static_cast<std::size_t>(v)]; }

  void copy_limits(const std::string& from, const std::string& to) {
    for (const char* key : {"low:", "high:", "seed:"})
      if (const auto it = from_.config.find(key + from); it != from_.config.end()) graph_.config[key + to] = it->second;
  }

  /// The node on what its inputs have become; false where its operator refuses that, or its results would be of other
  /// sizes.
  bool take(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNone ? kNone : at(v));
    if (try_attributes(node, inputs)) return true;
    // With some leaves fixed: all but one, or one.
    std::vector<std::size_t> leaves;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (fixed_.count(inputs[i]) != 0) leaves.push_back(i);
    for (const bool all_but_one : {true, false})
      for (const std::size_t chosen : leaves) {
        std::vector<ValueId> some = inputs;
        for (const std::size_t i : leaves)
          if ((i == chosen) != all_but_one) some[i] = fixed_.at(inputs[i]);
        if (try_attributes(node, some)) return true;
      }
    return false;
  }

  bool try_attributes(const Node& node, const std::vector<ValueId>& inputs) {
    if (try_with(node, inputs, node.attributes)) return true;
    // A shape among the attributes has the symbol somewhere, too.
    for (const auto& [key, value] : node.attributes) {
      const Shape* const shape = std::get_if<Shape>(&value);
      for (std::size_t d = 0; shape != nullptr && d < shape->rank(); ++d) {
        if ((*shape)[d].maximum() % symbol_.maximum() != 0) continue;
        Shape changed = *shape;
        changed[d] = symbol_ * Dim((*shape)[d].maximum() / symbol_.maximum());
        ir::Attributes attributes = node.attributes;
        attributes.set(key, changed);
        if (try_with(node, inputs, attributes)) return true;
      }
    }
    return false;
  }

  bool try_with(const Node& node, const std::vector<ValueId>& inputs, const ir::Attributes& attributes) {
    Graph tried = graph_;
    std::vector<ValueId> outputs;
    try {
      outputs = tried.add_node(*node.op, inputs, attributes, node.origins);
    } catch (const UserError&) {
      return false;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (tried.type(outputs[i]).shape.maxima() != from_.type(node.outputs[i]).shape.maxima()) return false;
    graph_ = std::move(tried);
    for (std::size_t i = 0; i < outputs.size(); ++i) at(node.outputs[i]) = outputs[i];
    return true;
  }

  void give(const Node& node) {
    for (ValueId v : node.outputs) {
      const std::string name = "cut." + from_.value(v).name;
      at(v) = graph_.add_input(name, from_.type(v));
      const auto [low, high] = limits_of(from_, v);
      graph_.config["low:" + name] = low;
      graph_.config["high:" + name] = high;
    }
  }

  const Graph& from_;
  Dim symbol_;
  Graph graph_;
  std::vector<ValueId> to_;
  std::map<ValueId, ValueId> fixed_;  ///< leaves with the symbol: the same without it
};

}  // namespace

std::optional<Graph> with_symbol(const Graph& graph) {
  std::map<std::int64_t, int> leaves;
  for (const auto* list : {&graph.inputs, &graph.parameters})
    for (ValueId v : *list)
      if (const Shape& shape = graph.type(v).shape; shape.rank() > 0 && shape.is_static() && shape[0].value() > 1)
        ++leaves[shape[0].value()];
  if (leaves.empty()) return std::nullopt;
  return Lift(graph, std::max_element(leaves.begin(), leaves.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; })
                         ->first)
      .run();
}

}  // namespace graven::tests
