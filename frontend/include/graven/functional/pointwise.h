// Elementwise arithmetic and functions: each is one elementwise operator, or a few that are fused. All broadcast, and
// promote dtypes as PyTorch does.
//
//   Tensor y = where(x > 0, x, exp(x) - 1);
//   Tensor angle = atan2(y, x);
#pragma once

#include <optional>
#include <string_view>

#include "graven/tensor.h"

namespace graven {

// ---- arithmetic, comparisons ----
Tensor add(const Operand& a, const Operand& b, double alpha = 1);
Tensor sub(const Operand& a, const Operand& b, double alpha = 1);
Tensor mul(const Operand& a, const Operand& b);
/// True division: integers give f32.
Tensor div(const Operand& a, const Operand& b);
/// Of integers exactly, wrapping around; a negative number as their exponent is an error.
Tensor pow(const Operand& base, const Operand& exponent);
Tensor maximum(const Operand& a, const Operand& b);
Tensor minimum(const Operand& a, const Operand& b);
Tensor eq(const Operand& a, const Operand& b);
Tensor ne(const Operand& a, const Operand& b);
Tensor lt(const Operand& a, const Operand& b);
Tensor le(const Operand& a, const Operand& b);
Tensor gt(const Operand& a, const Operand& b);
Tensor ge(const Operand& a, const Operand& b);
Tensor logical_and(const Operand& a, const Operand& b);
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_not(const Operand& x);
/// x where the condition, which is bool, holds; y elsewhere.
Tensor where(const Operand& condition, const Operand& x, const Operand& y);

// ---- of one tensor; integers and bools give f32 where the results are no whole numbers ----
Tensor neg(const Operand& x);
Tensor abs(const Operand& x);
Tensor sign(const Operand& x);
Tensor exp(const Operand& x);
Tensor expm1(const Operand& x);
Tensor log(const Operand& x);
Tensor log1p(const Operand& x);
Tensor sqrt(const Operand& x);
Tensor rsqrt(const Operand& x);
Tensor square(const Operand& x);
Tensor reciprocal(const Operand& x);
Tensor sin(const Operand& x);
Tensor cos(const Operand& x);
Tensor erf(const Operand& x);
Tensor floor(const Operand& x);
Tensor ceil(const Operand& x);
Tensor round(const Operand& x);
Tensor tan(const Operand& x);
Tensor asin(const Operand& x);
Tensor acos(const Operand& x);
Tensor atan(const Operand& x);
Tensor sinh(const Operand& x);
Tensor cosh(const Operand& x);
Tensor asinh(const Operand& x);
Tensor acosh(const Operand& x);
Tensor atanh(const Operand& x);
Tensor exp2(const Operand& x);
Tensor log2(const Operand& x);
Tensor log10(const Operand& x);
Tensor erfc(const Operand& x);
/// Towards 0; integers as they are.
Tensor trunc(const Operand& x);
/// x - trunc(x)
Tensor frac(const Operand& x);
/// bool
Tensor isnan(const Operand& x);
Tensor isinf(const Operand& x);
Tensor isfinite(const Operand& x);
/// NaN becomes `nan`, the infinities the largest numbers of the dtype unless others are given.
Tensor nan_to_num(const Operand& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
/// Integers and bools: every bit turned.
Tensor bitwise_not(const Operand& x);

// ---- of two or three ----
/// The angle of the point (x, y).
Tensor atan2(const Operand& y, const Operand& x);
/// log(exp(x) + exp(y)), without overflow.
Tensor logaddexp(const Operand& x, const Operand& y);
/// x / y rounded down, of integers too: Python's //. The quotient is rounded as it is exactly, so floor_divide(1, 0.1)
/// is 9. The gradient is 0; integers over 0 give 0.
Tensor floor_divide(const Operand& x, const Operand& y);
/// x / y rounded: "floor", as floor_divide, or "trunc", towards 0, as C's integers. Keeps integers.
Tensor div(const Operand& x, const Operand& y, std::string_view rounding_mode);
/// With the sign of the divisor (remainder: Python's %) or of the dividend (fmod: C's).
Tensor remainder(const Operand& x, const Operand& y);
Tensor fmod(const Operand& x, const Operand& y);
Tensor logical_xor(const Operand& a, const Operand& b);
/// Integers or bools.
Tensor bitwise_and(const Operand& a, const Operand& b);
Tensor bitwise_or(const Operand& a, const Operand& b);
Tensor bitwise_xor(const Operand& a, const Operand& b);
/// start + weight * (end - start)
Tensor lerp(const Operand& start, const Operand& end, const Operand& weight);
/// x + value * a * b; x + value * a / b
Tensor addcmul(const Operand& x, const Operand& a, const Operand& b, double value = 1);
Tensor addcdiv(const Operand& x, const Operand& a, const Operand& b, double value = 1);
/// min(max(x, min), max); {}: no limit. Integers become f32 where a limit is a floating-point number, 0.5 or 1.0.
Tensor clamp(const Operand& x, std::optional<Scalar> min = {}, std::optional<Scalar> max = {});
/// With tensors as limits; an undefined one is none.
Tensor clamp(const Operand& x, const Tensor& min, const Tensor& max);
/// clamp's other name.
Tensor clip(const Operand& x, std::optional<Scalar> min = {}, std::optional<Scalar> max = {});
Tensor clip(const Operand& x, const Tensor& min, const Tensor& max);
/// bool: whether each element is one of `of`; with invert whether it is none.
Tensor isin(const Operand& x, const Tensor& of, bool invert = false);
/// bool: |a - b| <= atol + rtol |b|; infinities are close to themselves, NaN to NaN with equal_nan alone.
Tensor isclose(const Operand& a, const Operand& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);

/// log(x / (1 - x)); with eps, of x held in [eps, 1 - eps].
Tensor logit(const Operand& x, std::optional<double> eps = {});
/// x log y, 0 where x is 0 (NaN where y is NaN). Its slope in y is 0 where both are 0; PyTorch's is NaN there.
Tensor xlogy(const Operand& x, const Operand& y);

}  // namespace graven
