// Placing strided elements: what transposed convolutions along a dimension and fold share.
#pragma once

#include "graven/functional.h"

namespace graven::detail {

/// x along dim with its elements `stride` apart, the first at `offset`, in a dimension of `size`: zeros between and
/// around them, and what falls outside is left out.
Tensor placed(const Tensor& x, std::int64_t dim, std::int64_t stride, std::int64_t offset, std::int64_t size,
              Location where);

}  // namespace graven::detail
