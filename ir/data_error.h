// What is wrong with numbers in the data, which kernels find while they run: an index out of range, a probability that
// is none.
#pragma once

#include <string>

#include "ir/diagnostic.h"

namespace graven::ir {

/// A kernel's text as an error of its operator: "gather: index 7 at position 0 is outside [0, 5)".
UserError data_error(const std::string& text);

}  // namespace graven::ir
