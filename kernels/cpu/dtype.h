// Element types: f32, f64, i8, i32, i64, u8, boolean are C++'s own; half (f16) and bfloat16 (bf16) are 16-bit storage
// types that convert to float and back with round-to-nearest-even; arithmetic happens in float. Used by the fast and by
// the reference kernels.
//
//   half h = half(0.1f);          // 0x2e66
//   float f = float(h) * 2;
//   compute_t<half> sum = 0;      // float: what a kernel computes in; every other type computes in itself
//   wrapping_t<i32> total = 0;    // std::uint32_t: what integers are added and multiplied in, so that they wrap around
#pragma once

#include <cstdint>

#include "../config/device.h"

namespace graven::kernels {

using f32 = float;
using f64 = double;
using i8 = std::int8_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using boolean = bool;

/// IEEE binary16: 5 bits of exponent, 10 of fraction.
struct half {
  std::uint16_t bits = 0;

  constexpr half() = default;
  template <class T>
  GRAVEN_DEVICE explicit constexpr half(T value) : bits(encode(static_cast<float>(value))) {}
  GRAVEN_DEVICE constexpr operator float() const { return decode(bits); }

  /// Round to nearest even; overflow gives infinity, every NaN a quiet NaN. No branches, so that loops vectorise.
  GRAVEN_DEVICE static constexpr std::uint16_t encode(float value) {
#ifdef __CUDA_ARCH__
    if (!__builtin_is_constant_evaluated()) {
      std::uint16_t rounded = 0;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
      return rounded;
    }
#endif
    const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (word >> 16) & 0x8000u, magnitude = word & 0x7fffffffu;
    // Normal results: rebias the exponent and round off 13 bits.
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Subnormal results: adding 0.5 lines the bits up at the end of the fraction, and the addition rounds.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
    const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000u;
    std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7e00u : result;
    return static_cast<std::uint16_t>(result | sign);
  }
  GRAVEN_DEVICE static constexpr float decode(std::uint16_t bits) {
#ifdef __CUDA_ARCH__
    if (!__builtin_is_constant_evaluated()) {
      float value = 0;
      asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
      return value;
    }
#endif
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    const std::uint32_t normal = (magnitude << 13) + 0x38000000u;
    const std::uint32_t special = (magnitude << 13) | 0x7f800000u;
    // Subnormal: 2^-14 (1 + f) - 2^-14 is exact.
    const float small =
        __builtin_bit_cast(float, (magnitude << 13) + 0x38800000u) - __builtin_bit_cast(float, 0x38800000u);
    std::uint32_t word = magnitude < 0x0400u ? __builtin_bit_cast(std::uint32_t, small) : normal;
    word = magnitude >= 0x7c00u ? special : word;
    return __builtin_bit_cast(float, word | sign);
  }
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;
  template <class T>
  GRAVEN_DEVICE explicit constexpr bfloat16(T value) : bits(encode(static_cast<float>(value))) {}
  GRAVEN_DEVICE constexpr operator float() const { return decode(bits); }

  /// Round to nearest even; every NaN becomes a quiet NaN.
  GRAVEN_DEVICE static constexpr std::uint16_t encode(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (!__builtin_is_constant_evaluated()) {
      std::uint16_t rounded = 0;
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
      return rounded;
    }
#endif
    const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const std::uint32_t nan = (word >> 16) | 0x40u;
    return static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
  GRAVEN_DEVICE static constexpr float decode(std::uint16_t bits) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
};

using f16 = half;
using bf16 = bfloat16;

namespace types {
template <class T>
struct compute_type {
  using type = T;
};
template <>
struct compute_type<half> {
  using type = float;
};
template <>
struct compute_type<bfloat16> {
  using type = float;
};
}  // namespace types

/// The type that a kernel computes in for elements of type T.
template <class T>
using compute_t = typename types::compute_type<T>::type;

namespace types {
template <class T>
inline constexpr bool is_integer = T(0.5) == T(0);  // of bool it is not: every number but 0 is true
template <class T, bool Integer = is_integer<T>, bool Wide = (sizeof(T) > 4)>
struct wrapping_type {
  using type = T;
};
template <class T>
struct wrapping_type<T, true, false> {
  using type = std::uint32_t;
};
template <class T>
struct wrapping_type<T, true, true> {
  using type = std::uint64_t;
};
}  // namespace types

/// The type that numbers computed in T are added and multiplied in: of integers an unsigned one, for what signed ones
/// do where they overflow is undefined; converted back they wrap around. Of all others T.
template <class T>
using wrapping_t = typename types::wrapping_type<T>::type;

}  // namespace graven::kernels
