// Config of pad_border: what lies around x is taken from x itself.
//
//   pad_border_config{.rank = 3, .shape = {8, 6, 7}, .in_shape = {8, 4, 5}, .before = {0, 1, 1}, .inner = 16,
//                     .mode = kPadReflect}   // NHWC images
#pragma once

#include <cstdint>

namespace graven::kernels {

inline constexpr std::int64_t kPadReflect = 0;    ///< the mirror image, without the element at the border: 2 1 | 0 1 2
inline constexpr std::int64_t kPadReplicate = 1;  ///< the element at the border: 0 0 | 0 1 2
inline constexpr std::int64_t kPadCircular = 2;   ///< the other end: 1 2 | 0 1 2

struct pad_border_config {
  static constexpr int kMaximumRank = 8;
  std::int64_t rank;                    ///< 1 to 8
  std::int64_t shape[kMaximumRank];     ///< of y, outermost first
  std::int64_t in_shape[kMaximumRank];  ///< of x
  std::int64_t before[kMaximumRank];    ///< new elements before x along each dimension; negative: elements of x cut off
  std::int64_t inner;                   ///< elements of the dimensions behind, which are not padded
  std::int64_t mode;                    ///< kPadReflect, kPadReplicate or kPadCircular
};

/// The index of x, of `size` elements, that position `i` (counted from x's first element, possibly negative) is taken
/// from.
[[gnu::always_inline]] constexpr std::int64_t pad_border_source(std::int64_t i, std::int64_t size, std::int64_t mode) {
  if (i >= 0 && i < size) return i;
  if (mode == kPadReflect) return i < 0 ? -i : 2 * (size - 1) - i;
  if (mode == kPadReplicate) return i < 0 ? 0 : size - 1;
  return i < 0 ? i + size : i - size;
}

}  // namespace graven::kernels
