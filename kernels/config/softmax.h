// softmax and log_softmax over the middle of [outer, size, inner].
#pragma once

#include <cstdint>

namespace graven::kernels {

struct softmax_config {
  std::int64_t outer;  ///< product of the dimensions before the normalised one
  std::int64_t size;   ///< the normalised dimension
  std::int64_t inner;  ///< product of the dimensions after it
};

}  // namespace graven::kernels
