// Running sums and products over the middle of [outer, size, inner].
#pragma once

#include <cstdint>

namespace graven::kernels {

struct scan_config {
  std::int64_t outer = 1;  ///< product of the dimensions before the scanned one
  std::int64_t size;       ///< of the scanned dimension
  std::int64_t inner = 1;  ///< product of the dimensions behind
  bool reverse = false;    ///< from the last element to the first
};

}  // namespace graven::kernels
