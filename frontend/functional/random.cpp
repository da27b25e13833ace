#include "graven/functional/random.h"

#include <fmt/format.h>

#include <cmath>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/random.h"
#include "frontend/trace.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

void check_probability(const char* function, double p, Location where) {
  if (!(p >= 0 && p <= 1)) fail(function, "the probability must lie in [0, 1], got " + fmt::format("{}", p), where);
}

Tensor drop(const Tensor& x, double p, Location where) {
  const detail::RandomSource source = detail::random_source();
  return apply("dropout", {x, source.seed, source.step}, {{"p", p}, {"stream", source.stream}}, where);
}

/// A mask of one number a channel times x.
Tensor drop_channels(const char* function, const Operand& operand, double p, bool training, std::int64_t rank) {
  const Location where = operand.where();
  const Tensor& x = operand.tensor(function);
  check_probability(function, p, where);
  if (x.dim() != rank && x.dim() != rank - 1)
    fail(function,
         "expects " + std::to_string(rank) + " dimensions, or " + std::to_string(rank - 1) + " without a batch, got " +
             x.describe(),
         where);
  if (!ir::is_floating(x.dtype())) fail(function, "needs a floating-point tensor, got " + x.describe(), where);
  if (!training || p == 0) return x;
  Shape shape;
  const std::size_t kept = x.dim() == rank ? 2 : 1;
  for (std::size_t d = 0; d < x.shape().rank(); ++d) shape.push_back(d < kept ? x.shape()[d] : Dim(1));
  const Tensor whole = detail::filled(shape, 1, x.dtype(), x, where);
  return mul(Operand(x, where), Operand(drop(whole, p, where), where));
}

Tensor draw(const char* function, std::string_view op, const Operand& operand) {
  const Tensor& x = operand.tensor(function);
  const Location where = operand.where();
  if (!ir::is_floating(x.dtype())) fail(function, "needs a floating-point tensor, got " + x.describe(), where);
  const detail::RandomSource source = detail::random_source();
  const DType drawn = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor y =
      apply(op, {source.seed, source.step}, {{"shape", x.shape()}, {"dtype", drawn}, {"stream", source.stream}}, where);
  return detail::beside(y, x);
}

}  // namespace

Tensor dropout(const Operand& x, double p, bool training) {
  check_probability("dropout", p, x.where());
  if (!training || p == 0) return x.tensor();
  return drop(x.tensor(), p, x.where());
}
Tensor dropout1d(const Operand& x, double p, bool training) { return drop_channels("dropout1d", x, p, training, 3); }
Tensor dropout2d(const Operand& x, double p, bool training) { return drop_channels("dropout2d", x, p, training, 4); }
Tensor dropout3d(const Operand& x, double p, bool training) { return drop_channels("dropout3d", x, p, training, 5); }

Tensor stochastic_depth(const Operand& operand, double p, std::string_view mode, bool training) {
  const Location where = operand.where();
  const Tensor& x = operand.tensor();
  check_probability("stochastic_depth", p, where);
  if (mode != "row" && mode != "batch")
    fail("stochastic_depth", "mode must be row or batch, got '" + std::string(mode) + "'", where);
  if (!ir::is_floating(x.dtype()))
    fail("stochastic_depth", "needs a floating-point tensor, got " + x.describe(), where);
  if (mode == "row" && x.dim() == 0) fail("stochastic_depth", "a number has no rows", where);
  if (!training || p == 0) return x;
  Shape shape;
  for (std::size_t d = 0; d < x.shape().rank(); ++d) shape.push_back(d == 0 && mode == "row" ? x.shape()[0] : Dim(1));
  const Tensor whole = detail::filled(shape, 1, x.dtype(), x, where);
  return mul(Operand(x, where), Operand(drop(whole, p, where), where));
}

Tensor rand_like(const Operand& x) {
  const Tensor y = draw("rand_like", "random_uniform", x);
  const DType dtype = x.tensor().dtype();
  if (dtype == y.dtype()) return y;
  // Rounding to a half type must not carry a number to 1.
  return clamp(Operand(y, x.where()), 0, dtype == DType::f16 ? 1 - 0x1p-11 : 1 - 0x1p-8).to(dtype, x.where());
}
Tensor randn_like(const Operand& x) { return draw("randn_like", "random_normal", x).to(x.tensor().dtype(), x.where()); }
Tensor bernoulli(const Operand& p) {
  // Where the numbers are at hand: within a graph, and on a device, which would be waited for, they are not looked for.
  if (const Tensor& given = p.tensor(); !given.is_traced() && given.device().is_cpu() && ir::is_floating(given.dtype()))
    for (const double value : given.to_vector<double>())
      if (!(value >= 0 && value <= 1))
        fail("bernoulli", "the probabilities must lie in [0, 1], got " + fmt::format("{}", value), p.where());
  const Tensor u = draw("bernoulli", "random_uniform", p);
  return lt(Operand(u, p.where()), Operand(p.tensor().detach(p.where()).to(u.dtype(), p.where()), p.where()))
      .to(p.tensor().dtype(), p.where());
}

namespace {

/// What an eager call can know of the numbers in the rows of p[..., n].
void check_weights(const Tensor& p, std::int64_t num_samples, bool replacement, Location where) {
  const std::vector<double> numbers = p.to_vector<double>();
  const auto n = static_cast<std::size_t>(p.size(-1));
  for (std::size_t row = 0; row < numbers.size(); row += n) {
    std::int64_t positive = 0;
    double whole = 0;
    for (std::size_t i = row; i < row + n; ++i) {
      whole += numbers[i];
      if (!(numbers[i] >= 0) || std::isinf(numbers[i]))
        fail("multinomial", "the probabilities must be finite and not negative, got " + fmt::format("{}", numbers[i]),
             where);
      if (numbers[i] > 0) ++positive;
    }
    if (std::isinf(whole)) fail("multinomial", "the sum of the probabilities is not finite", where);
    if (positive == 0) fail("multinomial", "a row of zeros has nothing to draw", where);
    if (!replacement && positive < num_samples)
      fail("multinomial",
           "without replacement there must be as many positive probabilities as samples, got " +
               std::to_string(positive) + " and " + std::to_string(num_samples),
           where);
  }
}

}  // namespace

Tensor multinomial(const Operand& operand, std::int64_t num_samples, bool replacement) {
  const Location where = operand.where().in("multinomial");
  const detail::At at(where);
  Tensor p = operand.tensor().detach(where);
  if (!ir::is_floating(p.dtype())) fail("multinomial", "needs a floating-point tensor, got " + p.describe(), where);
  if (p.dim() != 1 && p.dim() != 2) fail("multinomial", "expects [n] or [rows, n], got " + p.describe(), where);
  if (p.dtype() != DType::f64) p = p.to(DType::f32, where);
  const std::int64_t n = detail::fixed_size(p, p.dim() - 1, "multinomial", where);
  if (num_samples < 1 || (!replacement && num_samples > n))
    fail("multinomial",
         "the number of samples must be positive" +
             (replacement ? std::string() : ", and without replacement at most " + std::to_string(n)) + ", got " +
             std::to_string(num_samples),
         where);
  if (n == 0) fail("multinomial", "there is nothing to draw from in " + p.describe(), where);
  if (!p.is_traced()) check_weights(p, num_samples, replacement, where);
  if (!replacement) {
    // The largest of log p with Gumbel noise (Efraimidis and Spirakis 2006). Noise that is minus infinity would make
    // all as unlikely as 0.
    const Tensor u = maximum(at(draw("multinomial", "random_uniform", at(p))), at(1e-30));
    const Tensor noise = log(at(neg(at(log(at(u))))));
    return std::get<1>(topk(at(at.sub(log(at(p)), noise)), num_samples));
  }
  // The first position up to which the sum exceeds a part of the whole, and which has a part in it.
  // In double: the sum of large numbers of f32 is one, too.
  const Tensor upto = cumsum(at(p.to(DType::f64, where)), -1), whole = upto.slice(-1, n - 1, n, 1, where);
  Shape shape(std::vector<Dim>(p.shape().begin(), p.shape().end() - 1));
  shape.push_back(num_samples);
  const Tensor part = at.mul(
      draw("multinomial", "random_uniform", at(detail::filled(shape, 0, p.dtype(), p, where))).to(DType::f64, where),
      whole);
  const Tensor passed = le(at(upto.unsqueeze(-2, where)), at(part.unsqueeze(-1, where)));
  const Tensor inner = lt(at(upto), at(whole)).unsqueeze(-2, where);
  return sum(at(logical_and(at(passed), at(inner))), -1);
}

Tensor gumbel_softmax(const Operand& logits, double tau, bool hard, std::int64_t dim) {
  const Location where = logits.where().in("gumbel_softmax");
  const detail::At at(where);
  const Tensor& x = logits.tensor();
  if (!(tau > 0)) fail("gumbel_softmax", "tau must be positive, got " + fmt::format("{}", tau), where);
  if (!ir::is_floating(x.dtype())) fail("gumbel_softmax", "needs a floating-point tensor, got " + x.describe(), where);
  const Tensor u = draw("gumbel_softmax", "random_uniform", logits);
  const Tensor noise = neg(at(log(at(neg(at(log(at(u)))))))).to(x.dtype(), where);
  const Tensor soft = softmax(at(at.div(at.add(x, noise), tau)), dim);
  if (!hard) return soft;
  const Tensor chosen = argmax(at(soft.detach(where)), dim, true);
  const Tensor one_hot = scatter(at(detail::filled(x.shape(), 0, x.dtype(), x, where)), dim, chosen, Operand(1, where));
  return at.add(at.sub(one_hot, soft.detach(where)), soft);
}

Tensor alpha_dropout(const Operand& operand, double p, bool training) {
  const Location where = operand.where();
  const Tensor& x = operand.tensor();
  check_probability("alpha_dropout", p, where);
  if (!ir::is_floating(x.dtype())) fail("alpha_dropout", "needs a floating-point tensor, got " + x.describe(), where);
  if (!training || p == 0) return x;
  if (p == 1) return mul(operand, Operand(drop(detail::filled(x.shape(), 1, x.dtype(), x, where), p, where), where));
  constexpr double kSaturation = -1.7580993408473766;  // of selu: -scale * alpha
  const double scale = 1 / std::sqrt((1 - p) * (1 + p * kSaturation * kSaturation)), shift = -scale * p * kSaturation;
  // The mask is 0 or 1 / (1 - p); where an evaluation is derived from what was recorded, which leaves out dropout, it
  // is 1: all stays as it is.
  const Operand mask(drop(detail::filled(x.shape(), 1, x.dtype(), x, where), p, where), where);
  const Tensor kept = gt(mask, Operand(0.0, where));
  const Tensor held = graven::where(Operand(kept, where), operand, Operand(kSaturation, where));
  const Tensor drawn = add(Operand(mul(Operand(held, where), Operand(scale, where)), where), Operand(shift, where));
  return graven::where(Operand(eq(mask, Operand(1.0, where)), where), operand, Operand(drawn, where));
}

}  // namespace graven
