#include "graven/init.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "frontend/dispatch.h"
#include "frontend/random.h"
#include "graven/tensor.h"

namespace graven::nn::init {

using graven::detail::fail;
using graven::detail::require_defined;

Tensor uniform_(Tensor t, double low, double high, Location where) {
  NoGradGuard no_grad;
  return t.uniform_(low, high, where.in("init::uniform_"));
}
Tensor normal_(Tensor t, double mean, double std, Location where) {
  NoGradGuard no_grad;
  return t.normal_(mean, std, where.in("init::normal_"));
}
Tensor constant_(Tensor t, double value, Location where) {
  NoGradGuard no_grad;
  return t.fill_(value, where.in("init::constant_"));
}
Tensor zeros_(Tensor t, Location where) { return constant_(std::move(t), 0, where.in("init::zeros_")); }
Tensor ones_(Tensor t, Location where) { return constant_(std::move(t), 1, where.in("init::ones_")); }

namespace {

/// Winitzki's approximation (2008), then Newton's method on erf, which doubles its three digits each time.
double inverse_erf(double y) {
  if (y <= -1) return -std::numeric_limits<double>::infinity();
  if (y >= 1) return std::numeric_limits<double>::infinity();
  constexpr double kA = 0.147;
  const double log_rest = std::log1p(-y * y), half = 2 / (std::numbers::pi * kA) + log_rest / 2;
  double x = std::copysign(std::sqrt(std::sqrt(half * half - log_rest / kA) - half), y);
  for (int step = 0; step < 3; ++step) {
    const double slope = 2 * std::numbers::inv_sqrtpi * std::exp(-x * x);
    if (slope > 0) x -= (std::erf(x) - y) / slope;
  }
  return x;
}

/// Fills `t` with numbers that were computed in double.
Tensor filled_with(Tensor t, const std::vector<double>& values) {
  NoGradGuard no_grad;
  return t.copy_(graven::detail::from_numbers(t.shape(), values, {t.dtype()}));
}

}  // namespace

Tensor trunc_normal_(Tensor t, double mean, double std, double low, double high, Location where) {
  constexpr const char* kName = "init::trunc_normal_";
  require_defined(t, kName, where);
  graven::detail::require_floating(kName, t.dtype(), where);
  if (!(std > 0) || !(low < high) || !std::isfinite(mean))
    fail(kName,
         "expected std > 0 and low < high, got mean " + std::to_string(mean) + ", std " + std::to_string(std) +
             ", low " + std::to_string(low) + ", high " + std::to_string(high),
         where);
  const double scale = std * std::numbers::sqrt2, from = std::erf((low - mean) / scale),
               to = std::erf((high - mean) / scale);
  std::vector<double> values = graven::detail::draw_uniform(t.numel());
  for (double& v : values) v = std::clamp(mean + scale * inverse_erf(from + (to - from) * v), low, high);
  return filled_with(std::move(t), values);
}

Tensor eye_(Tensor t, Location where) {
  require_defined(t, "init::eye_", where);
  if (t.dim() != 2) fail("init::eye_", "expected a matrix, got " + t.describe(), where);
  std::vector<double> values(static_cast<std::size_t>(t.numel()), 0.0);
  for (std::int64_t i = 0; i < std::min(t.size(0), t.size(1)); ++i)
    values[static_cast<std::size_t>(i * t.size(1) + i)] = 1;
  return filled_with(std::move(t), values);
}

Tensor dirac_(Tensor t, std::int64_t groups, Location where) {
  require_defined(t, "init::dirac_", where);
  if (t.dim() < 3 || t.dim() > 5)
    fail("init::dirac_", "expected the weight of a convolution, of 3 to 5 dimensions, got " + t.describe(), where);
  if (groups < 1 || t.size(0) % groups != 0)
    fail("init::dirac_",
         "groups must divide the " + std::to_string(t.size(0)) + " output channels, got " + std::to_string(groups),
         where);
  std::int64_t kernel = 1, centre = 0;
  for (std::int64_t d = 2; d < t.dim(); ++d) {
    kernel *= t.size(d);
    centre = centre * t.size(d) + t.size(d) / 2;
  }
  std::vector<double> values(static_cast<std::size_t>(t.numel()), 0.0);
  const std::int64_t out = t.size(0) / groups, in = t.size(1);
  for (std::int64_t g = 0; g < groups && kernel > 0; ++g)
    for (std::int64_t c = 0; c < std::min(out, in); ++c)
      values[static_cast<std::size_t>(((g * out + c) * in + c) * kernel + centre)] = 1;
  return filled_with(std::move(t), values);
}

Tensor orthogonal_(Tensor t, double gain, Location where) {
  require_defined(t, "init::orthogonal_", where);
  graven::detail::require_floating("init::orthogonal_", t.dtype(), where);
  if (t.dim() < 2) fail("init::orthogonal_", "expected two dimensions or more, got " + t.describe(), where);
  if (t.numel() == 0) return t;
  const std::int64_t rows = t.size(0), columns = t.numel() / rows, vectors = std::min(rows, columns),
                     length = std::max(rows, columns);
  // Vectors one after the other: Gram and Schmidt's method, twice, without which rounding would leave them less than
  // orthogonal.
  std::vector<double> q = graven::detail::draw_normal(vectors * length);
  const auto vector = [&](std::int64_t v) { return q.data() + v * length; };
  const auto dot = [&](const double* a, const double* b) {
    double s = 0;
    for (std::int64_t i = 0; i < length; ++i) s += a[i] * b[i];
    return s;
  };
  for (std::int64_t v = 0; v < vectors; ++v) {
    double* const own = vector(v);
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t before = 0; before < v; ++before) {
        const double* const other = vector(before);
        const double share = dot(own, other);
        for (std::int64_t i = 0; i < length; ++i) own[i] -= share * other[i];
      }
    const double norm = std::sqrt(dot(own, own));
    for (std::int64_t i = 0; i < length; ++i) own[i] /= norm;
  }
  std::vector<double> values(q.size());
  for (std::int64_t v = 0; v < vectors; ++v)
    for (std::int64_t i = 0; i < length; ++i)
      values[static_cast<std::size_t>(rows <= columns ? v * columns + i : i * columns + v)] = gain * vector(v)[i];
  return filled_with(std::move(t), values);
}

std::pair<std::int64_t, std::int64_t> fans(const Tensor& t, Location where) {
  require_defined(t, "init::fans", where);
  if (t.dim() < 2) fail("init::fans", "fan in and fan out need two dimensions or more, got " + t.describe(), where);
  std::int64_t field = 1;
  for (std::int64_t d = 2; d < t.dim(); ++d) field *= t.size(d);
  return {t.size(1) * field, t.size(0) * field};
}

double calculate_gain(const std::string& nonlinearity, double a, Location where) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid" || nonlinearity == "conv2d") return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + a * a));
  if (nonlinearity == "selu") return 0.75;
  fail("init::calculate_gain",
       "unknown nonlinearity '" + nonlinearity + "'; known are linear, sigmoid, conv2d, tanh, relu, leaky_relu, selu",
       where);
}

Tensor xavier_uniform_(Tensor t, double gain, Location given) {
  const Location where = given.in("init::xavier_uniform_");
  const auto [in, out] = fans(t, where);
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(in + out));
  return uniform_(std::move(t), -bound, bound, where);
}
Tensor xavier_normal_(Tensor t, double gain, Location given) {
  const Location where = given.in("init::xavier_normal_");
  const auto [in, out] = fans(t, where);
  return normal_(std::move(t), 0, gain * std::sqrt(2.0 / static_cast<double>(in + out)), where);
}

namespace {
double kaiming_std(const Tensor& t, const KaimingOptions& options, Location where) {
  const auto [in, out] = fans(t, where);
  return calculate_gain(options.nonlinearity, options.a, where) /
         std::sqrt(static_cast<double>(options.mode == FanMode::fan_in ? in : out));
}
}  // namespace

Tensor kaiming_uniform_(Tensor t, const KaimingOptions& options, Location given) {
  const Location where = given.in("init::kaiming_uniform_");
  const double bound = std::sqrt(3.0) * kaiming_std(t, options, where);
  return uniform_(std::move(t), -bound, bound, where);
}
Tensor kaiming_normal_(Tensor t, const KaimingOptions& options, Location given) {
  const Location where = given.in("init::kaiming_normal_");
  const double std = kaiming_std(t, options, where);
  return normal_(std::move(t), 0, std, where);
}

}  // namespace graven::nn::init
