// The CUDA kernels that nodes become: what ir::lower chooses, as kernels/cuda has it. CUDA kernels take plain weights
// and no workspace.
//
//   ir::KernelCall call = lower_for_cuda({graph, node});   // user error when kernels/cuda has no such kernel
#pragma once

#include <vector>

#include "ir/call.h"
#include "ir/graph.h"
#include "ir/tuning.h"

namespace graven::codegen {

/// User error naming the node and what it would need when the operator, its dtype or its layout is not covered on CUDA.
ir::KernelCall lower_for_cuda(const ir::NodeView& node);

/// Whether the node's kernel takes half types; true of what has no kernel.
bool takes_half_on_cuda(const ir::NodeView& node);

/// Of a graph behind all passes: the products, each by one of the algorithms that the library recommends.
std::vector<ir::Choice> cuda_choices(const ir::Graph& graph);

}  // namespace graven::codegen
