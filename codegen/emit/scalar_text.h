// C++ text of the terms of formulas (ir/scalar.h), which rules of elements and of optimizers have in common.
#pragma once

#include <functional>
#include <string>

#include "ir/scalar.h"

namespace graven::codegen {

/// How tightly C++ binds the text of a term: 0 a choice, 1 & and |, 2 a comparison, 3 a sum, 4 a product, 5 a sign, 6
/// what never needs parentheses.
int binding(const ir::FormulaTerm& term, bool wrapping = false);

struct ScalarStyle {
  std::string zero = "T(0)";  ///< what nonzero compares with
  std::string type = "T";     ///< of a number
  bool wrapping = false;      ///< integers: sums, differences and products wrap around
};

/// The text of what a term makes of its arguments. `argument(i, least)` is that of the argument i, in parentheses where
/// it binds less tightly than `least`.
std::string operation_text(const ir::FormulaTerm& term,
                           const std::function<std::string(std::size_t i, int least)>& argument,
                           const ScalarStyle& style);

/// A number as C++ text that reads back to the same double: "0.5", "1e-05", "-0.0"; infinities and NaN as builtins.
std::string number_text(double value);

}  // namespace graven::codegen
