// pad: y is x with a constant around it, or with borders cut off.
//
//   // one row above, 2 columns left, 1 right
//   pad_config{.rank = 2, .shape = {4, 7}, .in_shape = {3, 4}, .before = {1, 2}, .value = 0}
#pragma once

#include <cstdint>

namespace graven::kernels {

struct pad_config {
  static constexpr int kMaximumRank = 8;
  std::int64_t rank;                    ///< 0 to 8; 0 is one element
  std::int64_t shape[kMaximumRank];     ///< of y, outermost first
  std::int64_t in_shape[kMaximumRank];  ///< of x
  std::int64_t before[kMaximumRank];    ///< new elements before x along each dimension; negative: elements of x cut off
  double value = 0;                     ///< of the new elements, converted to the element type
};

}  // namespace graven::kernels
