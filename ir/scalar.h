// Numbers that are computed by a formula which is stated once: what an elementwise operator makes of an element
// (ir/element_rule.h), what an optimizer's step makes of a parameter (ir/update_rule.h). A formula is a list of terms,
// each made of earlier ones. C++ text, folded constants and bounds are read off it.
//
//   const Scalar y = x / (1 + exp(-x));      // adds terms to the formula that x belongs to
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace graven::ir {

class Formula;

/// A number of a formula, or a constant. Arithmetic with it adds terms to the formula.
class Scalar {
 public:
  Scalar(double constant) : constant_(constant) {}
  Scalar(Formula& formula, std::int32_t term) : formula_(&formula), term_(term) {}

  friend Scalar operator+(const Scalar& x, const Scalar& y) { return infix("+", x, y); }
  friend Scalar operator-(const Scalar& x, const Scalar& y) { return infix("-", x, y); }
  friend Scalar operator*(const Scalar& x, const Scalar& y) { return infix("*", x, y); }
  friend Scalar operator/(const Scalar& x, const Scalar& y) { return infix("/", x, y); }
  friend Scalar operator<(const Scalar& x, const Scalar& y) { return infix("<", x, y); }
  friend Scalar operator>(const Scalar& x, const Scalar& y) { return infix(">", x, y); }
  friend Scalar operator<=(const Scalar& x, const Scalar& y) { return infix("<=", x, y); }
  friend Scalar operator>=(const Scalar& x, const Scalar& y) { return infix(">=", x, y); }
  friend Scalar operator==(const Scalar& x, const Scalar& y) { return infix("==", x, y); }
  friend Scalar operator!=(const Scalar& x, const Scalar& y) { return infix("!=", x, y); }
  /// Of booleans.
  friend Scalar operator&(const Scalar& x, const Scalar& y) { return infix("&", x, y); }
  friend Scalar operator|(const Scalar& x, const Scalar& y) { return infix("|", x, y); }
  Scalar operator-() const;

 private:
  friend class Formula;
  static Scalar infix(const char* name, const Scalar& x, const Scalar& y);
  Formula* formula_ = nullptr;
  std::int32_t term_ = -1;
  double constant_ = 0;
};

/// condition ? yes : no
Scalar select(const Scalar& condition, const Scalar& yes, const Scalar& no);
/// x != 0, a boolean; of a boolean itself.
Scalar nonzero(const Scalar& x);
/// x * y + z, rounded once where the processor has an instruction for it.
Scalar fma(const Scalar& x, const Scalar& y, const Scalar& z);

// The functions of kernels/cpu/scalar_math.h; max and min are NaN where either is, sign is -1, 0 or 1.
#define GRAVEN_FUNCTION_OF_ONE(name) Scalar name(const Scalar& x);
#define GRAVEN_FUNCTION_OF_TWO(name) Scalar name(const Scalar& x, const Scalar& y);
#define GRAVEN_QUESTION_OF_ONE(name) Scalar name(const Scalar& x);
#include "ir/scalar_functions.inc"

// Of the bits of integers.
Scalar bitwise_and(const Scalar& x, const Scalar& y);
Scalar bitwise_or(const Scalar& x, const Scalar& y);
Scalar bitwise_xor(const Scalar& x, const Scalar& y);

// Of an optimizer's step.
/// x to the power of the step, a whole number.
Scalar power_of_step(const Scalar& x);
/// The product of 1 - x exp(i log_decay) for i from 1 to the step.
Scalar decaying_product(const Scalar& x, const Scalar& log_decay);

struct FormulaTerm {
  /// What it depends on, and so how often it is computed.
  enum class Level : std::uint8_t { constant, step, tensor, element };
  enum class Kind : std::uint8_t {
    constant,   ///< `value`
    attribute,  ///< `name`
    input,      ///< of an elementwise operator: that of the number `value`
    nonzero,
    negate,
    infix,     ///< `name` is the operator
    bitwise,   ///< likewise, of the bits of integers
    function,  ///< `name` is one of kernels/cpu/scalar_math.h
    select,    ///< the first argument ? the second : the third
    // Of an optimizer:
    rate,
    step,
    is_first_step,
    power_of_step,  ///< the argument to the power of the step
    parameter,
    gradient,
    state,  ///< `name`
    norm,   ///< of order 2, of the argument over the whole tensor
  };
  Kind kind;
  Level level;
  std::vector<std::int32_t> arguments = {};
  std::string name = {};
  double value = 0;
  bool boolean = false;
  std::string label = {};  ///< its name in the text
};

class Formula {
 public:
  Formula() = default;
  Formula(const Formula&) = delete;
  Formula& operator=(const Formula&) = delete;

  const std::vector<FormulaTerm>& terms() const { return terms_; }
  const FormulaTerm& term(std::int32_t t) const { return terms_[static_cast<std::size_t>(t)]; }

  /// The number that `kind` makes of others, of which at least one is no constant.
  static Scalar make(FormulaTerm::Kind kind, std::string name, const std::vector<Scalar>& arguments,
                     bool boolean = false);

 protected:
  std::int32_t add(FormulaTerm term);
  std::int32_t term_of(const Scalar& x);
  /// Nothing, of a constant, of what is given, and of what has one.
  void set_label(const Scalar& x, std::string_view label);

 private:
  std::vector<FormulaTerm> terms_;
};

/// What a function of one or two numbers, or an operator between two, makes of them in double: the kernels' own.
/// Internal error for a name that is none.
double apply_function(std::string_view name, double x, double y);
double apply_infix(std::string_view name, double x, double y);

}  // namespace graven::ir
