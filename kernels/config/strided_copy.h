// strided_copy: y[i] = x[offset + sum of i_d strides_d], the copy behind transpose, slice, expand and flip; strided_add
// is its gradient.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct strided_copy_config {
  static constexpr int kMaximumRank = 8;
  std::int64_t rank;                 ///< 0 to 8; 0 is one element
  std::int64_t shape[kMaximumRank];  ///< of the contiguous side, outermost first
  /// Of the strided side, in elements: 0 repeats (expand), negative runs backwards (flip).
  std::int64_t strides[kMaximumRank];
  std::int64_t offset = 0;  ///< first element of the strided side
};

}  // namespace graven::kernels
