#include "ir/call.h"

#include <algorithm>

namespace graven::ir {

/// The node's values of one of the inputs of `op`; none where the list of inputs ends before.
static std::span<const ValueId> values_of(const Node& node, const OpDef& op, std::size_t input) {
  const InputRange range = input_range(op, node.inputs.size(), input);
  if (range.begin + range.count > node.inputs.size()) return {};
  return std::span(node.inputs).subspan(range.begin, range.count);
}

/// Whether an input is an array of pointers: the operands of a functor are arguments of their own.
static bool is_list(const InputSpec& input) { return input.variadic && input.role != InputRole::operand; }

std::vector<Argument> arguments_of(const Node& node, const KernelCall& call, bool numbers_from_hyper) {
  using Kind = Argument::Kind;
  const OpDef& op = lowered(*node.op);
  const std::vector<InputSpec>& inputs = op.inputs;
  std::vector<Argument> list;
  if (!call.reference) list.push_back({Kind::threads});
  list.push_back({Kind::config});
  const std::span<const ValueId> outputs = own_outputs(node);
  for (std::size_t i = 0; i < outputs.size(); ++i) list.push_back({Kind::output, i, outputs.subspan(i, 1)});
  if (const auto first = std::find_if(inputs.begin(), inputs.end(), is_list); first != inputs.end()) {
    const auto of_first = static_cast<std::size_t>(first - inputs.begin());
    list.push_back({Kind::count, of_first, values_of(node, op, of_first)});
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (is_list(inputs[i])) list.push_back({Kind::list, i, values_of(node, op, i)});
    list.push_back({Kind::sizes, of_first, values_of(node, op, of_first)});
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_list(inputs[i])) continue;
    const std::span<const ValueId> values = values_of(node, op, i);
    const Kind kind = inputs[i].number() && (numbers_from_hyper || is_update(*node.op)) ? Kind::number : Kind::input;
    if (inputs[i].variadic)
      for (std::size_t k = 0; k < values.size(); ++k) list.push_back({kind, i, values.subspan(k, 1)});
    else
      list.push_back({kind, i, values});
  }
  if (!call.reference && call.workspace_bytes > 0) list.push_back({Kind::workspace});
  if (node.op->rule != nullptr) {  // the states that there are stand last: their number is the rule's
    std::erase_if(list, [&](const Argument& a) {
      if (a.kind != Kind::list && a.kind != Kind::input) return false;
      return inputs[a.index].role == InputRole::factor ? a.value() == kNone
                                                       : !is_used(inputs[a.index], node.attributes);
    });
    std::stable_partition(list.begin(), list.end(), [&](const Argument& a) {
      return (a.kind != Kind::list && a.kind != Kind::input) || inputs[a.index].role != InputRole::state;
    });
  }
  if (call.checks_data) list.push_back({Kind::where});
  return list;
}

std::vector<Dim> sizes_of(const Graph& graph, const KernelCall& call, const Argument& sizes) {
  if (!call.sizes.empty()) return call.sizes;
  std::vector<Dim> elements;
  for (const ValueId v : sizes.values) elements.push_back(graph.type(v).shape.numel());
  return elements;
}

}  // namespace graven::ir
