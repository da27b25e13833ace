// Elementary functions for the bodies of elementwise operators on CUDA devices: math::exp(x) and the like, with the
// names of cpu/scalar_math.h, for float and double, and integers where that makes sense. Those of CUDA's mathematical
// library at full precision: at most 2 units in the last place for float (pow 4; CUDA C++ Programming Guide,
// "Mathematical Functions").
//
//   y[i] = x[i] * math::sigmoid(x[i]);
#pragma once

#include <cstdint>

#include "../config/device.h"
#include "../cpu/dtype.h"
#ifndef __CUDACC_RTC__
#include <cmath>
#endif

namespace graven::kernels {
namespace math {

// ---- any arithmetic type --------------------------------------------------------------------------------------------

template <class T>
GRAVEN_DEVICE inline bool isnan(T x) {
  return x != x;
}
/// NaN where either is NaN.
template <class T>
GRAVEN_DEVICE inline T max(T x, T y) {
  return x > y ? x : (x != x ? x : y);
}
template <class T>
GRAVEN_DEVICE inline T min(T x, T y) {
  return x < y ? x : (x != x ? x : y);
}
template <class T>
GRAVEN_DEVICE inline T maximum(T x, T y) {
  return max(x, y);
}
template <class T>
GRAVEN_DEVICE inline T minimum(T x, T y) {
  return min(x, y);
}
/// -1, 0 or 1; 0 for NaN.
template <class T>
GRAVEN_DEVICE inline T sign(T x) {
  return static_cast<T>(static_cast<T>(x > T(0)) - static_cast<T>(x < T(0)));
}
// Sums, differences and products; those of integers wrap around.
template <class T>
GRAVEN_DEVICE inline T add(T x, T y) {
  return static_cast<T>(static_cast<wrapping_t<T>>(x) + static_cast<wrapping_t<T>>(y));
}
template <class T>
GRAVEN_DEVICE inline T sub(T x, T y) {
  return static_cast<T>(static_cast<wrapping_t<T>>(x) - static_cast<wrapping_t<T>>(y));
}
template <class T>
GRAVEN_DEVICE inline T mul(T x, T y) {
  return static_cast<T>(static_cast<wrapping_t<T>>(x) * static_cast<wrapping_t<T>>(y));
}
/// Of an integer 0 - x: the least is its own.
template <class T>
GRAVEN_DEVICE inline T neg(T x) {
  if constexpr (types::is_integer<T>)
    return sub(T(0), x);
  else
    return -x;
}
/// Integers; the most negative number is its own.
template <class T>
GRAVEN_DEVICE inline T abs(T x) {
  return x < T(0) ? neg(x) : x;
}
template <class T>
GRAVEN_DEVICE inline T floor(T x) {
  return x;
}
template <class T>
GRAVEN_DEVICE inline T ceil(T x) {
  return x;
}
template <class T>
GRAVEN_DEVICE inline T trunc(T x) {
  return x;
}
template <class T>
GRAVEN_DEVICE inline T round(T x) {
  return x;
}
/// Integer power, modulo the type's range; a negative exponent gives 0, or +-1 for bases of +-1.
template <class T>
GRAVEN_DEVICE inline T pow(T x, T y) {
  std::uint64_t base = static_cast<std::uint64_t>(x), result = 1;
  if (y < T(0)) return x == T(1) ? T(1) : x == static_cast<T>(-1) ? ((y & T(1)) != T(0) ? x : T(1)) : T(0);
  for (std::uint64_t e = static_cast<std::uint64_t>(y); e != 0; e >>= 1) {
    if (e & 1u) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}
/// Integer quotient rounded toward zero; 0 for a divisor of 0.
template <class T>
GRAVEN_DEVICE inline T divide(T x, T y) {
  return y == T(0) ? T(0) : T(-1) < T(0) && y == T(-1) ? neg(x) : static_cast<T>(x / y);
}
/// Rounded toward minus infinity.
template <class T>
GRAVEN_DEVICE inline T floor_divide(T x, T y) {
  const T q = divide(x, y);
  const T r = sub(x, mul(q, y));
  return static_cast<T>(q - static_cast<T>(y != T(0) && r != T(0) && (r < T(0)) != (y < T(0))));
}
/// x - y floor_divide(x, y): the sign of y, as in Python. 0 for a divisor of 0.
template <class T>
GRAVEN_DEVICE inline T fmod(T x, T y) {
  return y == T(0) ? T(0) : sub(x, mul(divide(x, y), y));
}
template <class T>
GRAVEN_DEVICE inline T remainder(T x, T y) {
  return y == T(0) ? T(0) : sub(x, mul(floor_divide(x, y), y));
}

// ---- float and double -----------------------------------------------------------------------------------------------

GRAVEN_DEVICE inline float abs(float x) { return ::fabsf(x); }
GRAVEN_DEVICE inline double abs(double x) { return ::fabs(x); }

GRAVEN_DEVICE inline float floor(float x) { return ::floorf(x); }
GRAVEN_DEVICE inline double floor(double x) { return ::floor(x); }

GRAVEN_DEVICE inline float ceil(float x) { return ::ceilf(x); }
GRAVEN_DEVICE inline double ceil(double x) { return ::ceil(x); }

GRAVEN_DEVICE inline float trunc(float x) { return ::truncf(x); }
GRAVEN_DEVICE inline double trunc(double x) { return ::trunc(x); }

/// Halves go to the even neighbour.
GRAVEN_DEVICE inline float round(float x) { return ::rintf(x); }
GRAVEN_DEVICE inline double round(double x) { return ::rint(x); }

GRAVEN_DEVICE inline float sqrt(float x) { return ::sqrtf(x); }
GRAVEN_DEVICE inline double sqrt(double x) { return ::sqrt(x); }

GRAVEN_DEVICE inline float exp(float x) { return ::expf(x); }
GRAVEN_DEVICE inline double exp(double x) { return ::exp(x); }

GRAVEN_DEVICE inline float expm1(float x) { return ::expm1f(x); }
GRAVEN_DEVICE inline double expm1(double x) { return ::expm1(x); }

GRAVEN_DEVICE inline float log(float x) { return ::logf(x); }
GRAVEN_DEVICE inline double log(double x) { return ::log(x); }

GRAVEN_DEVICE inline float log2(float x) { return ::log2f(x); }
GRAVEN_DEVICE inline double log2(double x) { return ::log2(x); }

GRAVEN_DEVICE inline float log10(float x) { return ::log10f(x); }
GRAVEN_DEVICE inline double log10(double x) { return ::log10(x); }

GRAVEN_DEVICE inline float log1p(float x) { return ::log1pf(x); }
GRAVEN_DEVICE inline double log1p(double x) { return ::log1p(x); }

GRAVEN_DEVICE inline float tanh(float x) { return ::tanhf(x); }
GRAVEN_DEVICE inline double tanh(double x) { return ::tanh(x); }

GRAVEN_DEVICE inline float erf(float x) { return ::erff(x); }
GRAVEN_DEVICE inline double erf(double x) { return ::erf(x); }

GRAVEN_DEVICE inline float erfc(float x) { return ::erfcf(x); }
GRAVEN_DEVICE inline double erfc(double x) { return ::erfc(x); }

GRAVEN_DEVICE inline float sin(float x) { return ::sinf(x); }
GRAVEN_DEVICE inline double sin(double x) { return ::sin(x); }

GRAVEN_DEVICE inline float cos(float x) { return ::cosf(x); }
GRAVEN_DEVICE inline double cos(double x) { return ::cos(x); }

GRAVEN_DEVICE inline float tan(float x) { return ::tanf(x); }
GRAVEN_DEVICE inline double tan(double x) { return ::tan(x); }

GRAVEN_DEVICE inline float asin(float x) { return ::asinf(x); }
GRAVEN_DEVICE inline double asin(double x) { return ::asin(x); }

GRAVEN_DEVICE inline float acos(float x) { return ::acosf(x); }
GRAVEN_DEVICE inline double acos(double x) { return ::acos(x); }

GRAVEN_DEVICE inline float atan(float x) { return ::atanf(x); }
GRAVEN_DEVICE inline double atan(double x) { return ::atan(x); }

GRAVEN_DEVICE inline float sinh(float x) { return ::sinhf(x); }
GRAVEN_DEVICE inline double sinh(double x) { return ::sinh(x); }

GRAVEN_DEVICE inline float cosh(float x) { return ::coshf(x); }
GRAVEN_DEVICE inline double cosh(double x) { return ::cosh(x); }

GRAVEN_DEVICE inline float asinh(float x) { return ::asinhf(x); }
GRAVEN_DEVICE inline double asinh(double x) { return ::asinh(x); }

GRAVEN_DEVICE inline float acosh(float x) { return ::acoshf(x); }
GRAVEN_DEVICE inline double acosh(double x) { return ::acosh(x); }

GRAVEN_DEVICE inline float atanh(float x) { return ::atanhf(x); }
GRAVEN_DEVICE inline double atanh(double x) { return ::atanh(x); }

GRAVEN_DEVICE inline float copysign(float x, float y) { return ::copysignf(x, y); }
GRAVEN_DEVICE inline double copysign(double x, double y) { return ::copysign(x, y); }

GRAVEN_DEVICE inline float pow(float x, float y) { return ::powf(x, y); }
GRAVEN_DEVICE inline double pow(double x, double y) { return ::pow(x, y); }
GRAVEN_DEVICE inline float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
GRAVEN_DEVICE inline double fma(double x, double y, double z) { return ::fma(x, y, z); }
/// x^n for n >= 0, in products alone.
GRAVEN_DEVICE inline double power(double x, std::int64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1, x *= x)
    if ((n & 1) != 0) result *= x;
  return result;
}
/// The product of 1 - x exp(i log_decay) for i from 1 to n, with 0 <= x <= 1/2: its logarithm as a series in x, whose
/// terms are sums of powers.
GRAVEN_DEVICE inline double decaying_product(double x, double log_decay, std::int64_t n) {
  double sum = 0, power_of_x = 1;
  for (int k = 1; k <= 56; ++k) {
    const double rate = k * log_decay;
    power_of_x *= x;
    sum +=
        power_of_x / k *
        (rate == 0 ? static_cast<double>(n) : ::exp(rate) * (::expm1(static_cast<double>(n) * rate) / ::expm1(rate)));
  }
  return ::exp(-sum);
}

GRAVEN_DEVICE inline float fmod(float x, float y) { return ::fmodf(x, y); }
GRAVEN_DEVICE inline double fmod(double x, double y) { return ::fmod(x, y); }

GRAVEN_DEVICE inline float atan2(float x, float y) { return ::atan2f(x, y); }
GRAVEN_DEVICE inline double atan2(double x, double y) { return ::atan2(x, y); }

GRAVEN_DEVICE inline bool isinf(float x) { return abs(x) == static_cast<float>(__builtin_huge_val()); }
GRAVEN_DEVICE inline bool isfinite(float x) { return abs(x) < static_cast<float>(__builtin_huge_val()); }
GRAVEN_DEVICE inline float rsqrt(float x) { return 1.0f / sqrt(x); }
GRAVEN_DEVICE inline float reciprocal(float x) { return 1.0f / x; }
GRAVEN_DEVICE inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
/// log(1 + exp(x))
GRAVEN_DEVICE inline float softplus(float x) { return (x > 0.0f ? x : 0.0f) + log1p(exp(-abs(x))); }
GRAVEN_DEVICE inline float divide(float x, float y) { return x / y; }
/// The exact quotient's floor, as Python has it: what x / y rounds up to a whole number is not that number yet.
GRAVEN_DEVICE inline float floor_divide(float x, float y) {
  if (y == 0.0f) return x / y;
  const float r = fmod(x, y), q = (x - r) / y - (r != 0.0f && (r < 0.0f) != (y < 0.0f) ? 1.0f : 0.0f), z = floor(q);
  return q == 0.0f ? copysign(0.0f, x / y) : q - z > 0.5f ? z + 1.0f : z;
}
/// The sign of y, as in Python.
GRAVEN_DEVICE inline float remainder(float x, float y) {
  const float r = fmod(x, y);
  return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r;
}
GRAVEN_DEVICE inline bool isinf(double x) { return abs(x) == static_cast<double>(__builtin_huge_val()); }
GRAVEN_DEVICE inline bool isfinite(double x) { return abs(x) < static_cast<double>(__builtin_huge_val()); }
GRAVEN_DEVICE inline double rsqrt(double x) { return 1.0 / sqrt(x); }
GRAVEN_DEVICE inline double reciprocal(double x) { return 1.0 / x; }
GRAVEN_DEVICE inline double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
/// log(1 + exp(x))
GRAVEN_DEVICE inline double softplus(double x) { return (x > 0.0 ? x : 0.0) + log1p(exp(-abs(x))); }
GRAVEN_DEVICE inline double divide(double x, double y) { return x / y; }
GRAVEN_DEVICE inline double floor_divide(double x, double y) {
  if (y == 0.0) return x / y;
  const double r = fmod(x, y), q = (x - r) / y - (r != 0.0 && (r < 0.0) != (y < 0.0) ? 1.0 : 0.0), z = floor(q);
  return q == 0.0 ? copysign(0.0, x / y) : q - z > 0.5 ? z + 1.0 : z;
}
/// The sign of y, as in Python.
GRAVEN_DEVICE inline double remainder(double x, double y) {
  const double r = fmod(x, y);
  return r != 0.0 && (r < 0.0) != (y < 0.0) ? r + y : r;
}

}  // namespace math
}  // namespace graven::kernels
