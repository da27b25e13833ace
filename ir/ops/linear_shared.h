// What linear and its gradients share: the sizes behind them.
#pragma once

#include "ir/ops/shared.h"
#include "kernels/config/linear_bf16.h"

namespace graven::ir::ops {

/// Of a weight w[n, k].
struct LinearSizes {
  std::int64_t n = 0, k = 0;
};

/// Checks the weight (input `weight`).
inline LinearSizes linear_weight(const InferContext& c, std::size_t weight) {
  require_rank(c, weight, 2, "weight");
  const Shape& w = c.input(weight).shape;
  return {.n = fixed(w[0], "the weight's out_features"), .k = fixed(w[1], "the weight's in_features")};
}

/// The packed form of w[n,k] for sums over k: panels of 16, whose rows kernels of bf16 fill up to whole groups.
inline Shape packed_linear_weight(DType dtype, std::int64_t n, std::int64_t k) {
  return {(n + 15) / 16, dtype == DType::bf16 ? kernels::bf16_depth(k) : k, 16};
}

/// Leading dimensions of input or output `shape`, flattened.
inline Dim rows_of(const Shape& shape) { return product(shape, 0, shape.rank() - 1); }

}  // namespace graven::ir::ops
