// Config of accumulate_shard.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct accumulate_shard_config {
  std::int64_t n;  ///< elements of all ranks
};

}  // namespace graven::kernels
