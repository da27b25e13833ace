#include "graven/functional/reductions.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "frontend/dispatch.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

Tensor floating(const Operand& x, const char* function) {
  if (!ir::is_floating(x.tensor().dtype()))
    fail(function, "needs a floating-point tensor, got " + x.tensor().describe() + "; convert it with to(f32)", x.where());
  return x.tensor();
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

/// The p-th root of what is at least 0, without a gradient where it is 0: a root's slope there is infinite, and PyTorch's norm and std have none.
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

std::tuple<Tensor, Tensor> sorted(const Operand& x, std::int64_t dim, bool descending, std::int64_t count, const char* function) {
  const std::int64_t d = detail::normalize_dim(dim, x.tensor().dim(), function, x.where());
  const std::vector<Tensor> results =
      detail::apply(ir::get_op("sort"), {x.tensor()}, {{"dim", d}, {"descending", descending}, {"count", count}},
                    x.where().in(function));
  return {results.at(0), results.at(1)};
}

}  // namespace

std::tuple<Tensor, Tensor> var_mean(const Operand& x, const Sizes& dims, VarianceOptions o) {
  const Moments m = moments(x, dims, o.correction, "var_mean");
  return {dropped(m.variance, dims, o.keepdim, x.where()), dropped(m.mean, dims, o.keepdim, x.where())};
}
std::tuple<Tensor, Tensor> std_mean(const Operand& x, const Sizes& dims, VarianceOptions o) {
  const Moments m = moments(x, dims, o.correction, "std_mean");
  return {dropped(root_of(m.variance, 2, x.where()), dims, o.keepdim, x.where()), dropped(m.mean, dims, o.keepdim, x.where())};
}
Tensor var(const Operand& x, const Sizes& dims, VarianceOptions o) {
  return dropped(moments(x, dims, o.correction, "var").variance, dims, o.keepdim, x.where());
}
Tensor std(const Operand& x, const Sizes& dims, VarianceOptions o) {
  return dropped(root_of(moments(x, dims, o.correction, "std").variance, 2, x.where()), dims, o.keepdim, x.where());
}

Tensor norm(const Operand& x, double p, const Sizes& dims, bool keepdim) {
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
    powers = where(zero, Operand(p > 0 ? 0 : std::numeric_limits<double>::infinity(), at), Operand(pow(safe, Operand(p, at)), at));
  }
  return root_of(sum(Operand(powers, at), dims, keepdim), p, at);
}

Tensor logsumexp(const Operand& x, const Sizes& dims, bool keepdim) {
  const Location at = x.where().in("logsumexp");
  const Tensor t = ir::is_floating(x.tensor().dtype()) ? x.tensor() : x.tensor().to(DType::f32, at);
  const Tensor top = amax(Operand(t.detach(at), at), dims, true);
  const Tensor shift = where(Operand(isfinite(Operand(top, at)), at), Operand(top, at), Operand(0, at));
  const Tensor total = sum(Operand(exp(Operand(sub(Operand(t, at), Operand(shift, at)), at)), at), dims, true);
  return dropped(add(Operand(log(Operand(total, at)), at), Operand(shift, at)), dims, keepdim, at);
}

Tensor count_nonzero(const Operand& x, const Sizes& dims) {
  const Location at = x.where().in("count_nonzero");
  return sum(Operand(ne(x, Operand(0, at)), at), dims);
}
Tensor any(const Operand& x, const Sizes& dims, bool keepdim) {
  const Location at = x.where().in("any");
  return ne(Operand(sum(Operand(ne(x, Operand(0, at)), at), dims, keepdim), at), Operand(0, at));
}
Tensor all(const Operand& x, const Sizes& dims, bool keepdim) {
  const Location at = x.where().in("all");
  return eq(Operand(sum(Operand(eq(x, Operand(0, at)), at), dims, keepdim), at), Operand(0, at));
}

namespace {
Tensor scan(std::string_view op, const Operand& x, std::int64_t dim) {
  Tensor t = x.tensor();
  if (!ir::is_floating(t.dtype())) t = t.to(DType::i64, x.where());
  return apply(op, {t}, {{"dim", detail::normalize_dim(dim, t.dim(), std::string(op).c_str(), x.where())}}, x.where());
}
}  // namespace
Tensor cumsum(const Operand& x, std::int64_t dim) { return scan("cumsum", x, dim); }
Tensor cumprod(const Operand& x, std::int64_t dim) { return scan("cumprod", x, dim); }

namespace {
/// The first k in order, of which there must be `least`. Of a symbol those that are not always there are checked when
/// the graph runs.
std::tuple<Tensor, Tensor> first_sorted(const Operand& x, std::int64_t k, std::int64_t least, std::int64_t dim,
                                        bool descending, const char* function) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in(function);
  const std::int64_t d = detail::normalize_dim(dim, t.dim(), function, at);
  const Dim size = t.dim() == 0 ? Dim(1) : t.shape()[static_cast<std::size_t>(d)];
  if (k < least || k > size.maximum())
    fail(function, fmt::format("k must lie in [{}, {}], got {}", least, size.maximum(), k), at);
  if (k <= size.coefficient()) return sorted(Operand(t, at), d, descending, k, function);
  const auto [values, indices] = sorted(Operand(t, at), d, descending, -1, function);
  return {values.narrow(d, 0, k, at), indices.narrow(d, 0, k, at)};
}
}  // namespace

std::tuple<Tensor, Tensor> sort(const Operand& x, std::int64_t dim, bool descending) { return sorted(x, dim, descending, -1, "sort"); }
Tensor argsort(const Operand& x, std::int64_t dim, bool descending) { return std::get<1>(sorted(x, dim, descending, -1, "argsort")); }
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
std::tuple<Tensor, Tensor> median(const Operand& x, std::int64_t dim, bool keepdim) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("median");
  const std::int64_t d = detail::normalize_dim(dim, t.dim(), "median", at);
  const Dim size = t.dim() == 0 ? Dim(1) : t.shape()[static_cast<std::size_t>(d)];
  if (size == Dim(0)) fail("median", "has no elements to choose from in " + t.describe(), at);
  if (size.is_static()) return kthvalue(Operand(t, at), (size.value() - 1) / 2 + 1, dim, keepdim);
  const auto [values, indices] = sorted(Operand(t, at), d, false, -1, "median");
  const Operand last(sub(Operand(detail::size_value(size, DType::i64, "median", at), at), Operand(1, at)), at);
  const Tensor middle = floor_divide(last, Operand(2, at)).reshape({1}, at);
  const Tensor value = index_select(Operand(values, at), d, middle),
               index = index_select(Operand(indices, at), d, middle);
  if (keepdim) return {value, index};
  return {value.squeeze(d, at), index.squeeze(d, at)};
}
Tensor median(const Operand& x) {
  const Location at = x.where().in("median");
  const Tensor t = x.tensor().reshape({-1}, at);
  const Tensor middle = std::get<0>(median(Operand(t.detach(at), at), 0, false));
  if (!ir::is_floating(t.dtype())) return middle;
  // All elements that equal the median share its gradient, as in PyTorch: the largest of those that do not differ. NaN differs from nothing.
  const Operand all(t, at), m(middle, at);
  const Tensor others = logical_or(Operand(lt(all, m), at), Operand(gt(all, m), at));
  return amax(Operand(where(Operand(others, at), Operand(-std::numeric_limits<double>::infinity(), at), all), at));
}

namespace {
/// The element that stands at the position, which is the one that gets the gradient: amax would share it among equals.
std::tuple<Tensor, Tensor> extreme(const Operand& x, const Tensor& position, std::int64_t dim, bool keepdim) {
  const Tensor value = gather(x, dim, position);
  if (keepdim || x.tensor().dim() == 0) return {value, position};
  return {value.squeeze(dim, x.where()), position.squeeze(dim, x.where())};
}
}  // namespace
std::tuple<Tensor, Tensor> max(const Operand& x, std::int64_t dim, bool keepdim) { return extreme(x, argmax(x, dim, true), dim, keepdim); }
std::tuple<Tensor, Tensor> min(const Operand& x, std::int64_t dim, bool keepdim) { return extreme(x, argmin(x, dim, true), dim, keepdim); }

}  // namespace graven
