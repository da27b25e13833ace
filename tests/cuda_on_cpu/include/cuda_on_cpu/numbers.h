// The numbers that NVIDIA's libraries compute with, by their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cuda_on_cpu {

/// Of 16 bits: a sign, `exponent_bits`, and the fraction; computed by the definition of IEEE 754.
struct HalfFormat {
  int exponent_bits, fraction_bits, bias;

  float decode(std::uint16_t bits) const {
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1),
              fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return static_cast<float>(fraction != 0 ? NAN : sign * INFINITY);
    const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                       : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return static_cast<float>(sign * value);
  }
  std::uint16_t encode(float value) const {
    const int sign = std::signbit(value) ? 0x8000 : 0, infinity = ((1 << exponent_bits) - 1) << fraction_bits;
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1 << (fraction_bits - 1));
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0) return static_cast<std::uint16_t>(sign);
    const int exponent = std::isinf(magnitude) ? bias + 1 : std::max(std::ilogb(magnitude), 1 - bias);
    if (exponent > bias) return static_cast<std::uint16_t>(sign | infinity);
    // In units of the last place; one too large carries into the exponent, and at the end into infinity.
    const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
    return static_cast<std::uint16_t>(sign | (((exponent + bias - 1) << fraction_bits) + units));
  }
};
inline constexpr HalfFormat kF16{5, 10, 15}, kBf16{8, 7, 127};

/// Of a factor: to TF32, 10 bits of fraction, to the nearest, ties to even.
inline float rounded_to_tf32(float value) {
  if (!std::isfinite(value)) return value;
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits += 0xfff + (bits >> 13 & 1);
  bits &= ~std::uint32_t{0x1fff};
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

}  // namespace cuda_on_cpu
