// What a node becomes: a call of a kernel, and the config that the kernel takes (kernels/config), which is the same for
// the kernels of every target. Each family of operators has a file of this folder: a function from a node to the call,
// and a row of its table.
//
//   ir::KernelCall call = kernel_call({graph, node});
//
// Whether its kernels cover the node, and what memory they work in, is the target's to say (codegen/targets).
#pragma once

#include <set>
#include <string>

#include "ir/call.h"
#include "ir/graph.h"

namespace graven::codegen {

/// The call of the operator's row, or of the row of the one that it lowers; that of a rule of elements or of an update
/// where it has one instead, or one without a name: of an alias nothing is called.
ir::KernelCall kernel_call(const ir::NodeView& node);

/// What calls name: every kernel, and the struct of its config.
const std::set<std::string>& names_of_calls();

}  // namespace graven::codegen
