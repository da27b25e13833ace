#include "graven/utils/clip_grad.h"

#include <algorithm>
#include <cmath>

namespace graven::nn::utils {

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  if (!(max_norm >= 0)) throw UserError("clip_grad_norm_: max_norm must not be negative, got " + std::to_string(max_norm));
  if (!(norm_type > 0)) throw UserError("clip_grad_norm_: norm_type must be positive, got " + std::to_string(norm_type));
  NoGradGuard no_grad;
  const bool largest = std::isinf(norm_type);
  double total = 0;
  for (const Tensor& p : parameters) {
    if (!p.grad().defined()) continue;
    for (const double g : p.grad().to_vector<double>()) {
      const double size = std::fabs(g);
      if (largest)
        total = std::isnan(size) || size > total ? size : total;
      else
        total += norm_type == 2 ? size * size : std::pow(size, norm_type);
    }
  }
  if (!largest) total = norm_type == 2 ? std::sqrt(total) : std::pow(total, 1 / norm_type);
  if (error_if_nonfinite && !std::isfinite(total))
    throw UserError("clip_grad_norm_: the norm of the gradients is " + std::to_string(total) + ", and error_if_nonfinite is set");
  const double factor = std::isnan(total) ? total : std::min(1.0, max_norm / (total + 1e-6));
  if (factor == 1) return total;
  for (const Tensor& p : parameters)
    if (Tensor g = p.grad(); g.defined()) g.mul_(factor);
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  if (!(clip_value >= 0)) throw UserError("clip_grad_value_: clip_value must not be negative, got " + std::to_string(clip_value));
  NoGradGuard no_grad;
  for (const Tensor& p : parameters)
    if (Tensor g = p.grad(); g.defined()) g.clamp_(-clip_value, clip_value);
}

}  // namespace graven::nn::utils
