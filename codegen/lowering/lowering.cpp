#include "codegen/lowering/lowering.h"

#include <unordered_map>

#include "codegen/lowering/families.h"
#include "ir/forms.h"

namespace graven::codegen {

using lowering::Row;

static const Row* find_row(const ir::OpDef& op) {
  static const auto rows = [] {
    std::unordered_map<const ir::OpDef*, const Row*> all;
    for (const auto& family : {lowering::convolutions(), lowering::indexing(), lowering::losses(), lowering::movement(),
                               lowering::norms(), lowering::pooling(), lowering::products(), lowering::random_numbers(),
                               lowering::recurrent_layers(), lowering::reductions(), lowering::updates()})
      for (const Row& row : family)
        GRAVEN_CHECK(all.emplace(row.op, &row).second, std::string(row.op->name) + " has two rows");
    return all;
  }();
  const auto found = rows.find(op.lowers != nullptr ? op.lowers : &op);
  return found == rows.end() ? nullptr : found->second;
}

ir::KernelCall kernel_call(const ir::NodeView& node) {
  const ir::OpDef& op = *node.node.op;
  if (op.alias) return {};
  if (const Row* row = find_row(op)) {
    ir::KernelCall call = row->call(node);
    // Optional inputs and outputs at the end of a node's lists may be left out; those who read calls index by these.
    for (const auto& [output, input] : call.over)
      GRAVEN_CHECK(static_cast<std::size_t>(output) < node.node.outputs.size() &&
                       static_cast<std::size_t>(input) < node.node.inputs.size(),
                   std::string(op.name) + " writes an output over an input that it has not");
    for (const std::int32_t input : call.in_place)
      GRAVEN_CHECK(static_cast<std::size_t>(input) < node.node.inputs.size(),
                   std::string(op.name) + " writes over an input that it has not");
    return call;
  }
  if (op.rule != nullptr) return ir::is_update(op) ? lowering::update_parameters(node) : lowering::linear_update(node);
  GRAVEN_CHECK(op.elementwise(), std::string(op.name) + " has neither a row in codegen/lowering nor a rule");
  return lowering::elementwise(node);
}

const std::set<std::string>& names_of_calls() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all;
    for (const ir::OpDef* op : ir::all_ops())
      for (const ir::DType dtype : {ir::DType::f32, ir::DType::i64}) {
        if (!op->dtypes.contains(dtype)) continue;
        for (const ir::Graph& form : ir::graphs_of_forms(*op, dtype)) {
          const ir::KernelCall call = kernel_call({form, form.nodes[0]});
          if (call.name.empty()) continue;
          all.insert(call.name);
          all.insert(call.config_type.empty() ? (call.file.empty() ? call.name : call.file) + "_config"
                                              : call.config_type);
        }
      }
    return all;
  }();
  return names;
}

}  // namespace graven::codegen
