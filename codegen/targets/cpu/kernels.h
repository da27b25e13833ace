// What a node becomes on the CPU: the kernel of kernels/cpu, with the memory that it works in, or, of types and layouts
// that this does not cover, the one of kernels/reference.
#pragma once

#include "ir/call.h"
#include "ir/graph.h"

namespace graven::codegen {

ir::KernelCall lower_for_cpu(const ir::NodeView& node);

/// Whether a kernel for the node's half types is better than the one for f32: there is a fast one, or none of f32.
bool takes_half_on_cpu(const ir::NodeView& node);

}  // namespace graven::codegen
