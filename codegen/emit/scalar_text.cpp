#include "codegen/emit/scalar_text.h"

#include <fmt/format.h>

#include <cmath>

#include "ir/diagnostic.h"

namespace graven::codegen {

using Kind = ir::FormulaTerm::Kind;

namespace {

/// Of integers: the function of kernels/cpu/scalar_math.h that wraps around where C++ leaves open what happens.
std::string_view wrapping_function(const ir::FormulaTerm& term) {
  if (term.kind == Kind::negate) return "neg";
  if (term.kind != Kind::infix) return "";
  return term.name == "+" ? "add" : term.name == "-" ? "sub" : term.name == "*" ? "mul" : "";
}

std::string call_text(std::string_view name, const ir::FormulaTerm& term,
                      const std::function<std::string(std::size_t, int)>& argument) {
  std::string list;
  for (std::size_t i = 0; i < term.arguments.size(); ++i) list += (i ? ", " : "") + argument(i, 0);
  return fmt::format("math::{}({})", name, list);
}

}  // namespace

int binding(const ir::FormulaTerm& term, bool wrapping) {
  if (wrapping && !wrapping_function(term).empty()) return 6;
  switch (term.kind) {
    case Kind::select:
      return 0;
    case Kind::nonzero:
    case Kind::is_first_step:
      return 2;
    case Kind::negate:
      return 5;
    case Kind::infix:
      if (term.boolean) return term.name == "&" || term.name == "|" ? 1 : 2;
      return term.name == "+" || term.name == "-" ? 3 : 4;
    default:
      return 6;
  }
}

std::string operation_text(const ir::FormulaTerm& term,
                           const std::function<std::string(std::size_t i, int least)>& argument,
                           const ScalarStyle& style) {
  if (style.wrapping && !wrapping_function(term).empty()) return call_text(wrapping_function(term), term, argument);
  switch (term.kind) {
    case Kind::nonzero:
      return argument(0, 3) + " != " + style.zero;
    case Kind::negate:
      return "-" + argument(0, 5);
    case Kind::infix: {
      // Compilers want parentheses around comparisons on either side, and around & in a condition.
      std::string left = argument(0, term.boolean ? 3 : binding(term));
      return left + " " + term.name + " " + argument(1, term.boolean ? 3 : binding(term) + 1);
    }
    case Kind::bitwise: {
      std::string left = argument(0, 6);
      return style.type + "(" + left + " " + term.name + " " + argument(1, 6) + ")";
    }
    case Kind::select: {
      const std::string condition = argument(0, 2), yes = argument(1, 2);
      return condition + " ? " + yes + " : " + argument(2, 0);
    }
    case Kind::function:
      return call_text(term.name, term, argument);
    default:
      GRAVEN_CHECK(false, "a term that makes nothing of others");
      return {};
  }
}

std::string number_text(double value) {
  if (std::isnan(value)) return "__builtin_nan(\"\")";
  if (std::isinf(value)) return value > 0 ? "__builtin_inf()" : "-__builtin_inf()";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0";
  std::string text = fmt::format("{}", value);
  // A whole number that no integer literal holds must read as a double.
  if (std::abs(value) >= 9e18 && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace graven::codegen
