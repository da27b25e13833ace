// The table of operators as Markdown, made from their entries: `graven ops --markdown` prints it, docs/operators.md is
// its output.
#pragma once

#include <string>

namespace graven::ir {

/// One row an operator, in the order of op_list.inc: name, inputs, attributes with defaults, what it computes, whether
/// it is differentiable, and the dtypes that it takes.
std::string operator_table();

}  // namespace graven::ir
