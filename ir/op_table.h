// The table of operators as Markdown, made from their entries: `graven ops --markdown` prints it, docs/operators.md is
// its output.
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"

namespace graven::ir {

/// The dtypes that an operator claims: those that inference accepts in the place of the one that the last input of its
/// first test case has. Empty for an operator without inputs.
std::vector<DType> claimed_dtypes(const OpDef& op);

/// One row an operator, in the order of op_list.inc: name, inputs, attributes with defaults, what it computes, whether
/// it is differentiable, and the dtypes that it claims.
std::string operator_table();

}  // namespace graven::ir
