// Config of gather_shards.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct gather_shards_config {
  std::int64_t n;  ///< elements
};

}  // namespace graven::kernels
