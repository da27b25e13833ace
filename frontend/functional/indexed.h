// Indexing by tensors: Tensor::index() comes here with what is not a view.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "graven/tensor.h"

namespace graven::detail {

/// Dimensions, ascending, and the positions that are taken of each.
using IndexTensors = std::vector<std::pair<std::int64_t, Tensor>>;

/// x[:, i, j], as NumPy has it: negative positions count from the end, the index tensors are broadcast together, and
/// their dimensions stand for those that are indexed, in front where those are no neighbours.
Tensor index_by(const Tensor& x, const IndexTensors& indices, Location where);

}  // namespace graven::detail
