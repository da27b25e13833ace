// Reductions, running sums and sorting beside those of functional.h. Empty dims: all of them.
//
//   Tensor spread = std(x, {-1}, {.keepdim = true});
//   auto [values, classes] = topk(softmax(logits, -1), 5);
#pragma once

#include <tuple>

#include "graven/functional.h"

namespace graven {

struct VarianceOptions {
  double correction = 1;  ///< the sum of squares is divided by n - correction: 1 unbiased, 0 biased
  bool keepdim = false;
};
Tensor var(const Operand& x, const Sizes& dims = {}, VarianceOptions options = {});
Tensor std(const Operand& x, const Sizes& dims = {}, VarianceOptions options = {});
/// Variance (deviation) and mean.
std::tuple<Tensor, Tensor> var_mean(const Operand& x, const Sizes& dims = {}, VarianceOptions options = {});
std::tuple<Tensor, Tensor> std_mean(const Operand& x, const Sizes& dims = {}, VarianceOptions options = {});
/// (sum |x|^p)^(1/p); p may be infinite (largest magnitude), minus infinite (smallest) or 0 (how many are not 0). The gradient at 0 is 0.
Tensor norm(const Operand& x, double p = 2, const Sizes& dims = {}, bool keepdim = false);
/// log(sum exp(x)), without overflow.
Tensor logsumexp(const Operand& x, const Sizes& dims, bool keepdim = false);
/// bool: whether all (any) are not 0.
Tensor all(const Operand& x, const Sizes& dims = {}, bool keepdim = false);
Tensor any(const Operand& x, const Sizes& dims = {}, bool keepdim = false);
/// i64
Tensor count_nonzero(const Operand& x, const Sizes& dims = {});

/// Integers and bools give i64.
Tensor cumsum(const Operand& x, std::int64_t dim);
Tensor cumprod(const Operand& x, std::int64_t dim);

/// Values in order and, i64, where they stood. Equal ones keep their order (PyTorch's stable = true); NaN counts as the largest.
std::tuple<Tensor, Tensor> sort(const Operand& x, std::int64_t dim = -1, bool descending = false);
Tensor argsort(const Operand& x, std::int64_t dim = -1, bool descending = false);
/// The k largest (or smallest), in order.
std::tuple<Tensor, Tensor> topk(const Operand& x, std::int64_t k, std::int64_t dim = -1, bool largest = true);
/// The k-th smallest, from 1.
std::tuple<Tensor, Tensor> kthvalue(const Operand& x, std::int64_t k, std::int64_t dim = -1, bool keepdim = false);
/// The smaller one of the two in the middle. Of all: NaN where there is one, and equal ones share the gradient. Along dim: NaN counts as the largest.
Tensor median(const Operand& x);
std::tuple<Tensor, Tensor> median(const Operand& x, std::int64_t dim, bool keepdim = false);
/// Values and positions of the largest (smallest) along dim: of equal ones the first, which gets the gradient (amax and amin share it).
std::tuple<Tensor, Tensor> max(const Operand& x, std::int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> min(const Operand& x, std::int64_t dim, bool keepdim = false);

}  // namespace graven
