// Windows of convolution and pooling along one dimension: which taps lie inside the image, which outputs see them all.
// And a short copy.
//
//   // {2, 5}
//   range taps = valid_taps(/*output*/ 0, /*in*/ 28, /*kernel*/ 5, /*stride*/ 1, /*padding*/ 2, /*dilation*/ 1);
#pragma once

#include <cstdint>

#include "level.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace window {

GRAVEN_ALWAYS_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
GRAVEN_ALWAYS_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
/// a / b rounded up or down, b > 0. A division takes tens of cycles, and b is mostly 1.
GRAVEN_ALWAYS_INLINE std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return b == 1 ? a : a >= 0 ? (a + b - 1) / b : -(-a / b);
}
GRAVEN_ALWAYS_INLINE std::int64_t divide_down(std::int64_t a, std::int64_t b) {
  return b == 1 ? a : a >= 0 ? a / b : -((-a + b - 1) / b);
}

/// A half-open range of integers.
struct range {
  std::int64_t begin, end;
  std::int64_t size() const { return end > begin ? end - begin : 0; }
};

/// Taps k of a kernel that lie inside the image at output position o: 0 <= o*stride - padding + k*dilation < in.
/// padding may be negative.
GRAVEN_ALWAYS_INLINE range valid_taps(std::int64_t o, std::int64_t in, std::int64_t kernel, std::int64_t stride,
                                      std::int64_t padding, std::int64_t dilation) {
  const std::int64_t first = o * stride - padding;
  const std::int64_t begin = smaller(kernel, larger(0, divide_up(-first, dilation)));
  const std::int64_t end = larger(begin, smaller(kernel, divide_down(in - 1 - first, dilation) + 1));
  return {begin, end};
}

/// Output positions at which taps [taps.begin, taps.end) all lie inside the image.
GRAVEN_ALWAYS_INLINE range valid_outputs(range taps, std::int64_t out, std::int64_t in, std::int64_t stride,
                                         std::int64_t padding, std::int64_t dilation) {
  const std::int64_t begin = smaller(out, larger(0, divide_up(padding - taps.begin * dilation, stride)));
  const std::int64_t end =
      larger(begin, smaller(out, divide_down(in - 1 + padding - (taps.end - 1) * dilation, stride) + 1));
  return {begin, end};
}

/// Part i of n of [0, size).
GRAVEN_ALWAYS_INLINE range part_of(std::int64_t size, std::int64_t i, std::int64_t n) {
  return {size * i / n, size * (i + 1) / n};
}

/// Copies n < 16 floats in two overlapping pieces.
GRAVEN_ALWAYS_INLINE void copy_head(float* to, const float* from, std::int64_t n) {
  if (n >= 8) {
    float a[8], b[8];
    __builtin_memcpy(a, from, 32), __builtin_memcpy(b, from + n - 8, 32);
    __builtin_memcpy(to, a, 32), __builtin_memcpy(to + n - 8, b, 32);
  } else if (n >= 4) {
    float a[4], b[4];
    __builtin_memcpy(a, from, 16), __builtin_memcpy(b, from + n - 4, 16);
    __builtin_memcpy(to, a, 16), __builtin_memcpy(to + n - 4, b, 16);
  } else if (n >= 2) {
    float a[2], b[2];
    __builtin_memcpy(a, from, 8), __builtin_memcpy(b, from + n - 2, 8);
    __builtin_memcpy(to, a, 8), __builtin_memcpy(to + n - 2, b, 8);
  } else if (n == 1) {
    *to = *from;
  }
}

}  // namespace window
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
