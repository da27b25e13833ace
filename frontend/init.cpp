#include "graven/init.h"

#include <cmath>

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
  throw UserError("init: unknown nonlinearity '" + nonlinearity + "'; known are linear, sigmoid, conv2d, tanh, relu, leaky_relu, selu");
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
  return calculate_gain(options.nonlinearity, options.a) / std::sqrt(static_cast<double>(options.mode == FanMode::fan_in ? in : out));
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
