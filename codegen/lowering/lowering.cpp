#include "codegen/lowering/lowering.h"

#include <unordered_map>

#include "codegen/lowering/families.h"

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
  const auto found = rows.find(&op);
  return found == rows.end() ? nullptr : found->second;
}

ir::KernelCall kernel_call(const ir::NodeView& node) {
  const ir::OpDef& op = *node.node.op;
  if (op.alias) return {};
  if (const Row* row = find_row(op)) return row->call(node);
  if (op.rule != nullptr) return ir::is_update(op) ? lowering::update_parameters(node) : lowering::linear_update(node);
  GRAVEN_CHECK(op.elementwise(), std::string(op.name) + " has neither a row in codegen/lowering nor a rule");
  return lowering::elementwise(node);
}

}  // namespace graven::codegen
