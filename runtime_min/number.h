// Numbers for reports, never for computation in bulk: one element of a tensor of any dtype, as a double, and a double
// as text.
//
//   number_at(DType::f16, bytes, 3);     // the fourth; 64-bit integers beyond 2^53 are rounded
//   to_text(0.1);                        // "0.1": as few digits as tell it from its neighbours
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "half.h"
#include "tensor.h"

namespace graven::runtime {

inline std::string to_text(double x) {
  char digits[32];
  const auto result = std::to_chars(digits, digits + sizeof digits, x);
  return {digits, result.ptr};
}

/// `data` need not be aligned.
inline double number_at(DType dtype, const std::byte* data, std::int64_t i) {
  const auto load = [&]<class T>(T x) {
    std::memcpy(&x, data + static_cast<std::size_t>(i) * sizeof x, sizeof x);
    return x;
  };
  switch (dtype) {
    case DType::f32:
      return load(float{});
    case DType::f64:
      return load(double{});
    case DType::f16:
      return float_from_half(load(std::uint16_t{}));
    case DType::bf16:
      return float_from_bfloat16(load(std::uint16_t{}));
    case DType::i8:
      return load(std::int8_t{});
    case DType::boolean:
    case DType::u8:
      return load(std::uint8_t{});
    case DType::i16:
      return load(std::int16_t{});
    case DType::u16:
      return load(std::uint16_t{});
    case DType::i32:
      return load(std::int32_t{});
    case DType::u32:
      return load(std::uint32_t{});
    case DType::i64:
      return static_cast<double>(load(std::int64_t{}));
    case DType::u64:
      return static_cast<double>(load(std::uint64_t{}));
  }
  return 0;
}

/// Sets an element of a floating dtype; others stay as they are.
inline void put_number(DType dtype, std::byte* data, std::int64_t i, double x) {
  const auto store = [&](auto y) { std::memcpy(data + static_cast<std::size_t>(i) * sizeof y, &y, sizeof y); };
  const float y = static_cast<float>(x);
  if (dtype == DType::f64) store(x);
  if (dtype == DType::f32) store(y);
  if (dtype == DType::f16) store(half_from_float(y));
  if (dtype == DType::bf16) store(bfloat16_from_float(y));
}

}  // namespace graven::runtime
