// Every operator by the name of its entry: `node.is(kRelu)`, `graph.add_node(kMul, ...)`. What is misspelt does not
// compile.
#pragma once

#include "ir/op.h"

namespace graven::ir {

#define GRAVEN_OP(symbol) extern const OpDef symbol;
#include "ir/op_list.inc"
#undef GRAVEN_OP

}  // namespace graven::ir
