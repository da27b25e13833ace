// Arithmetic that keeps the line of the user's call, for functions that are made of others.
//
//   const At at(x.where());
//   return at.mul(at.add(a, 1), b);
#pragma once

#include "graven/functional.h"

namespace graven::detail {

/// factor * x in `dtype`, as add's alpha and addmm's beta scale: integers stay integers, for which the factor must be whole; bools are refused.
Operand scaled(const Operand& x, double factor, DType dtype, const char* function);

class At {
 public:
  explicit At(Location where) : where_(where) {}
  Operand operator()(const Tensor& t) const { return {t, where_}; }
  Operand operator()(double number) const { return {number, where_}; }
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
  Location where_;
};

}  // namespace graven::detail
