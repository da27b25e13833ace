#include "graven/init.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "frontend/random.h"
#include "graven/tensor.h"

namespace graven::nn::init {

Tensor uniform_(Tensor t, double low, double high) {
  NoGradGuard no_grad;
  return t.uniform_(low, high);
}
Tensor normal_(Tensor t, double mean, double std) {
  NoGradGuard no_grad;
  return t.normal_(mean, std);
}
Tensor constant_(Tensor t, double value) {
  NoGradGuard no_grad;
  return t.fill_(value);
}
Tensor zeros_(Tensor t) { return constant_(std::move(t), 0); }
Tensor ones_(Tensor t) { return constant_(std::move(t), 1); }

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

Tensor trunc_normal_(Tensor t, double mean, double std, double low, double high) {
  graven::detail::require_floating("init::trunc_normal_", t.dtype());
  if (!(std > 0) || !(low < high) || !std::isfinite(mean)) {
    throw UserError("init::trunc_normal_: expected std > 0 and low < high, got mean " + std::to_string(mean) +
                    ", std " + std::to_string(std) + ", low " + std::to_string(low) + ", high " + std::to_string(high));
  }
  const double scale = std * std::numbers::sqrt2, from = std::erf((low - mean) / scale),
               to = std::erf((high - mean) / scale);
  std::vector<double> values = graven::detail::draw_uniform(t.numel());
  for (double& v : values) v = std::clamp(mean + scale * inverse_erf(from + (to - from) * v), low, high);
  return filled_with(std::move(t), values);
}

Tensor eye_(Tensor t) {
  if (t.dim() != 2) throw UserError("init::eye_: expected a matrix, got " + t.describe());
  std::vector<double> values(static_cast<std::size_t>(t.numel()), 0.0);
  for (std::int64_t i = 0; i < std::min(t.size(0), t.size(1)); ++i)
    values[static_cast<std::size_t>(i * t.size(1) + i)] = 1;
  return filled_with(std::move(t), values);
}

Tensor dirac_(Tensor t, std::int64_t groups) {
  if (t.dim() < 3 || t.dim() > 5)
    throw UserError("init::dirac_: expected the weight of a convolution, of 3 to 5 dimensions, got " + t.describe());
  if (groups < 1 || t.size(0) % groups != 0)
    throw UserError("init::dirac_: groups must divide the " + std::to_string(t.size(0)) + " output channels, got " +
                    std::to_string(groups));
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

Tensor orthogonal_(Tensor t, double gain) {
  graven::detail::require_floating("init::orthogonal_", t.dtype());
  if (t.dim() < 2) throw UserError("init::orthogonal_: expected two dimensions or more, got " + t.describe());
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

std::pair<std::int64_t, std::int64_t> fans(const Tensor& t) {
  if (t.dim() < 2) throw UserError("init: fan in and fan out need two dimensions or more, got " + t.describe());
  std::int64_t field = 1;
  for (std::int64_t d = 2; d < t.dim(); ++d) field *= t.size(d);
  return {t.size(1) * field, t.size(0) * field};
}

double calculate_gain(const std::string& nonlinearity, double a) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid" || nonlinearity == "conv2d") return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + a * a));
  if (nonlinearity == "selu") return 0.75;
  throw UserError("init: unknown nonlinearity '" + nonlinearity +
                  "'; known are linear, sigmoid, conv2d, tanh, relu, leaky_relu, selu");
}

Tensor xavier_uniform_(Tensor t, double gain) {
  const auto [in, out] = fans(t);
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(in + out));
  return uniform_(std::move(t), -bound, bound);
}
Tensor xavier_normal_(Tensor t, double gain) {
  const auto [in, out] = fans(t);
  return normal_(std::move(t), 0, gain * std::sqrt(2.0 / static_cast<double>(in + out)));
}

namespace {
double kaiming_std(const Tensor& t, const KaimingOptions& options) {
  const auto [in, out] = fans(t);
  return calculate_gain(options.nonlinearity, options.a) /
         std::sqrt(static_cast<double>(options.mode == FanMode::fan_in ? in : out));
}
}  // namespace

Tensor kaiming_uniform_(Tensor t, const KaimingOptions& options) {
  const double bound = std::sqrt(3.0) * kaiming_std(t, options);
  return uniform_(std::move(t), -bound, bound);
}
Tensor kaiming_normal_(Tensor t, const KaimingOptions& options) {
  const double std = kaiming_std(t, options);
  return normal_(std::move(t), 0, std);
}

}  // namespace graven::nn::init
