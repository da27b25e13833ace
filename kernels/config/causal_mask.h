// causal_mask: y[queries, keys] = 0 where key <= query, -infinity elsewhere: added to the scores of attention, a query
// sees no later key.
//
//   inline constexpr causal_mask_config mask{.queries = 128, .keys = 128};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct causal_mask_config {
  std::int64_t queries, keys;
};

}  // namespace graven::kernels
