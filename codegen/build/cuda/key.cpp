// What the generator of the table and its users must agree on.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "codegen/build/cuda/table.h"
#include "ir/ops.h"
#include "ir/update_rule.h"

namespace graven::codegen {

bool is_pointer(const ir::Argument& argument) {
  using Kind = ir::Argument::Kind;
  return argument.kind == Kind::output || argument.kind == Kind::input || argument.kind == Kind::list ||
         argument.kind == Kind::number;
}

std::vector<ir::DType> pointer_types(const ir::Graph& graph, const ir::Node& node, const ir::KernelCall& call) {
  std::optional<ir::DType> computed;
  for (const auto* list : {&node.outputs, &node.inputs})
    for (const ir::ValueId v : *list)
      if (!computed && v != ir::kNone && graph.value(v).kind != ir::ValueKind::hyper &&
          ir::is_floating(graph.type(v).dtype))
        computed = graph.type(v).dtype;
  if (!computed) computed = node.outputs.empty() ? ir::DType::f32 : graph.type(node.outputs[0]).dtype;
  const ir::OpDef& op = ir::lowered(*node.op);
  std::vector<ir::DType> types;
  for (const ir::Argument& a : ir::arguments_of(node, call, true)) {
    if (!is_pointer(a)) continue;
    const ir::ValueId v = a.value();
    if (v != ir::kNone)
      types.push_back(graph.type(v).dtype);
    else
      types.push_back(a.kind == ir::Argument::Kind::output ? *computed
                                                           : op.inputs[a.index].own_dtype().value_or(*computed));
  }
  return types;
}

std::string cuda_key(const ir::Graph& graph, const ir::Node& node, const ir::KernelCall& call, FunctorForm functor) {
  const std::vector<ir::DType> types = pointer_types(graph, node, call);
  if (call.name == "elementwise" || call.name == "broadcast") {
    std::size_t widest = 1;
    for (const ir::DType d : types) widest = std::max(widest, ir::size_of(d));
    return fmt::format("{}({}:{})", call.name, widest, types.size() - 1);
  }
  if (node.op->rule != nullptr) {
    const ir::UpdateRule rule(*node.op, node.attributes, true);
    return fmt::format("update_parameters({}:{}:{})", ir::name(types.at(0)), rule.new_states().size(),
                       rule.norms().size());
  }
  std::string key = call.name;
  if (functor != FunctorForm::none)
    key += functor == FunctorForm::relu ? "<relu>" : functor == FunctorForm::of_one ? "<1>" : "<2>";
  key += '(';
  for (std::size_t i = 0; i < types.size(); ++i) key.append(i ? "," : "").append(ir::name(types[i]));
  return key + ")";
}

}  // namespace graven::codegen
