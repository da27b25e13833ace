// Config of all_reduce.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct all_reduce_config {
  std::int64_t n;  ///< elements
};

}  // namespace graven::kernels
