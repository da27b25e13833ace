// Configs of elementwise, broadcast and fill.
#pragma once

#include <cstdint>

namespace graven::kernels {

/// Every input has the output's shape.
struct elementwise_config {
  std::int64_t n;  ///< elements
};

/// Inputs of other shapes: each has its strides over the output's dimensions, 0 where it is broadcast.
struct broadcast_config {
  static constexpr int kMaximumRank = 8, kMaximumInputs = 8;
  std::int64_t rank;                                   ///< 0 to 8; 0 is one element
  std::int64_t shape[kMaximumRank];                    ///< of the output, outermost first
  std::int64_t strides[kMaximumInputs][kMaximumRank];  ///< of each input, in elements
};

struct fill_config {
  std::int64_t n;  ///< elements
  double value;    ///< converted to the element type
};

}  // namespace graven::kernels
