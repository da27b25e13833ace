// Config of accumulate.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct accumulate_config {
  std::int64_t n;  ///< elements
};

}  // namespace graven::kernels
