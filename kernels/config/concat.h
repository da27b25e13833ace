// concat: joins tensors [outer, size_i, inner] along the middle dimension.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct concat_config {
  std::int64_t outer = 1;  ///< product of the dimensions before the joined one
  std::int64_t inner = 1;  ///< product of the dimensions after it
};

}  // namespace graven::kernels
