#include "graven/functional/reductions.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/functional/elementwise.h"
#include "graven/functional.h"
#include "ir/ops.h"

namespace graven {

using detail::apply;
using detail::fail;
using detail::tensor_of;

namespace {
Tensor reduce(std::string_view op, const Tensor& x, const Sizes& dims, bool keepdim, Location where) {
  return apply(op, {x}, {{"dims", dims}, {"keepdim", keepdim}}, where);
}
}  // namespace

Tensor sum(const Operand& x, const OneOrMore& dims, bool keepdim) {
  Tensor t = tensor_of(x);
  if (!ir::is_floating(t.dtype())) t = t.to(DType::i64, x.where());
  return reduce("sum", t, dims, keepdim, x.where());
}
Tensor mean(const Operand& x, const OneOrMore& dims, bool keepdim) {
  const Tensor t = tensor_of(x);
  if (!ir::is_floating(t.dtype()))
    fail("mean", "needs a floating-point tensor, got " + t.describe() + "; convert it with to(f32)", x.where());
  return reduce("mean", t, dims, keepdim, x.where());
}
Tensor amax(const Operand& x, const OneOrMore& dims, bool keepdim) {
  return reduce("amax", tensor_of(x), dims, keepdim, x.where());
}
Tensor amin(const Operand& x, const OneOrMore& dims, bool keepdim) {
  return reduce("amin", tensor_of(x), dims, keepdim, x.where());
}
Tensor prod(const Operand& x, const OneOrMore& dims, bool keepdim) {
  Tensor t = tensor_of(x);
  if (!ir::is_floating(t.dtype())) t = t.to(DType::i64, x.where());
  return reduce("prod", t, dims, keepdim, x.where());
}

namespace {
Tensor arg_extreme(const char* op, const Operand& x, std::optional<std::int64_t> dim, bool keepdim) {
  const Tensor t = tensor_of(x, op);
  if (dim)
    return apply(op, {t}, {{"dim", detail::normalize_dim(*dim, t.dim(), op, x.where())}, {"keepdim", keepdim}},
                 x.where());
  const Tensor flat =
      apply(op, {t.reshape({-1}, x.where())}, {{"dim", std::int64_t{0}}, {"keepdim", false}}, x.where());
  return keepdim ? flat.reshape(Shape(std::vector<Dim>(t.shape().rank(), Dim(1))), x.where()) : flat;
}
}  // namespace
Tensor argmax(const Operand& x, std::optional<std::int64_t> dim, bool keepdim) {
  return arg_extreme("argmax", x, dim, keepdim);
}
Tensor argmin(const Operand& x, std::optional<std::int64_t> dim, bool keepdim) {
  return arg_extreme("argmin", x, dim, keepdim);
}

namespace {

Tensor floating(const Operand& x, const char* function) {
  const Tensor& t = x.tensor(function);
  if (!ir::is_floating(t.dtype()))
    fail(function, "needs a floating-point tensor, got " + t.describe() + "; convert it with to(f32)", x.where());
  return t;
}

/// How many elements are reduced into one.
Dim count_of(const Tensor& t, const Sizes& dims, const char* function, Location at) {
  if (dims.empty()) return t.shape().numel();
  Dim n = 1;
  for (const std::int64_t d : dims) {
    if (t.dim() == 0) continue;
    n = n * t.shape()[static_cast<std::size_t>(detail::normalize_dim(d, t.dim(), function, at))];
  }
  return n;
}

struct Moments {
  Tensor variance, mean;  ///< dimensions kept
};
Moments moments(const Operand& x, const Sizes& dims, double correction, const char* function) {
  const Location at = x.where().in(function);
  const Tensor t = floating(x, function);
  const Dim n = count_of(t, dims, function, at);
  const Tensor mean = graven::mean(Operand(t, at), dims, true);
  const Tensor squares = square(Operand(sub(Operand(t, at), Operand(mean, at)), at));
  if (correction == 0) return {graven::mean(Operand(squares, at), dims, true), mean};
  if (!n.is_static()) {
    const Operand count(detail::size_value(n, t.dtype(), function, at), at);
    const Tensor divisor = maximum(Operand(sub(count, Operand(correction, at)), at), Operand(0, at));
    return {div(Operand(sum(Operand(squares, at), dims, true), at), Operand(divisor, at)), mean};
  }
  const double divisor = std::max(0.0, static_cast<double>(n.value()) - correction);
  return {div(Operand(sum(Operand(squares, at), dims, true), at), Operand(divisor, at)), mean};
}

/// The p-th root of what is at least 0, without a gradient where it is 0: a root's slope there is infinite, and
/// PyTorch's norm and std have none.
Tensor root_of(const Tensor& total, double p, Location at) {
  const Tensor zero = eq(Operand(total, at), Operand(0, at));
  const Tensor safe = where(Operand(zero, at), Operand(1, at), Operand(total, at));
  const Tensor root = p == 2 ? sqrt(Operand(safe, at)) : pow(Operand(safe, at), Operand(1 / p, at));
  return where(Operand(zero, at), Operand(p > 0 ? 0 : std::numeric_limits<double>::infinity(), at), Operand(root, at));
}

/// Drops the dimensions that a reduction over `dims` kept.
Tensor dropped(const Tensor& kept, const Sizes& dims, bool keepdim, Location at) {
  if (keepdim) return kept;
  std::vector<bool> reduced(kept.shape().rank(), dims.empty());
  for (const std::int64_t d : dims)
    if (kept.dim() > 0) reduced[static_cast<std::size_t>(detail::normalize_dim(d, kept.dim(), "reduction", at))] = true;
  std::vector<Dim> shape;
  for (std::size_t i = 0; i < reduced.size(); ++i)
    if (!reduced[i]) shape.push_back(kept.shape()[i]);
  return shape.size() == reduced.size() ? kept : kept.reshape(Shape(std::move(shape)), at);
}

std::tuple<Tensor, Tensor> sorted(const Operand& x, std::int64_t dim, bool descending, std::int64_t count,
                                  const char* function) {
  const Tensor& t = x.tensor(function);
  const std::int64_t d = detail::normalize_dim(dim, t.dim(), function, x.where());
  const std::vector<Tensor> results =
      detail::apply(ir::kSort, {t}, {{"dim", d}, {"descending", descending}, {"count", count}}, x.where().in(function));
  return {results.at(0), results.at(1)};
}

}  // namespace

std::tuple<Tensor, Tensor> var_mean(const Operand& x, const OneOrMore& dims, VarianceOptions o) {
  const Moments m = moments(x, dims, o.correction, "var_mean");
  return {dropped(m.variance, dims, o.keepdim, x.where()), dropped(m.mean, dims, o.keepdim, x.where())};
}
std::tuple<Tensor, Tensor> std_mean(const Operand& x, const OneOrMore& dims, VarianceOptions o) {
  const Moments m = moments(x, dims, o.correction, "std_mean");
  return {dropped(root_of(m.variance, 2, x.where()), dims, o.keepdim, x.where()),
          dropped(m.mean, dims, o.keepdim, x.where())};
}
Tensor var(const Operand& x, const OneOrMore& dims, VarianceOptions o) {
  return dropped(moments(x, dims, o.correction, "var").variance, dims, o.keepdim, x.where());
}
Tensor std(const Operand& x, const OneOrMore& dims, VarianceOptions o) {
  return dropped(root_of(moments(x, dims, o.correction, "std").variance, 2, x.where()), dims, o.keepdim, x.where());
}

Tensor norm(const Operand& x, double p, const OneOrMore& dims, bool keepdim) {
  const Location at = x.where().in("norm");
  const Tensor t = floating(x, "norm");
  const Operand magnitude(abs(Operand(t, at)), at);
  if (p == std::numeric_limits<double>::infinity()) return amax(magnitude, dims, keepdim);
  if (p == -std::numeric_limits<double>::infinity()) return amin(magnitude, dims, keepdim);
  if (p == 0) return sum(Operand(ne(Operand(t, at), Operand(0, at)).to(t.dtype(), at), at), dims, keepdim);
  if (p == 1) return sum(magnitude, dims, keepdim);
  Tensor powers;
  if (p == 2) {
    powers = square(Operand(t, at));
  } else if (p > 1) {
    powers = pow(magnitude, Operand(p, at));
  } else {
    // A power below 1 has no slope at 0 either.
    const Operand zero(eq(Operand(t, at), Operand(0, at)), at);
    const Operand safe(where(zero, Operand(1, at), magnitude), at);
    powers = where(zero, Operand(p > 0 ? 0 : std::numeric_limits<double>::infinity(), at),
                   Operand(pow(safe, Operand(p, at)), at));
  }
  return root_of(sum(Operand(powers, at), dims, keepdim), p, at);
}

Tensor logsumexp(const Operand& x, const OneOrMore& dims, bool keepdim) {
  const Location at = x.where().in("logsumexp");
  const Tensor t = ir::is_floating(x.tensor().dtype()) ? x.tensor() : x.tensor().to(DType::f32, at);
  // Of no terms there is no largest, and their sum is 0: its logarithm is -infinity.
  if (t.shape().numel() == Dim(0)) return log(Operand(sum(Operand(exp(Operand(t, at)), at), dims, keepdim), at));
  const Tensor top = amax(Operand(t.detach(at), at), dims, true);
  const Tensor shift = where(Operand(isfinite(Operand(top, at)), at), Operand(top, at), Operand(0, at));
  const Tensor total = sum(Operand(exp(Operand(sub(Operand(t, at), Operand(shift, at)), at)), at), dims, true);
  return dropped(add(Operand(log(Operand(total, at)), at), Operand(shift, at)), dims, keepdim, at);
}

Tensor nansum(const Operand& x, const OneOrMore& dims, bool keepdim) {
  const detail::At at(x.where().in("nansum"));
  const Tensor& t = x.tensor("nansum");
  if (!ir::is_floating(t.dtype())) return sum(at(t), dims, keepdim);
  return sum(at(where(at(isnan(at(t))), at(0), at(t))), dims, keepdim);
}
Tensor nanmean(const Operand& x, const OneOrMore& dims, bool keepdim) {
  const detail::At at(x.where().in("nanmean"));
  const Tensor t = floating(x, "nanmean");
  const Tensor count = sum(at(logical_not(at(isnan(at(t))))), dims, keepdim);
  return at.div(nansum(at(t), dims, keepdim), count.to(t.dtype(), at.where()));
}

Tensor count_nonzero(const Operand& x, const OneOrMore& dims) {
  const Location at = x.where().in("count_nonzero");
  return sum(Operand(ne(Operand(x.tensor(), at), Operand(0, at)), at), dims);
}
Tensor any(const Operand& x, const OneOrMore& dims, bool keepdim) {
  const Location at = x.where().in("any");
  return ne(Operand(sum(Operand(ne(Operand(x.tensor(), at), Operand(0, at)), at), dims, keepdim), at), Operand(0, at));
}
Tensor all(const Operand& x, const OneOrMore& dims, bool keepdim) {
  const Location at = x.where().in("all");
  return eq(Operand(sum(Operand(eq(Operand(x.tensor(), at), Operand(0, at)), at), dims, keepdim), at), Operand(0, at));
}

namespace {
Tensor scan(const char* op, const Operand& x, std::int64_t dim) {
  Tensor t = x.tensor(op);
  if (!ir::is_floating(t.dtype())) t = t.to(DType::i64, x.where());
  return apply(op, {t}, {{"dim", detail::normalize_dim(dim, t.dim(), op, x.where())}}, x.where());
}
}  // namespace
Tensor cumsum(const Operand& x, std::int64_t dim) { return scan("cumsum", x, dim); }
Tensor cumprod(const Operand& x, std::int64_t dim) { return scan("cumprod", x, dim); }

Tensor logcumsumexp(const Operand& x, std::int64_t dim) {
  const detail::At at(x.where().in("logcumsumexp"));
  Tensor t = floating(x, "logcumsumexp");
  if (t.dim() == 0) return t.clone(at.where());
  const std::int64_t axis = detail::normalize_dim(dim, t.dim(), "logcumsumexp", at.where());
  const std::int64_t n = detail::fixed_size(t, axis, "logcumsumexp", at.where());
  // After each step an element holds what twice as many up to it come to.
  for (std::int64_t span = 1; span < n; span *= 2) {
    const Tensor before = t.slice(axis, 0, n - span, 1, at.where()), behind = t.slice(axis, span, n, 1, at.where());
    t = cat({t.slice(axis, 0, span, 1, at.where()), logaddexp(at(before), at(behind))}, axis, at.where());
  }
  return detail::unshared(t, x.tensor(), at.where());
}

namespace {
/// The first k in order, of which there must be `least`. Of a symbol those that are not always there are checked when
/// the graph runs.
std::tuple<Tensor, Tensor> first_sorted(const Operand& x, std::int64_t k, std::int64_t least, std::int64_t dim,
                                        bool descending, const char* function) {
  const Tensor& t = x.tensor(function);
  const Location at = x.where().in(function);
  const std::int64_t d = detail::normalize_dim(dim, t.dim(), function, at);
  const Dim size = t.dim() == 0 ? Dim(1) : t.shape()[static_cast<std::size_t>(d)];
  if (k < least || k > size.maximum())
    fail(function, fmt::format("k must lie in [{}, {}], got {}", least, size.maximum(), k), at);
  if (k <= size.minimum()) return sorted(Operand(t, at), d, descending, k, function);
  const auto [values, indices] = sorted(Operand(t, at), d, descending, -1, function);
  return {values.narrow(d, 0, k, at), indices.narrow(d, 0, k, at)};
}
}  // namespace

std::tuple<Tensor, Tensor> sort(const Operand& x, std::int64_t dim, bool descending) {
  return sorted(x, dim, descending, -1, "sort");
}
Tensor argsort(const Operand& x, std::int64_t dim, bool descending) {
  return std::get<1>(sorted(x, dim, descending, -1, "argsort"));
}
std::tuple<Tensor, Tensor> topk(const Operand& x, std::int64_t k, std::int64_t dim, bool largest) {
  return first_sorted(x, k, 0, dim, largest, "topk");
}
std::tuple<Tensor, Tensor> kthvalue(const Operand& x, std::int64_t k, std::int64_t dim, bool keepdim) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("kthvalue");
  auto [values, indices] = first_sorted(Operand(t, at), k, 1, dim, false, "kthvalue");
  if (t.dim() == 0) return {values, indices};
  const std::int64_t d = detail::normalize_dim(dim, t.dim(), "kthvalue", at);
  if (keepdim) return {values.slice(d, k - 1, k, 1, at), indices.slice(d, k - 1, k, 1, at)};
  return {values.select(d, k - 1, at), indices.select(d, k - 1, at)};
}

namespace {
/// The element that stands at the position, which is the one that gets the gradient: amax would share it among equals.
std::tuple<Tensor, Tensor> extreme(const Operand& x, const Tensor& position, std::int64_t dim, bool keepdim) {
  const Tensor value = gather(x, dim, position);
  if (keepdim || x.tensor().dim() == 0) return {value, position};
  return {value.squeeze(dim, x.where()), position.squeeze(dim, x.where())};
}
}  // namespace
std::tuple<Tensor, Tensor> median(const Operand& x, std::int64_t dim, bool keepdim) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("median");
  const std::int64_t d = detail::normalize_dim(dim, t.dim(), "median", at);
  const Dim size = t.dim() == 0 ? Dim(1) : t.shape()[static_cast<std::size_t>(d)];
  if (size == Dim(0)) fail("median", "has no elements to choose from in " + t.describe(), at);
  const Operand detached(t.detach(at), at);
  Tensor position;
  if (size.is_static()) {
    position = std::get<1>(kthvalue(detached, (size.value() - 1) / 2 + 1, dim, true));
  } else {
    const Operand last(sub(Operand(detail::size_value(size, DType::i64, "median", at), at), Operand(1, at)), at);
    const Tensor middle = floor_divide(last, Operand(2, at)).reshape({1}, at);
    position = index_select(Operand(std::get<1>(sorted(detached, d, false, -1, "median")), at), d, middle);
  }
  if (ir::is_floating(t.dtype()) && t.dim() > 0) {
    // Where a row has NaN it is the first of those that is chosen.
    const Tensor nan = isnan(Operand(t, at));
    const Tensor first = argmax(Operand(nan.to(DType::i64, at), at), dim, true);
    position = where(Operand(any(Operand(nan, at), dim, true), at), Operand(first, at), Operand(position, at));
  }
  return extreme(Operand(t, at), position, dim, keepdim);
}
Tensor median(const Operand& x) {
  const Location at = x.where().in("median");
  const Tensor t = x.tensor().reshape({-1}, at);
  const Tensor middle = std::get<0>(median(Operand(t.detach(at), at), 0, false));
  if (!ir::is_floating(t.dtype())) return middle;
  // All elements that equal the median share its gradient, as in PyTorch: the largest of those that do not differ. NaN
  // differs from nothing.
  const Operand all(t, at), m(middle, at);
  const Tensor others = logical_or(Operand(lt(all, m), at), Operand(gt(all, m), at));
  return amax(Operand(where(Operand(others, at), Operand(-std::numeric_limits<double>::infinity(), at), all), at));
}

std::tuple<Tensor, Tensor> max(const Operand& x, std::int64_t dim, bool keepdim) {
  const Operand t(x.tensor(), x.where().in("max"));
  return extreme(t, argmax(t, dim, true), dim, keepdim);
}
std::tuple<Tensor, Tensor> min(const Operand& x, std::int64_t dim, bool keepdim) {
  const Operand t(x.tensor(), x.where().in("min"));
  return extreme(t, argmin(t, dim, true), dim, keepdim);
}
Tensor max(const Operand& x) { return amax(Operand(x.tensor(), x.where().in("max"))); }
Tensor min(const Operand& x) { return amin(Operand(x.tensor(), x.where().in("min"))); }
Tensor max(const Operand& x, const Tensor& other) {
  const Location at = x.where().in("max");
  return maximum(Operand(x.tensor(), at), Operand(other, at));
}
Tensor min(const Operand& x, const Tensor& other) {
  const Location at = x.where().in("min");
  return minimum(Operand(x.tensor(), at), Operand(other, at));
}

// ---- running extremes -----------------------------------------------------------------------------------------------

namespace {

/// In log2(n) steps, each of which reaches twice as far: of the best up to an element, and the best of as many before
/// it, the better.
std::tuple<Tensor, Tensor> running_extreme(const char* function, const Operand& x, std::int64_t dim, bool largest) {
  const Location where_called = x.where().in(function);
  const detail::At at(where_called);
  const Tensor& t = x.tensor(function);
  const std::int64_t d = detail::normalize_dim(dim, t.dim(), function, where_called);
  if (t.dim() == 0) return {t.clone(where_called), detail::filled({}, 0, DType::i64, t, where_called)};
  const std::int64_t n = detail::fixed_size(t, d, function, where_called);
  Shape along;
  for (std::int64_t k = 0; k < t.dim(); ++k) along.push_back(k == d ? Dim(n) : Dim(1));
  Tensor position = detail::counted(n, t, where_called).reshape(along, where_called).expand(t.shape(), where_called);
  Tensor best = t.dtype() == DType::boolean ? t.to(DType::i64, where_called) : t.detach(where_called);
  for (std::int64_t step = 1; step < n; step *= 2) {
    const auto later = [&](const Tensor& of) { return at(of.slice(d, step, n, 1, where_called)); };
    const auto earlier = [&](const Tensor& of) { return at(of.slice(d, 0, n - step, 1, where_called)); };
    Tensor stays = largest ? ge(later(best), earlier(best)) : le(later(best), earlier(best));
    if (ir::is_floating(t.dtype())) stays = logical_or(at(stays), at(isnan(later(best))));
    const auto better = [&](const Tensor& of) {
      return cat({of.slice(d, 0, step, 1, where_called), where(at(stays), later(of), earlier(of))}, d, where_called);
    };
    position = better(position);
    best = better(best);
  }
  return {gather(x, d, position), position};
}

}  // namespace

std::tuple<Tensor, Tensor> cummax(const Operand& x, std::int64_t dim) {
  return running_extreme("cummax", x, dim, true);
}
std::tuple<Tensor, Tensor> cummin(const Operand& x, std::int64_t dim) {
  return running_extreme("cummin", x, dim, false);
}

// ---- quantiles ------------------------------------------------------------------------------------------------------

Tensor quantile(const Operand& x, const std::vector<double>& q, std::optional<std::int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  const Location at = x.where().in("quantile");
  constexpr std::string_view kKinds[] = {"linear", "lower", "higher", "midpoint", "nearest"};
  if (std::find(std::begin(kKinds), std::end(kKinds), interpolation) == std::end(kKinds))
    fail("quantile",
         fmt::format("interpolation must be linear, lower, higher, midpoint or nearest, got '{}'", interpolation), at);
  if (x.tensor().dtype() != DType::f32 && x.tensor().dtype() != DType::f64)
    fail("quantile", "expects f32 or f64, got " + x.tensor().describe(), at);
  if (q.empty()) fail("quantile", "needs at least one number", at);
  for (const double part : q)
    if (!(part >= 0 && part <= 1)) fail("quantile", fmt::format("a part must lie in [0, 1], got {}", part), at);
  const Tensor t = dim && x.tensor().dim() > 0 ? x.tensor() : x.tensor().reshape({-1}, at);
  const std::int64_t d = detail::normalize_dim(dim.value_or(0), t.dim(), "quantile", at),
                     n = detail::fixed_size(t, d, "quantile", at);
  // Places beyond it are no numbers of f32, as PyTorch's limit says of all dtypes.
  if (constexpr std::int64_t kMost = std::int64_t{1} << 24; n > kMost && t.dtype() == DType::f32)
    fail("quantile",
         fmt::format("the input is too large: at most {} elements of f32, got {}; to(f64) has no limit", kMost, n), at);
  if (n == 0) fail("quantile", "has no elements to choose from in " + t.describe(), at);
  const Tensor in_order = std::get<0>(sort(Operand(t, at), d));
  const Tensor nan = any(Operand(isnan(Operand(t, at)), at), d, true);
  std::vector<Tensor> results;
  for (const double part : q) {
    // Where between two elements, in the precision of the elements.
    const double last = static_cast<double>(n - 1);
    double place = t.dtype() == DType::f32 ? static_cast<double>(static_cast<float>(part) * static_cast<float>(last))
                                           : part * last;
    if (interpolation == "lower") place = std::floor(place);
    if (interpolation == "higher") place = std::ceil(place);
    if (interpolation == "nearest") place = std::nearbyint(place);
    const auto element = [&](double i) {
      return in_order.slice(d, static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1, 1, at);
    };
    const Tensor below = element(std::floor(place));
    Tensor value = below;
    if (place != std::floor(place)) {
      const double weight = interpolation == "midpoint" ? 0.5 : place - std::floor(place);
      value = lerp(Operand(below, at), Operand(element(std::ceil(place)), at), Operand(weight, at));
    }
    value = where(Operand(nan, at), Operand(std::numeric_limits<double>::quiet_NaN(), at), Operand(value, at));
    if (!keepdim)
      value = value.squeeze(d, at);
    else if (!dim || x.tensor().dim() == 0)
      value = value.reshape(Shape(std::vector<Dim>(x.tensor().shape().rank(), Dim(1))), at);
    results.push_back(x.tensor().dim() == 0 ? value.reshape(Shape{}, at) : value);
  }
  return stack(results, 0, at);
}
Tensor quantile(const Operand& x, double q, std::optional<std::int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  return quantile(x, std::vector<double>{q}, dim, keepdim, interpolation).squeeze(0, x.where());
}

namespace {

/// The whole number that stands for `number` among integers, and on which side: as many of them are smaller than 2.5 as
/// are than 3, and as many are at most 2.5 as are at most 2. NaN comes behind all.
std::pair<std::int64_t, bool> among_integers(const Scalar& number, bool right) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (number.category() != Scalar::Category::floating) return {number.integer(), right};
  const double value = number.number();
  if (!(value < 0x1p63)) return {Limits::max(), true};
  if (value < -0x1p63) return {Limits::min(), false};
  const double whole = right ? std::floor(value) : std::ceil(value);
  return {static_cast<std::int64_t>(whole), right};
}

}  // namespace

Tensor searchsorted(const Operand& sorted, const Operand& values, bool right) {
  const Location at = sorted.where().in("searchsorted");
  Tensor row = sorted.tensor(), wanted;
  if (values.is_tensor()) {
    wanted = values.tensor();
  } else if (ir::is_floating(row.dtype())) {
    wanted = detail::filled({}, values.scalar(), row.dtype(), row, at);
  } else {
    const auto [whole, side] = among_integers(values.scalar(), right);
    row = row.to(DType::i64, at);
    wanted = tensor(Scalar(whole), DType::i64);
    right = side;
  }
  const bool shared = row.dim() == 1;
  const bool alike = row.dim() > 0 && row.dim() == wanted.dim() &&
                     std::equal(row.shape().begin(), row.shape().end() - 1, wanted.shape().begin());
  if (row.dim() == 0 || (!shared && !alike))
    fail("searchsorted",
         "the sorted numbers must be a vector, or have the values' sizes but for the last one, got " + row.describe() +
             " and " + wanted.describe(),
         at);
  // As many as are smaller: written so that NaN comes behind all numbers.
  const Operand each(shared ? row : row.unsqueeze(-2, at), at), value(wanted.unsqueeze(-1, at), at);
  const Tensor behind = right ? gt(each, value) : ge(each, value);
  return sum(Operand(logical_not(Operand(behind, at)), at), -1);
}

}  // namespace graven
