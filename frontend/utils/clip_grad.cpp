#include "graven/utils/clip_grad.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "frontend/dispatch.h"
#include "frontend/trace.h"

namespace graven::detail {

namespace {
/// The largest magnitude, or the sum of the magnitudes to the power of norm_type.
Tensor part_of_norm(const Tensor& t, double norm_type) {
  const Tensor sizes = abs(t.detach().to(DType::f64));
  if (std::isinf(norm_type)) return t.numel() == 0 ? zeros({}, {DType::f64, t.device()}) : sizes.amax();
  return (norm_type == 2 ? sizes * sizes : sizes.pow(norm_type)).sum();
}
}  // namespace

double norm_of(const std::vector<Tensor>& tensors, double norm_type) {
  const bool largest = std::isinf(norm_type);
  double total = 0;
  std::vector<Tensor> on_devices;  // found there, all before one is waited for
  for (const Tensor& t : tensors) {
    if (!t.device().is_cpu()) {
      on_devices.push_back(part_of_norm(t, norm_type));
      continue;
    }
    for (const double g : t.to_vector<double>()) {
      const double size = std::fabs(g);
      if (largest)
        total = std::isnan(size) || size > total ? size : total;
      else
        total += norm_type == 2 ? size * size : std::pow(size, norm_type);
    }
  }
  for (const Tensor& t : on_devices) {
    const auto part = t.item<double>();
    total = !largest ? total + part : std::isnan(part) || part > total ? part : total;
  }
  if (!largest) total = norm_type == 2 ? std::sqrt(total) : std::pow(total, 1 / norm_type);
  return total;
}

}  // namespace graven::detail

namespace graven::nn::utils {

using graven::detail::active_trace;
using graven::detail::fail_at;
using graven::detail::require_defined;

GradientNorm::operator double() const {
  if (is_recorded_)
    fail_at("clip_grad_norm_: the norm is a number that the graph finds when it runs; its build() cannot look at it",
            where_);
  return norm_;
}

GradientNorm clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                             bool error_if_nonfinite, Location where) {
  if (!(max_norm >= 0))
    fail_at("clip_grad_norm_: max_norm must not be negative, got " + fmt::format("{}", max_norm), where);
  if (!(norm_type > 0))
    fail_at("clip_grad_norm_: norm_type must be positive, got " + fmt::format("{}", norm_type), where);
  require_defined(parameters, "clip_grad_norm_", where);
  if (graven::detail::Trace* trace = active_trace()) {
    if (error_if_nonfinite) fail_at("clip_grad_norm_: a graph's program has no errors for error_if_nonfinite", where);
    trace->clip({ir::Clip::Kind::norm, {}, max_norm, norm_type}, parameters, "clip_grad_norm_", where);
    return GradientNorm(where);
  }
  NoGradGuard no_grad;
  std::vector<Tensor> gradients;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) gradients.push_back(p.grad());
  const double total = graven::detail::norm_of(gradients, norm_type);
  if (error_if_nonfinite && !std::isfinite(total))
    fail_at(
        "clip_grad_norm_: the norm of the gradients is " + fmt::format("{}", total) + ", and error_if_nonfinite is set",
        where);
  const double factor = std::isnan(total) ? total : std::min(1.0, max_norm / (total + 1e-6));
  if (factor == 1) return GradientNorm(total);
  for (const Tensor& p : parameters)
    if (Tensor g = p.grad(); g.defined()) g.mul_(factor);
  return GradientNorm(total);
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value, Location where) {
  if (!(clip_value >= 0))
    fail_at("clip_grad_value_: clip_value must not be negative, got " + fmt::format("{}", clip_value), where);
  require_defined(parameters, "clip_grad_value_", where);
  if (graven::detail::Trace* trace = active_trace())
    return trace->clip({ir::Clip::Kind::value, {}, clip_value, 2}, parameters, "clip_grad_value_", where);
  NoGradGuard no_grad;
  for (const Tensor& p : parameters)
    if (Tensor g = p.grad(); g.defined()) g.clamp_(-clip_value, clip_value);
}

}  // namespace graven::nn::utils
