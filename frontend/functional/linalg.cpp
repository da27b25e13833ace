#include "graven/functional/linalg.h"

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "graven/functional.h"

namespace graven::linalg {

using graven::detail::At;
using graven::detail::fail;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A floating tensor of two dimensions at least.
Tensor matrices(const char* function, const Operand& x) {
  const Tensor& t = x.tensor(function);
  if (!ir::is_floating(t.dtype()) || t.dim() < 2)
    fail(function, "expects floating-point matrices [..., n, m], got " + t.describe(), x.where());
  return t;
}

/// The n of matrices of [..., n, n].
std::int64_t order_of(const char* function, const Operand& x) {
  const Tensor t = matrices(function, x);
  const std::int64_t n = graven::detail::fixed_size(t, t.dim() - 1, function, x.where());
  if (t.shape().back(1) != Dim(n)) fail(function, "the matrices must be square, got " + t.describe(), x.where());
  return n;
}

Tensor columns(const Tensor& t, std::int64_t from, std::int64_t to, Location where) {
  return t.slice(-1, from, to, 1, where);
}

/// 0, 1, ... n - 1, one below the other: the number of each row.
Tensor row_numbers(std::int64_t n, const Tensor& like, Location where) {
  return graven::detail::counted(n, like, where).unsqueeze(1, where);
}

/// Row k of t[..., n, m] exchanged with the row below it whose element in column k is the largest. `below`: how far
/// below, i64[..., 1, 1].
Tensor with_pivot(const Tensor& t, std::int64_t k, Tensor& below, Location where) {
  const At at(where);
  const std::int64_t n = t.size(-2);
  const Tensor column = columns(t, k, k + 1, where).slice(-2, k, n, 1, where);
  below = argmax(at(abs(at(column.detach(where)))), -2, true);
  const Tensor pivot = graven::add(at(below), Operand(k, where)), row = row_numbers(n, t, where);
  const Tensor there = graven::where(at(graven::eq(at(row), at(pivot))), Operand(k, where), at(row));
  const Tensor source = graven::where(at(graven::eq(at(row), Operand(k, where))), at(pivot), at(there));
  return take_along_dim(at(t), source, -2);
}

/// What is subtracted from the rows to make column k zero in all of them but row k, as factors of row k divided by its
/// pivot.
Tensor factors(const Tensor& t, std::int64_t k, bool below_only, Location where) {
  const At at(where);
  const Tensor row = row_numbers(t.size(-2), t, where);
  const Operand number(k, where);
  const Tensor stays = below_only ? graven::le(at(row), number) : graven::eq(at(row), number);
  return graven::where(at(stays), Operand(0, where), at(columns(t, k, k + 1, where)));
}

Tensor axes_norm(const Operand& x, double ord, const OneOrMore& dim, bool keepdim) {
  const Location where = x.where().in("matrix_norm");
  const At at(where);
  const Tensor t = matrices("matrix_norm", x);
  if (dim.size() != 2) fail("matrix_norm", fmt::format("dim must be two dimensions, got {}", dim.size()), where);
  const std::int64_t rows = graven::detail::normalize_dim(dim[0], t.dim(), "matrix_norm", where),
                     columns = graven::detail::normalize_dim(dim[1], t.dim(), "matrix_norm", where);
  if (rows == columns) fail("matrix_norm", "the two dimensions must differ", where);
  const bool of_columns = ord == 1 || ord == -1;
  const Tensor sums = sum(at(abs(at(t))), of_columns ? rows : columns, true);
  const std::int64_t rest = of_columns ? columns : rows;
  const Tensor kept = ord > 0 ? amax(at(sums), rest, true) : amin(at(sums), rest, true);
  if (keepdim) return kept;
  return kept.squeeze(std::max(rows, columns), where).squeeze(std::min(rows, columns), where);
}

}  // namespace

Tensor vector_norm(const Operand& x, double ord, const OneOrMore& dim, bool keepdim) {
  return norm(Operand(x.tensor(), x.where().in("vector_norm")), ord, dim, keepdim);
}

Tensor matrix_norm(const Operand& x, std::string_view ord, const OneOrMore& dim, bool keepdim) {
  if (ord != "fro")
    fail("matrix_norm", "the order must be 'fro', 1, -1 or an infinity, got '" + std::string(ord) + "'", x.where());
  const Tensor t = matrices("matrix_norm", x);
  if (dim.size() != 2) fail("matrix_norm", fmt::format("dim must be two dimensions, got {}", dim.size()), x.where());
  return norm(Operand(t, x.where().in("matrix_norm")), 2, dim, keepdim);
}
Tensor matrix_norm(const Operand& x, double ord, const OneOrMore& dim, bool keepdim) {
  if (ord != 1 && ord != -1 && ord != kInfinity && ord != -kInfinity)
    fail("matrix_norm", fmt::format("the order must be 'fro', 1, -1 or an infinity, got {}", ord), x.where());
  return axes_norm(x, ord, dim, keepdim);
}

Tensor solve(const Operand& a, const Operand& b) {
  const Location where = a.where().in("solve");
  const At at(where);
  const std::int64_t n = order_of("solve", a);
  const Tensor& left = a.tensor();
  Tensor right = b.tensor();
  const auto leading = [&](std::int64_t rank) {
    return right.dim() == rank &&
           std::equal(right.shape().begin(), right.shape().end() - (right.dim() - left.dim() + 2),
                      left.shape().begin());
  };
  const bool vectors = right.dim() == left.dim() - 1 && leading(left.dim() - 1) && right.shape().back() == Dim(n);
  if (vectors) right = right.unsqueeze(-1, where);
  if (right.dtype() != left.dtype() || !leading(left.dim()) || right.shape().back(1) != Dim(n))
    fail("solve",
         "b must be [..., n] or [..., n, k] of the dtype of a[..., n, n], got " + left.describe() + " and " +
             b.tensor().describe(),
         where);
  Tensor both = cat({left, right}, -1, where);
  for (std::int64_t k = 0; k < n; ++k) {
    Tensor below;
    both = with_pivot(both, k, below, where);
    const Tensor row = both.slice(-2, k, k + 1, 1, where);
    const Tensor scaled = at.div(row, columns(row, k, k + 1, where));
    const Tensor reduced = at.sub(both, at.mul(factors(both, k, false, where), scaled));
    both = graven::where(at(graven::eq(at(row_numbers(n, both, where)), Operand(k, where))), at(scaled), at(reduced));
  }
  const Tensor x = columns(both, n, n + right.size(-1), where);
  return vectors ? x.squeeze(-1, where) : x;
}

Tensor inv(const Operand& a) {
  const Location where = a.where().in("inv");
  const std::int64_t n = order_of("inv", a);
  const Tensor& t = a.tensor();
  const Tensor row = row_numbers(n, t, where);
  const Tensor identity = graven::eq(Operand(row, where), Operand(row.squeeze(1, where), where)).to(t.dtype(), where);
  return solve(a, Operand(identity.expand(t.shape(), where), where));
}

Tensor det(const Operand& a) {
  const Location where = a.where().in("det");
  const At at(where);
  const std::int64_t n = order_of("det", a);
  Tensor t = a.tensor();
  const Shape batch(std::vector<Dim>(t.shape().begin(), t.shape().end() - 2));
  Tensor product = graven::detail::filled(batch, 1, t.dtype(), t, where);
  for (std::int64_t k = 0; k < n; ++k) {
    Tensor below;
    t = with_pivot(t, k, below, where);
    const Tensor row = t.slice(-2, k, k + 1, 1, where), pivot = columns(row, k, k + 1, where);
    // Rows that were exchanged turn the sign.
    const Tensor signed_pivot =
        graven::where(at(graven::gt(at(below), Operand(0, where))), at(neg(at(pivot))), at(pivot));
    product = at.mul(product, signed_pivot.squeeze(-1, where).squeeze(-1, where));
    if (k + 1 == n) break;
    // A column of zeros: nothing below is left to be eliminated, and the product is 0 already.
    const Tensor safe = graven::where(at(graven::eq(at(pivot), Operand(0, where))), Operand(1, where), at(pivot));
    t = at.sub(t, at.mul(factors(t, k, true, where), at.div(row, safe)));
  }
  return product;
}

Tensor cholesky(const Operand& a) {
  const Location where = a.where().in("cholesky");
  const At at(where);
  const std::int64_t n = order_of("cholesky", a);
  if (n == 0) return a.tensor().clone(where);
  // Both triangles are one matrix's: each has half of the gradient, as in PyTorch.
  const Tensor whole = at.mul(at.add(a.tensor(), a.tensor().transpose(-2, -1, where)), 0.5);
  Tensor rest = whole;
  std::vector<Tensor> found;
  for (std::int64_t k = 0; k < n; ++k) {
    const Tensor column = columns(rest, k, k + 1, where);
    const Tensor scaled = at.div(column, sqrt(at(column.slice(-2, k, k + 1, 1, where))));
    const Tensor above = graven::lt(at(row_numbers(n, rest, where)), Operand(k, where));
    found.push_back(graven::where(at(above), Operand(0, where), at(scaled)));
    if (k + 1 < n) rest = at.sub(rest, at.mul(found.back(), found.back().transpose(-2, -1, where)));
  }
  return cat(found, -1, where);
}

}  // namespace graven::linalg
