// Config of reduce_scatter.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct reduce_scatter_config {
  std::int64_t n;  ///< elements
};

}  // namespace graven::kernels
