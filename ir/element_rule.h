// What an elementwise operator makes of one element of each of its inputs, stated once: a formula in the operator's
// file. The functors of emitted projects, of eager mode and of the references are printed from it
// (codegen/emit/functor.h), constants are folded with it, and what it limits its input to is read off it.
//
//   .scalar = [](ElementRule& e) { return select(e.x() > 0, e.x(), e["alpha"] * expm1(e.x())); }
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "ir/op.h"
#include "ir/scalar.h"

namespace graven::ir {

class ElementRule : public Formula {
 public:
  /// Runs the operator's rule.
  explicit ElementRule(const OpDef& op);

  // ---- what a rule is made of ----
  Scalar x() { return input(0); }
  Scalar y() { return input(1); }
  Scalar z() { return input(2); }
  /// The value of an attribute of type boolean, integer or number.
  Scalar operator[](std::string_view attribute);

  // ---- what it has become ----
  std::int32_t result() const { return result_; }
  /// Whether the result is a bool whatever the numbers are.
  bool gives_boolean() const { return term(result_).boolean; }
  /// Whether it adds, subtracts, multiplies or negates, which wraps around of integers.
  bool wraps() const;

  using AttributeValue = std::function<double(std::string_view name)>;
  /// Of a tensor of this dtype. Functions are computed in double, and every term is rounded as the kernels round it: a
  /// difference of numbers that are nearly the same is theirs. No number where that is not what they compute: of the
  /// bits of integers.
  std::optional<double> evaluate(std::span<const double> inputs, const AttributeValue& attribute, DType dtype) const;
  /// Of a rule that is min(max(x, least), most) and leaves NaN as it is: least and most.
  std::optional<std::pair<double, double>> limits(const AttributeValue& attribute) const;

 private:
  Scalar input(std::size_t i);
  bool is_same(std::int32_t a, std::int32_t b) const;
  std::optional<std::pair<double, double>> limits(std::int32_t t, std::int32_t of,
                                                  const AttributeValue& attribute) const;

  const OpDef& op_;
  std::int32_t result_ = -1;
};

/// The rule of an elementwise operator. Internal error for another.
const ElementRule& element_rule(const OpDef& op);

}  // namespace graven::ir
