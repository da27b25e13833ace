#include "graven/functional/distances.h"

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "graven/functional.h"

namespace graven {

using detail::At;
using detail::fail;

Tensor normalize(const Operand& x, double p, std::int64_t dim, double eps) {
  const At at(x.where().in("normalize"));
  return at.div(x.tensor(), clamp(at(norm(at(x), p, {dim}, true)), eps));
}

Tensor cosine_similarity(const Operand& x1, const Operand& x2, std::int64_t dim, double eps) {
  const At at(x1.where().in("cosine_similarity"));
  const Tensor a = at.div(x1.tensor(), clamp(at(norm(at(x1), 2, {dim}, true)), eps));
  const Tensor b = at.div(x2.tensor(), clamp(at(norm(at(x2.tensor()), 2, {dim}, true)), eps));
  return sum(at(at.mul(a, b)), {dim});
}

Tensor pairwise_distance(const Operand& x1, const Operand& x2, double p, double eps, bool keepdim) {
  const At at(x1.where().in("pairwise_distance"));
  const Tensor difference = at.sub(x1, x2);
  if (difference.dim() == 0) fail("pairwise_distance", "expects vectors, got " + difference.describe(), at.where());
  return norm(at(at.add(difference, eps)), p, {-1}, keepdim);
}

Tensor cdist(const Operand& x1, const Operand& x2, double p) {
  const At at(x1.where().in("cdist"));
  const Tensor &a = x1.tensor(), &b = x2.tensor();
  if (!(p >= 0)) fail("cdist", "p must not be negative, got " + fmt::format("{}", p), at.where());
  if (a.dim() < 2 || b.dim() < 2 || a.shape().back() != b.shape().back())
    fail("cdist", "expects [..., n, size] and [..., m, size], got " + a.describe() + " and " + b.describe(),
         at.where());
  return norm(at(at.sub(a.unsqueeze(-2, at.where()), b.unsqueeze(-3, at.where()))), p, {-1});
}

}  // namespace graven
