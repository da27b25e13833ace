// Config of all_gather.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct all_gather_config {
  std::int64_t least;  ///< elements of the smallest tensor that the ranks share
};

}  // namespace graven::kernels
