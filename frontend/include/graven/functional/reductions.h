// Reductions, running sums and sorting. Empty dims: all of them.
//
//   Tensor spread = std(x, {-1}, {.keepdim = true});
//   auto [values, classes] = topk(softmax(logits, -1), 5);
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "graven/tensor.h"

namespace graven {

Tensor sum(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor mean(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor amax(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor amin(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor prod(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
/// i64; over the flattened tensor when no dimension is given.
Tensor argmax(const Operand& x, std::optional<std::int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Operand& x, std::optional<std::int64_t> dim = {}, bool keepdim = false);

struct VarianceOptions {
  double correction = 1;  ///< the sum of squares is divided by n - correction: 1 unbiased, 0 biased
  bool keepdim = false;
};
Tensor var(const Operand& x, const OneOrMore& dims = {}, VarianceOptions options = {});
Tensor std(const Operand& x, const OneOrMore& dims = {}, VarianceOptions options = {});
/// Variance (deviation) and mean.
std::tuple<Tensor, Tensor> var_mean(const Operand& x, const OneOrMore& dims = {}, VarianceOptions options = {});
std::tuple<Tensor, Tensor> std_mean(const Operand& x, const OneOrMore& dims = {}, VarianceOptions options = {});
/// (sum |x|^p)^(1/p); p may be infinite (largest magnitude), minus infinite (smallest) or 0 (how many are not 0). The
/// gradient at 0 is 0.
Tensor norm(const Operand& x, double p = 2, const OneOrMore& dims = {}, bool keepdim = false);
/// log(sum exp(x)), without overflow.
Tensor logsumexp(const Operand& x, const OneOrMore& dims, bool keepdim = false);
/// sum and mean of what is not NaN; of nothing but NaN 0, and NaN.
Tensor nansum(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor nanmean(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
/// bool: whether all (any) are not 0.
Tensor all(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor any(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
/// i64
Tensor count_nonzero(const Operand& x, const OneOrMore& dims = {});

/// Integers and bools give i64.
Tensor cumsum(const Operand& x, std::int64_t dim);
Tensor cumprod(const Operand& x, std::int64_t dim);
/// log(cumsum(exp(x))), without overflow, in log2(n) steps.
Tensor logcumsumexp(const Operand& x, std::int64_t dim);

/// Values in order and, i64, where they stood. Equal ones keep their order (PyTorch's stable = true); NaN counts as the
/// largest.
std::tuple<Tensor, Tensor> sort(const Operand& x, std::int64_t dim = -1, bool descending = false);
Tensor argsort(const Operand& x, std::int64_t dim = -1, bool descending = false);
/// The k largest (or smallest), in order.
std::tuple<Tensor, Tensor> topk(const Operand& x, std::int64_t k, std::int64_t dim = -1, bool largest = true);
/// The k-th smallest, from 1.
std::tuple<Tensor, Tensor> kthvalue(const Operand& x, std::int64_t k, std::int64_t dim = -1, bool keepdim = false);
/// The smaller one of the two in the middle; NaN where there is one. Of all: equal ones share the gradient.
Tensor median(const Operand& x);
std::tuple<Tensor, Tensor> median(const Operand& x, std::int64_t dim, bool keepdim = false);
/// Values and positions of the largest (smallest) along dim: of equal ones the first, which gets the gradient (amax and
/// amin share it).
std::tuple<Tensor, Tensor> max(const Operand& x, std::int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> min(const Operand& x, std::int64_t dim, bool keepdim = false);
/// The largest (smallest) of all, as amax (amin).
Tensor max(const Operand& x);
Tensor min(const Operand& x);
/// Element by element: maximum() and minimum().
Tensor max(const Operand& x, const Tensor& other);
Tensor min(const Operand& x, const Tensor& other);

/// The largest (smallest) so far along dim, and, i64, where it stands: of equal ones the last, which gets the gradient.
/// NaN stays.
std::tuple<Tensor, Tensor> cummax(const Operand& x, std::int64_t dim);
std::tuple<Tensor, Tensor> cummin(const Operand& x, std::int64_t dim);
/// What a part q of the elements, from 0 to 1, does not exceed; q numbers give a first dimension of as many. Between
/// two elements: "linear" (in proportion), "lower", "higher", "midpoint" or "nearest" (even positions where both are as
/// near). NaN where there is one. f32 or f64.
Tensor quantile(const Operand& x, double q, std::optional<std::int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
Tensor quantile(const Operand& x, const std::vector<double>& q, std::optional<std::int64_t> dim = {},
                bool keepdim = false, std::string_view interpolation = "linear");
/// i64: before which of the ascending numbers of its row, sorted[..., n], each of values[..., m] is to be put so that
/// they stay in order: before equal ones, or with `right` behind them. A vector of sorted numbers serves values of any
/// shape.
Tensor searchsorted(const Operand& sorted, const Operand& values, bool right = false);

}  // namespace graven
