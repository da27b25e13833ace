// y[i] = start + i * step
#pragma once

#include <cstdint>

namespace graven::kernels {

struct arange_config {
  std::int64_t n;  ///< elements
  double start;    ///< the first
  double step;     ///< between neighbours
};

}  // namespace graven::kernels
