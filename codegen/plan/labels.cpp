#include "codegen/plan/labels.h"

#include <algorithm>

#include "ir/ops.h"

namespace graven::codegen {

namespace {

bool moves_elements(const ir::Graph& graph, const ir::Node& node, Moves moves) {
  const bool is_integral = ir::is_integral(graph.type(node.outputs[0]).dtype);
  if (node.is(ir::kCast)) return is_integral && ir::is_integral(graph.type(node.inputs[0]).dtype);
  if (node.is(ir::kCopy) || node.is(ir::kReshape) || node.is(ir::kDetach)) return true;
  if (node.is(ir::kPermute) || node.is(ir::kExpand)) return moves != Moves::in_order;
  return node.is(ir::kSlice) && moves == Moves::any;
}

/// The labels' own number of classes: of those that the node reads.
std::int64_t classes_in(const ir::Graph& graph, const ir::Node& node, const ir::ByValue<bool>& elements) {
  if (takes_labels_of_ranks(node, elements)) return node.attributes.integer("size") * node.attributes.integer("ranks");
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (is_labels(node, i) && elements(node.inputs[i]))
      return graph.type(node.inputs[at(node.op->inputs[i].classes_of)]).shape.back().maximum();
  return 0;
}

}  // namespace

ir::ByValue<bool> elements_of(const ir::Graph& graph, const Plan& plan, ir::ValueId source, Moves moves) {
  ir::ByValue<bool> elements;
  elements[source] = true;
  for (const ir::Node& node : graph.nodes) {
    if (node.inputs.empty() || node.outputs.size() != 1) continue;
    const ir::ValueId made = node.outputs[0];
    if (root(plan, made) == source || (elements(node.inputs[0]) && moves_elements(graph, node, moves)))
      elements[made] = true;
  }
  return elements;
}

bool takes_labels_of_ranks(const ir::Node& node, const ir::ByValue<bool>& elements) {
  return node.is(ir::kIndexOnRank) && node.attributes.flag("ignores") && elements(node.inputs[0]);
}

bool is_labels(const ir::Node& node, std::size_t input) {
  return input < node.op->inputs.size() && node.op->inputs[input].classes_of >= 0;
}

std::int64_t classes_of(const ir::Graph& graph, const Plan& plan, ir::ValueId value) {
  const ir::ByValue<bool> elements = elements_of(graph, plan, value, Moves::all);
  for (const ir::Node& node : graph.nodes)
    if (const std::int64_t classes = classes_in(graph, node, elements); classes > 0) return classes;
  return 0;
}

std::optional<std::int64_t> ignored_label(const ir::Graph& graph, const Plan& plan, ir::ValueId value) {
  const ir::ByValue<bool> elements = elements_of(graph, plan, value, Moves::any);
  std::optional<std::int64_t> ignored;
  std::int64_t most = 0;
  for (const ir::Node& node : graph.nodes) {
    const std::int64_t classes = classes_in(graph, node, elements);
    if (classes == 0) continue;
    most = std::max(most, classes);
    const std::int64_t own =
        node.attributes.integer(takes_labels_of_ranks(node, elements) ? "ignored" : "ignore_index");
    if (ignored.value_or(own) != own) return {};
    ignored = own;
  }
  return ignored && (*ignored < 0 || *ignored >= most) ? ignored : std::nullopt;
}

}  // namespace graven::codegen
