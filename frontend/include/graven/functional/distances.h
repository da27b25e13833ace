// Distances and directions of vectors: PyTorch's functions, defaults and numbers.
//
//   Tensor likeness = cosine_similarity(normalize(a), normalize(b));
//   Tensor distances = cdist(points, centres);
#pragma once

#include "graven/tensor.h"

namespace graven {

/// x / max(norm of x along dim, eps).
Tensor normalize(const Operand& x, double p = 2, std::int64_t dim = 1, double eps = 1e-12);
/// The product of x1 and x2 along dim, each divided by its norm, which counts as eps at least; broadcast.
Tensor cosine_similarity(const Operand& x1, const Operand& x2, std::int64_t dim = 1, double eps = 1e-8);
/// The norm of x1 - x2 + eps over the last dimension; broadcast.
Tensor pairwise_distance(const Operand& x1, const Operand& x2, double p = 2, double eps = 1e-6, bool keepdim = false);
/// The norm of every row of x1[..., n, size] minus every row of x2[..., m, size]: [..., n, m]. p: 0 or more, or
/// infinite.
Tensor cdist(const Operand& x1, const Operand& x2, double p = 2);

}  // namespace graven
