// Elementary functions for the bodies of elementwise operators: math::exp(x) and the like, for float and double (and
// integers where that makes sense). The float versions are branch-free and call nothing but fmod, which is exact: g++
// and clang++ vectorise a loop over them (-O3 -fno-math-errno -fno-trapping-math), and their bits are the same
// everywhere. The double versions are the C library's.
//
//   for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * math::sigmoid(x[i]);
//
// Largest error of the float versions over all floats, in units in the last place (measured by
// tests/kernels/scalar_math_test.cpp): exp 1.1, expm1 1.6, log 0.9, log2 1.4, log10 2, log1p 1, tanh 2.5, sigmoid 2.5,
// softplus 1.8, erf 1.2, pow 0.6, sqrt 0.5, rsqrt 1.5, sin and cos 1.7 for |x| <= 1e15, tan, asin, acos, atan, atan2,
// sinh, cosh, asinh, acosh, atanh and erfc, in double inside, 0.6. Beyond 1e15, where neighbouring floats are ten
// million turns apart, sin and cos are some number from -1 to 1 and tan one of its numbers; without an instruction that
// multiplies and adds, the error of the three grows from 1e5 on as 1e-16 |x|. Infinities, NaN, zeros and subnormal
// numbers give what the C library gives, except that sin(-0) and log1p(-0) are +0 and sigmoid is 0 below -88.8, where
// its value is subnormal.
//
// The polynomials are those of Moshier's Cephes library (exp, log, sin, cos) and of N. Juffa's erff; the rest is
// derived in place.
#pragma once

#include <cstdint>

#include "dtype.h"
#include "level.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace math {

using kernels::fma;  // of rules and functors

namespace detail {

GRAVEN_ALWAYS_INLINE float as_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
GRAVEN_ALWAYS_INLINE std::uint32_t as_bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }

inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kNaN = __builtin_nanf("");
// Adding it leaves the nearest integer in the low bits of a float's fraction (|x| < 2^22).
inline constexpr float kRoundToInteger = 12582912.0f;

/// 2^n for n in [-126, 127], n given modulo 2^32.
GRAVEN_ALWAYS_INLINE float power_of_two(std::uint32_t n) { return as_float((n + 127u) << 23); }
/// n / 2 rounded down.
GRAVEN_ALWAYS_INLINE std::uint32_t halved(std::uint32_t n) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(n) >> 1);
}

/// x = n ln 2 + r, |r| <= ln 2 / 2 (a little more at the ends).
struct ExpParts {
  float r;
  std::uint32_t n;
  float expm1;  // exp(r) - 1
};
GRAVEN_ALWAYS_INLINE ExpParts exp_parts(float x) {
  const float shifted = fma(x, 1.44269504f, kRoundToInteger);
  const float n = shifted - kRoundToInteger;
  const float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  return {r, as_bits(shifted) - as_bits(kRoundToInteger), fma(p, r * r, r)};
}

/// log(x) = e ln 2 + log(1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1]; x positive and normal after scaling.
struct LogParts {
  float e, f;
  float log1p;  // log(1 + f) - f
};
GRAVEN_ALWAYS_INLINE LogParts log_parts(float x) {
  const bool subnormal = x < 1.17549435e-38f;
  const std::uint32_t bits = as_bits(subnormal ? x * 8388608.0f : x);
  const std::uint32_t above = bits - 0x3f3504f3u;  // sqrt(1/2)
  const std::int32_t exponent = static_cast<std::int32_t>(above) >> 23;
  const float f = as_float((above & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float e = static_cast<float>(exponent) - (subnormal ? 23.0f : 0.0f);
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = fma(p, f, -1.1514610310e-1f);
  p = fma(p, f, 1.1676998740e-1f);
  p = fma(p, f, -1.2420140846e-1f);
  p = fma(p, f, 1.4249322787e-1f);
  p = fma(p, f, -1.6668057665e-1f);
  p = fma(p, f, 2.0000714765e-1f);
  p = fma(p, f, -2.4999993993e-1f);
  p = fma(p, f, 3.3333331174e-1f);
  return {e, f, fma(p, f * z, -0.5f * z)};
}
/// What log gives outside (0, infinity), else `value`.
GRAVEN_ALWAYS_INLINE float log_special(float x, float value) {
  value = x == kInfinity ? x : value;
  value = x == 0.0f ? -kInfinity : value;
  value = x < 0.0f ? kNaN : value;
  return x != x ? x : value;
}

/// x = n pi/2 + r, |r| <= pi/4.
struct Angle {
  double r;
  std::uint32_t quadrant;  // n modulo 2^32
};
GRAVEN_ALWAYS_INLINE Angle reduced_angle(float x) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 2^52
  const double shifted = fma(static_cast<double>(x), 0.63661977236758134308, kRound);
  const double n = shifted - kRound;
  // pi/2 in two parts. What one instruction leaves of x - n pi/2 is exact for n below 2^50; without it the first part
  // has 33 bits, and the product is exact for n below 2^20.
#if GRAVEN_HAS_FMA
  const double r = fma(n, -6.12323399573676603587e-17, fma(n, -1.57079632679489661923, static_cast<double>(x)));
#else
  const double r = fma(n, -6.07710050650619224932e-11, fma(n, -1.57079632673412561417, static_cast<double>(x)));
#endif
  return {r, static_cast<std::uint32_t>(__builtin_bit_cast(std::uint64_t, shifted))};
}

/// Sine (quadrant 0) of x + quadrant pi/2.
GRAVEN_ALWAYS_INLINE float sine(float x, std::uint32_t quadrant) {
  const Angle angle = reduced_angle(x);
  float r = static_cast<float>(angle.r);
  // Of angles too large for their remainder to be known, so that the sine stays in its range.
  r = r > 1.0f ? 1.0f : r;
  r = r < -1.0f ? -1.0f : r;
  const std::uint32_t q = angle.quadrant + quadrant;
  const float z = r * r;
  // A sine has the sign of its small angle, which the sum of 0 and -0 has not.
  const float s =
      __builtin_copysignf(fma(fma(fma(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f), z * r, r), r);
  const float c = fma(fma(fma(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f), z * z,
                      fma(-0.5f, z, 1.0f));
  const float value = (q & 1u) != 0 ? c : s;
  return as_float(as_bits(value) ^ ((q & 2u) << 30));
}

/// artanh(s) / s, with z = s^2 <= 0.03, to 1e-14.
GRAVEN_ALWAYS_INLINE double artanh_series(double z) {
  double p = 1.0 / 17;
  p = fma(p, z, 1.0 / 15);
  p = fma(p, z, 1.0 / 13);
  p = fma(p, z, 1.0 / 11);
  p = fma(p, z, 1.0 / 9);
  p = fma(p, z, 1.0 / 7);
  p = fma(p, z, 1.0 / 5);
  p = fma(p, z, 1.0 / 3);
  return fma(p, z, 1.0);
}
/// log2 of a positive normal number, in double, to 1e-12.
GRAVEN_ALWAYS_INLINE double log2_double(double x) {
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcdu;
  const std::uint64_t above = __builtin_bit_cast(std::uint64_t, x) - kRootHalf;
  const std::int32_t exponent = static_cast<std::int32_t>(above >> 32) >> 20;
  const double m = __builtin_bit_cast(double, (above & 0x000fffffffffffffu) + kRootHalf);
  const double s = (m - 1.0) / (m + 1.0);
  return fma(s * artanh_series(s * s), 2.88539008177792681472, static_cast<double>(exponent));
}
/// 2^t for |t| <= 1000, in double, to 1e-12.
GRAVEN_ALWAYS_INLINE double exp2_double(double t) {
  constexpr double kRound = 6755399441055744.0;
  const double shifted = t + kRound;
  const double r = (t - (shifted - kRound)) * 0.69314718055994530942;
  double p = 1.0 / 39916800;
  p = fma(p, r, 1.0 / 3628800);
  p = fma(p, r, 1.0 / 362880);
  p = fma(p, r, 1.0 / 40320);
  p = fma(p, r, 1.0 / 5040);
  p = fma(p, r, 1.0 / 720);
  p = fma(p, r, 1.0 / 120);
  p = fma(p, r, 1.0 / 24);
  p = fma(p, r, 1.0 / 6);
  p = fma(p, r, 0.5);
  p = fma(p, r, 1.0);
  p = fma(p, r, 1.0);
  return p * __builtin_bit_cast(double, (__builtin_bit_cast(std::uint64_t, shifted) + 1023u) << 52);
}
/// e^x for |x| <= 600.
GRAVEN_ALWAYS_INLINE double exp_double(double x) { return exp2_double(x * 1.44269504088896340736); }
/// log(1 + u) for u >= 0, to 1e-11 of itself.
GRAVEN_ALWAYS_INLINE double log1p_double(double u) {
  const double s = u / (2.0 + u);
  const double value = u < 0.375 ? 2.0 * s * artanh_series(s * s) : log2_double(1.0 + u) * 0.69314718055994530942;
  return u < static_cast<double>(kInfinity) ? value : u;
}
/// The arc whose tangent is n / d, for n and d >= 0, to 1e-10 of itself; 0 for two zeros.
GRAVEN_ALWAYS_INLINE double arc(double n, double d) {
  constexpr double kInfinite = static_cast<double>(kInfinity);
  const bool steep = n > d;
  const double lesser = steep ? d : n, larger = steep ? n : d;
  double t = lesser / larger;
  t = lesser + larger == 0.0 ? 0.0 : t;
  t = ((lesser == kInfinite) & (larger == kInfinite)) ? 1.0 : t;
  // Half the arc, whose tangent is at most sqrt(2) - 1.
  const double u = t / (1.0 + __builtin_sqrt(fma(t, t, 1.0))), z = u * u;
  double p = -1.0 / 23;
  p = fma(p, z, 1.0 / 21);
  p = fma(p, z, -1.0 / 19);
  p = fma(p, z, 1.0 / 17);
  p = fma(p, z, -1.0 / 15);
  p = fma(p, z, 1.0 / 13);
  p = fma(p, z, -1.0 / 11);
  p = fma(p, z, 1.0 / 9);
  p = fma(p, z, -1.0 / 7);
  p = fma(p, z, 1.0 / 5);
  p = fma(p, z, -1.0 / 3);
  p = fma(p, z, 1.0);
  const double value = 2.0 * u * p;
  return steep ? 1.57079632679489661923 - value : value;
}
/// sqrt(1 - x^2); NaN beyond 1.
GRAVEN_ALWAYS_INLINE double other_side(double x) { return __builtin_sqrt((1.0 - x) * (1.0 + x)); }

}  // namespace detail

// ---- any arithmetic type --------------------------------------------------------------------------------------------

template <class T>
GRAVEN_ALWAYS_INLINE bool isnan(T x) {
  return x != x;
}
/// NaN where either is NaN.
template <class T>
GRAVEN_ALWAYS_INLINE T max(T x, T y) {
  return x > y ? x : (x != x ? x : y);
}
template <class T>
GRAVEN_ALWAYS_INLINE T min(T x, T y) {
  return x < y ? x : (x != x ? x : y);
}
/// -1, 0 or 1; 0 for NaN.
template <class T>
GRAVEN_ALWAYS_INLINE T sign(T x) {
  return static_cast<T>(static_cast<T>(x > T(0)) - static_cast<T>(x < T(0)));
}
// Sums, differences and products; those of integers wrap around.
template <class T>
GRAVEN_ALWAYS_INLINE T add(T x, T y) {
  return static_cast<T>(static_cast<wrapping_t<T>>(x) + static_cast<wrapping_t<T>>(y));
}
template <class T>
GRAVEN_ALWAYS_INLINE T sub(T x, T y) {
  return static_cast<T>(static_cast<wrapping_t<T>>(x) - static_cast<wrapping_t<T>>(y));
}
template <class T>
GRAVEN_ALWAYS_INLINE T mul(T x, T y) {
  return static_cast<T>(static_cast<wrapping_t<T>>(x) * static_cast<wrapping_t<T>>(y));
}
/// Of an integer 0 - x: the least is its own.
template <class T>
GRAVEN_ALWAYS_INLINE T neg(T x) {
  if constexpr (types::is_integer<T>)
    return sub(T(0), x);
  else
    return -x;
}
/// Integers; the most negative number is its own.
template <class T>
GRAVEN_ALWAYS_INLINE T abs(T x) {
  return x < T(0) ? neg(x) : x;
}
template <class T>
GRAVEN_ALWAYS_INLINE T floor(T x) {
  return x;
}
template <class T>
GRAVEN_ALWAYS_INLINE T ceil(T x) {
  return x;
}
template <class T>
GRAVEN_ALWAYS_INLINE T trunc(T x) {
  return x;
}
template <class T>
GRAVEN_ALWAYS_INLINE T round(T x) {
  return x;
}
/// Integer power, modulo the type's range; a negative exponent gives 0, or +-1 for bases of +-1.
template <class T>
GRAVEN_ALWAYS_INLINE T pow(T x, T y) {
  std::uint64_t base = static_cast<std::uint64_t>(x), result = 1;
  if (y < T(0)) return x == T(1) ? T(1) : x == static_cast<T>(-1) ? ((y & T(1)) != T(0) ? x : T(1)) : T(0);
  for (std::uint64_t e = static_cast<std::uint64_t>(y); e != 0; e >>= 1) {
    if (e & 1u) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}
/// Integer quotient rounded toward zero; 0 for a divisor of 0 (the processor would trap).
template <class T>
GRAVEN_ALWAYS_INLINE T divide(T x, T y) {
  return y == T(0) ? T(0) : T(-1) < T(0) && y == T(-1) ? neg(x) : static_cast<T>(x / y);
}
/// Rounded toward minus infinity.
template <class T>
GRAVEN_ALWAYS_INLINE T floor_divide(T x, T y) {
  const T q = divide(x, y);
  const T r = sub(x, mul(q, y));
  return static_cast<T>(q - static_cast<T>(y != T(0) && r != T(0) && (r < T(0)) != (y < T(0))));
}
/// x - y divide(x, y): the sign of x, as in C. 0 for a divisor of 0.
template <class T>
GRAVEN_ALWAYS_INLINE T fmod(T x, T y) {
  return y == T(0) ? T(0) : sub(x, mul(divide(x, y), y));
}
/// x - y floor_divide(x, y): the sign of y, as in Python. 0 for a divisor of 0.
template <class T>
GRAVEN_ALWAYS_INLINE T remainder(T x, T y) {
  return y == T(0) ? T(0) : sub(x, mul(floor_divide(x, y), y));
}

// ---- float ----------------------------------------------------------------------------------------------------------

GRAVEN_ALWAYS_INLINE float abs(float x) { return __builtin_fabsf(x); }
GRAVEN_ALWAYS_INLINE float copysign(float x, float y) { return __builtin_copysignf(x, y); }
GRAVEN_ALWAYS_INLINE bool isinf(float x) { return __builtin_fabsf(x) == detail::kInfinity; }
GRAVEN_ALWAYS_INLINE bool isfinite(float x) { return __builtin_fabsf(x) < detail::kInfinity; }
GRAVEN_ALWAYS_INLINE float floor(float x) { return __builtin_floorf(x); }
GRAVEN_ALWAYS_INLINE float ceil(float x) { return __builtin_ceilf(x); }
GRAVEN_ALWAYS_INLINE float trunc(float x) { return __builtin_truncf(x); }
/// Halves go to the even neighbour.
GRAVEN_ALWAYS_INLINE float round(float x) { return __builtin_rintf(x); }
GRAVEN_ALWAYS_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
GRAVEN_ALWAYS_INLINE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
GRAVEN_ALWAYS_INLINE float reciprocal(float x) { return 1.0f / x; }

GRAVEN_ALWAYS_INLINE float exp(float x) {
  const detail::ExpParts e = detail::exp_parts(x);
  // 2^n in two factors: n runs from -151 to 128.
  const std::uint32_t half = detail::halved(e.n);
  float value = (e.expm1 + 1.0f) * detail::power_of_two(half) * detail::power_of_two(e.n - half);
  // Beyond these it is not; chosen at the end, for nothing waits for that. NaN passes both.
  value = x < -105.0f ? 0.0f : value;
  return x > 89.0f ? detail::kInfinity : value;
}
/// exp(x) - 1 without cancellation.
GRAVEN_ALWAYS_INLINE float expm1(float x) {
  const float original = x;
  x = x > 89.0f ? 89.0f : x;
  x = x < -105.0f ? -105.0f : x;
  const detail::ExpParts e = detail::exp_parts(x);
  const std::uint32_t half = detail::halved(e.n), rest = e.n - half;
  const float scale = detail::power_of_two(half);
  const float value = fma(e.expm1, scale, scale - detail::power_of_two(0u - rest)) * detail::power_of_two(rest);
  return original == 0.0f ? original : value;
}
GRAVEN_ALWAYS_INLINE float log(float x) {
  const detail::LogParts p = detail::log_parts(x);
  return detail::log_special(x, fma(p.e, 0.693359375f, p.f + fma(p.e, -2.12194440e-4f, p.log1p)));
}
GRAVEN_ALWAYS_INLINE float log2(float x) {
  const detail::LogParts p = detail::log_parts(x);
  // 1 / ln 2 = 1 + 0.44269504
  return detail::log_special(x, ((fma(p.log1p, 0.44269504f, p.f * 0.44269504f) + p.log1p) + p.f) + p.e);
}
GRAVEN_ALWAYS_INLINE float log10(float x) {
  const detail::LogParts p = detail::log_parts(x);
  // log10(e) and log10(2) in two parts each
  float y = fma(p.log1p, 7.00731903251827651129e-4f, p.f * 7.00731903251827651129e-4f);
  y = fma(p.e, 2.48745663981195213739e-4f, y);
  y = fma(p.log1p, 4.3359375e-1f, y);
  y = fma(p.f, 4.3359375e-1f, y);
  return detail::log_special(x, fma(p.e, 3.0078125e-1f, y));
}
/// log(1 + x) without cancellation: what rounding took from 1 + x is added to first order.
GRAVEN_ALWAYS_INLINE float log1p(float x) {
  const float u = 1.0f + x;
  const detail::LogParts p = detail::log_parts(u);
  float lost = (x - (u - 1.0f)) / u;
  lost = u == 0.0f || !(u < detail::kInfinity) ? 0.0f : lost;
  const float value = detail::log_special(u, fma(p.e, 0.693359375f, p.f + (fma(p.e, -2.12194440e-4f, p.log1p) + lost)));
  return x == 0.0f ? x : value;
}
GRAVEN_ALWAYS_INLINE float tanh(float x) {
  // expm1 of 2 |x| in [0, 40], where 2^n needs neither limits nor two factors.
  const float magnitude = __builtin_fabsf(x);
  const detail::ExpParts p = detail::exp_parts(magnitude > 20.0f ? 40.0f : 2.0f * magnitude);
  const float scale = detail::power_of_two(p.n), e = fma(p.expm1, scale, scale - 1.0f);
  return __builtin_copysignf(e / (e + 2.0f), x);
}
GRAVEN_ALWAYS_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
/// log(1 + exp(x)). As log1p, of exp(-|x|) in [0, 1], where no special value but NaN arises.
GRAVEN_ALWAYS_INLINE float softplus(float x) {
  const float t = exp(-__builtin_fabsf(x)), u = 1.0f + t;
  const detail::LogParts p = detail::log_parts(u);
  const float y = fma(p.e, 0.693359375f, p.f + (fma(p.e, -2.12194440e-4f, p.log1p) + (t - (u - 1.0f)) / u));
  return (x > 0.0f ? x : 0.0f) + y;
}
GRAVEN_ALWAYS_INLINE float erf(float x) {
  const float t = __builtin_fabsf(x), s = x * x;
  float large = fma(-1.72853470e-5f, t, 3.83197126e-4f);
  const float u = fma(-3.88396438e-3f, t, 2.42546219e-2f);
  large = fma(large, s, u);
  large = fma(large, t, -1.06777877e-1f);
  large = fma(large, t, -6.34846687e-1f);
  large = fma(large, t, -1.28717512e-1f);
  large = fma(large, t, -t);
  large = 1.0f - exp(t > 10.0f ? -100.0f : large);
  large = __builtin_copysignf(large, x);
  float small = -5.96761703e-4f;
  small = fma(small, s, 4.99119423e-3f);
  small = fma(small, s, -2.67681349e-2f);
  small = fma(small, s, 1.12819925e-1f);
  small = fma(small, s, -3.76125336e-1f);
  small = fma(small, s, 1.28379166e-1f);
  small = fma(small, x, x);
  return t > 0.927734375f ? large : small;  // NaN takes the second
}
GRAVEN_ALWAYS_INLINE float sin(float x) { return detail::sine(x, 0); }
GRAVEN_ALWAYS_INLINE float cos(float x) { return detail::sine(x, 1); }
/// In double inside: y log2 |x| needs more bits than a float has.
GRAVEN_ALWAYS_INLINE float pow(float x, float y) {
  const float magnitude = __builtin_fabsf(x);
  double log2 = detail::log2_double(magnitude);
  log2 = magnitude == 0.0f ? -static_cast<double>(detail::kInfinity) : log2;
  log2 = magnitude < detail::kInfinity ? log2 : static_cast<double>(magnitude);  // infinity and NaN
  double t = log2 * static_cast<double>(y);
  t = t > 200.0 ? 200.0 : t;
  t = t < -200.0 ? -200.0 : t;
  float value = static_cast<float>(detail::exp2_double(t));
  value = t != t ? detail::kNaN : value;
  const bool integer = __builtin_truncf(y) == y, odd = integer & (__builtin_truncf(y * 0.5f) != y * 0.5f);
  const bool negative = (detail::as_bits(x) >> 31) != 0;
  value = detail::as_float(detail::as_bits(value) ^ ((negative & odd) ? 0x80000000u : 0u));
  value = (negative & !integer & (x < 0.0f) & (magnitude < detail::kInfinity)) ? detail::kNaN : value;
  value = ((magnitude == 1.0f) & (__builtin_fabsf(y) == detail::kInfinity)) ? 1.0f : value;
  return ((x == 1.0f) | (y == 0.0f)) ? 1.0f : value;
}

GRAVEN_ALWAYS_INLINE float tan(float x) {
  const detail::Angle angle = detail::reduced_angle(x);
  double r = angle.r;
  r = r > 1.0 ? 1.0 : r;
  r = r < -1.0 ? -1.0 : r;
  const double z = r * r;
  double s = -1.0 / 1307674368000;
  s = fma(s, z, 1.0 / 6227020800);
  s = fma(s, z, -1.0 / 39916800);
  s = fma(s, z, 1.0 / 362880);
  s = fma(s, z, -1.0 / 5040);
  s = fma(s, z, 1.0 / 120);
  s = fma(s, z, -1.0 / 6);
  s = fma(s, z, 1.0) * r;
  double c = -1.0 / 87178291200;
  c = fma(c, z, 1.0 / 479001600);
  c = fma(c, z, -1.0 / 3628800);
  c = fma(c, z, 1.0 / 40320);
  c = fma(c, z, -1.0 / 720);
  c = fma(c, z, 1.0 / 24);
  c = fma(c, z, -0.5);
  c = fma(c, z, 1.0);
  const bool odd = (angle.quadrant & 1u) != 0;
  return static_cast<float>((odd ? -c : s) / (odd ? s : c));
}
GRAVEN_ALWAYS_INLINE float asin(float x) {
  const double a = static_cast<double>(__builtin_fabsf(x));
  return __builtin_copysignf(static_cast<float>(detail::arc(a, detail::other_side(a))), x);
}
GRAVEN_ALWAYS_INLINE float acos(float x) {
  const double a = static_cast<double>(__builtin_fabsf(x)), value = detail::arc(detail::other_side(a), a);
  return static_cast<float>(x < 0.0f ? 3.14159265358979323846 - value : value);
}
GRAVEN_ALWAYS_INLINE float atan(float x) {
  return __builtin_copysignf(static_cast<float>(detail::arc(static_cast<double>(__builtin_fabsf(x)), 1.0)), x);
}
GRAVEN_ALWAYS_INLINE float atan2(float y, float x) {
  const double value = detail::arc(static_cast<double>(__builtin_fabsf(y)), static_cast<double>(__builtin_fabsf(x)));
  const bool left = (detail::as_bits(x) >> 31) != 0;
  return __builtin_copysignf(static_cast<float>(left ? 3.14159265358979323846 - value : value), y);
}
GRAVEN_ALWAYS_INLINE float sinh(float x) {
  const float magnitude = __builtin_fabsf(x);
  const double a = static_cast<double>(magnitude > 200.0f ? 200.0f : magnitude), e = detail::exp_double(a), z = a * a;
  double p = 1.0 / 6227020800;
  p = fma(p, z, 1.0 / 39916800);
  p = fma(p, z, 1.0 / 362880);
  p = fma(p, z, 1.0 / 5040);
  p = fma(p, z, 1.0 / 120);
  p = fma(p, z, 1.0 / 6);
  p = fma(p, z, 1.0);
  return __builtin_copysignf(static_cast<float>(a < 1.0 ? a * p : 0.5 * (e - 1.0 / e)), x);
}
GRAVEN_ALWAYS_INLINE float cosh(float x) {
  const float magnitude = __builtin_fabsf(x);
  const double e = detail::exp_double(static_cast<double>(magnitude > 200.0f ? 200.0f : magnitude));
  return static_cast<float>(0.5 * (e + 1.0 / e));
}
GRAVEN_ALWAYS_INLINE float asinh(float x) {
  const double a = static_cast<double>(__builtin_fabsf(x)), u = a + a * a / (1.0 + __builtin_sqrt(fma(a, a, 1.0)));
  return __builtin_copysignf(
      static_cast<float>(detail::log1p_double(a < static_cast<double>(detail::kInfinity) ? u : a)), x);
}
GRAVEN_ALWAYS_INLINE float acosh(float x) {
  const double u = static_cast<double>(x) - 1.0,
               value = detail::log1p_double(u + __builtin_sqrt(u * (static_cast<double>(x) + 1.0)));
  return x >= 1.0f ? static_cast<float>(value) : detail::kNaN;
}
GRAVEN_ALWAYS_INLINE float atanh(float x) {
  const double a = static_cast<double>(__builtin_fabsf(x)), value = 0.5 * detail::log1p_double(2.0 * a / (1.0 - a));
  return a <= 1.0 ? __builtin_copysignf(static_cast<float>(value), x) : detail::kNaN;
}
/// t exp(p(t) - x^2) with t = 1 / (1 + x / 2), x >= 0: p is interpolated at the Chebyshev nodes of [0, 10.6], to 3e-10.
GRAVEN_ALWAYS_INLINE float erfc(float x) {
  const float magnitude = __builtin_fabsf(x);
  const double a = static_cast<double>(magnitude > 12.0f ? 12.0f : magnitude), t = 1.0 / fma(0.5, a, 1.0);
  const double w = (t - 0.5793650793650793) * 2.3773584905660377;
  double p = 5.9365667521678215e-06;
  p = fma(p, w, -5.889559448545558e-06);
  p = fma(p, w, -4.204750343625654e-05);
  p = fma(p, w, 7.782753072241086e-05);
  p = fma(p, w, 0.00015299698060507928);
  p = fma(p, w, -0.000596599810411756);
  p = fma(p, w, -0.0002629501610019138);
  p = fma(p, w, 0.003909351748865001);
  p = fma(p, w, -0.0012677213021940513);
  p = fma(p, w, -0.03027706913021631);
  p = fma(p, w, 0.01690375963464366);
  p = fma(p, w, 0.5754277995369744);
  p = fma(p, w, -0.5640253942637004);
  const double value = t * detail::exp_double(fma(-a, a, p));
  return static_cast<float>(x < 0.0f ? 2.0 - value : value);
}
GRAVEN_ALWAYS_INLINE float fmod(float x, float y) { return __builtin_fmodf(x, y); }
GRAVEN_ALWAYS_INLINE float divide(float x, float y) { return x / y; }
/// The exact quotient's floor, as Python has it: what x / y rounds up to a whole number is not that number yet.
GRAVEN_ALWAYS_INLINE float floor_divide(float x, float y) {
  if (y == 0.0f) return x / y;
  const float r = __builtin_fmodf(x, y), q = (x - r) / y - (r != 0.0f && (r < 0.0f) != (y < 0.0f) ? 1.0f : 0.0f),
              z = __builtin_floorf(q);
  return q == 0.0f ? __builtin_copysignf(0.0f, x / y) : q - z > 0.5f ? z + 1.0f : z;
}
/// The sign of y, as in Python.
GRAVEN_ALWAYS_INLINE float remainder(float x, float y) {
  const float r = __builtin_fmodf(x, y);
  return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r;
}

// ---- double ---------------------------------------------------------------------------------------------------------

GRAVEN_ALWAYS_INLINE double abs(double x) { return __builtin_fabs(x); }
GRAVEN_ALWAYS_INLINE double copysign(double x, double y) { return __builtin_copysign(x, y); }
GRAVEN_ALWAYS_INLINE bool isinf(double x) { return __builtin_fabs(x) == __builtin_inf(); }
GRAVEN_ALWAYS_INLINE bool isfinite(double x) { return __builtin_fabs(x) < __builtin_inf(); }
GRAVEN_ALWAYS_INLINE double floor(double x) { return __builtin_floor(x); }
GRAVEN_ALWAYS_INLINE double ceil(double x) { return __builtin_ceil(x); }
GRAVEN_ALWAYS_INLINE double trunc(double x) { return __builtin_trunc(x); }
GRAVEN_ALWAYS_INLINE double round(double x) { return __builtin_rint(x); }
GRAVEN_ALWAYS_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
GRAVEN_ALWAYS_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
GRAVEN_ALWAYS_INLINE double reciprocal(double x) { return 1.0 / x; }
GRAVEN_ALWAYS_INLINE double exp(double x) { return __builtin_exp(x); }
GRAVEN_ALWAYS_INLINE double expm1(double x) { return __builtin_expm1(x); }
GRAVEN_ALWAYS_INLINE double log(double x) { return __builtin_log(x); }
GRAVEN_ALWAYS_INLINE double log2(double x) { return __builtin_log2(x); }
GRAVEN_ALWAYS_INLINE double log10(double x) { return __builtin_log10(x); }
GRAVEN_ALWAYS_INLINE double log1p(double x) { return __builtin_log1p(x); }
GRAVEN_ALWAYS_INLINE double tanh(double x) { return __builtin_tanh(x); }
GRAVEN_ALWAYS_INLINE double sigmoid(double x) { return 1.0 / (1.0 + __builtin_exp(-x)); }
GRAVEN_ALWAYS_INLINE double softplus(double x) {
  return (x > 0.0 ? x : 0.0) + __builtin_log1p(__builtin_exp(-__builtin_fabs(x)));
}
GRAVEN_ALWAYS_INLINE double erf(double x) { return __builtin_erf(x); }
GRAVEN_ALWAYS_INLINE double sin(double x) { return __builtin_sin(x); }
GRAVEN_ALWAYS_INLINE double cos(double x) { return __builtin_cos(x); }
GRAVEN_ALWAYS_INLINE double pow(double x, double y) { return __builtin_pow(x, y); }
/// x^n for n >= 0, in products alone.
GRAVEN_ALWAYS_INLINE double power(double x, std::int64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1, x *= x)
    if ((n & 1) != 0) result *= x;
  return result;
}
/// The product of 1 - x exp(i log_decay) for i from 1 to n, with 0 <= x <= 1/2: its logarithm as a series in x, whose
/// terms are sums of powers.
GRAVEN_ALWAYS_INLINE double decaying_product(double x, double log_decay, std::int64_t n) {
  double sum = 0, power_of_x = 1;
  for (int k = 1; k <= 56; ++k) {
    const double rate = k * log_decay;
    power_of_x *= x;
    sum += power_of_x / k *
           (rate == 0 ? static_cast<double>(n)
                      : __builtin_exp(rate) * (__builtin_expm1(static_cast<double>(n) * rate) / __builtin_expm1(rate)));
  }
  return __builtin_exp(-sum);
}
GRAVEN_ALWAYS_INLINE double tan(double x) { return __builtin_tan(x); }
GRAVEN_ALWAYS_INLINE double asin(double x) { return __builtin_asin(x); }
GRAVEN_ALWAYS_INLINE double acos(double x) { return __builtin_acos(x); }
GRAVEN_ALWAYS_INLINE double atan(double x) { return __builtin_atan(x); }
GRAVEN_ALWAYS_INLINE double sinh(double x) { return __builtin_sinh(x); }
GRAVEN_ALWAYS_INLINE double cosh(double x) { return __builtin_cosh(x); }
GRAVEN_ALWAYS_INLINE double asinh(double x) { return __builtin_asinh(x); }
GRAVEN_ALWAYS_INLINE double acosh(double x) { return __builtin_acosh(x); }
GRAVEN_ALWAYS_INLINE double atanh(double x) { return __builtin_atanh(x); }
GRAVEN_ALWAYS_INLINE double atan2(double y, double x) { return __builtin_atan2(y, x); }
GRAVEN_ALWAYS_INLINE double erfc(double x) { return __builtin_erfc(x); }
GRAVEN_ALWAYS_INLINE double fmod(double x, double y) { return __builtin_fmod(x, y); }
GRAVEN_ALWAYS_INLINE double divide(double x, double y) { return x / y; }
GRAVEN_ALWAYS_INLINE double floor_divide(double x, double y) {
  if (y == 0.0) return x / y;
  const double r = __builtin_fmod(x, y), q = (x - r) / y - (r != 0.0 && (r < 0.0) != (y < 0.0) ? 1.0 : 0.0),
               z = __builtin_floor(q);
  return q == 0.0 ? __builtin_copysign(0.0, x / y) : q - z > 0.5 ? z + 1.0 : z;
}
GRAVEN_ALWAYS_INLINE double remainder(double x, double y) {
  const double r = __builtin_fmod(x, y);
  return r != 0.0 && (r < 0.0) != (y < 0.0) ? r + y : r;
}

}  // namespace math
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
