// Reductions over the middle of [outer, size, inner]; the result is [outer, inner].
#pragma once

#include <cstdint>

namespace graven::kernels {

struct reduce_config {
  std::int64_t outer = 1;  ///< product of the dimensions before the reduced ones
  std::int64_t size;       ///< product of the reduced dimensions
  std::int64_t inner = 1;  ///< product of the dimensions after them
};

}  // namespace graven::kernels
