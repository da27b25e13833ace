// y = n
#pragma once

#include <cstdint>

namespace graven::kernels {

struct size_config {
  std::int64_t n;
};

}  // namespace graven::kernels
