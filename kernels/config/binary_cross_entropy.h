// binary_cross_entropy: a loss for each of n probabilities.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct binary_cross_entropy_config {
  std::int64_t n;  ///< elements
};

}  // namespace graven::kernels
