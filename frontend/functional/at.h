// Arithmetic that keeps the line of the user's call, for functions that are made of others.
//
//   const At at(x.where());
//   return at.mul(at.add(a, 1), b);
#pragma once

#include "frontend/dispatch.h"
#include "graven/functional.h"

namespace graven::detail {

/// factor * x in `dtype`, as add's alpha and addmm's beta scale: integers stay integers, for which the factor must be
/// whole; bools are refused.
Operand scaled(const Operand& x, double factor, DType dtype, const char* function);

/// number / size, for arithmetic with tensors of this dtype: of a symbol as a tensor that is computed when the graph
/// runs.
inline Operand over_size(double number, const Dim& size, DType dtype, const char* function, Location where) {
  if (size.is_static()) return {number / static_cast<double>(size.value()), where};
  const Operand value(size_value(size, dtype, function, where), where);
  return {graven::mul(Operand(graven::reciprocal(value), where), Operand(number, where)), where};
}

class At {
 public:
  explicit At(Location where) : where_(where) {}
  Operand operator()(const Tensor& t) const { return {t, where_}; }
  Operand operator()(double number) const { return {number, where_}; }
  Operand operator()(const Operand& x) const {
    return x.is_tensor() ? Operand(x.tensor(function()), where_) : Operand(x.scalar(), where_);
  }
  template <class A, class B>
  Tensor add(const A& a, const B& b) const {
    return graven::add((*this)(a), (*this)(b));
  }
  template <class A, class B>
  Tensor sub(const A& a, const B& b) const {
    return graven::sub((*this)(a), (*this)(b));
  }
  template <class A, class B>
  Tensor mul(const A& a, const B& b) const {
    return graven::mul((*this)(a), (*this)(b));
  }
  template <class A, class B>
  Tensor div(const A& a, const B& b) const {
    return graven::div((*this)(a), (*this)(b));
  }
  Location where() const { return where_; }

 private:
  const char* function() const { return where_.function == nullptr ? "" : where_.function; }

  Location where_;
};

}  // namespace graven::detail
