#include "graven/functional/normalization.h"

#include <algorithm>
#include <limits>

#include "frontend/dispatch.h"
#include "frontend/functional/batch_norm.h"
#include "graven/functional.h"
#include "ir/ops.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

/// Checks that x ends in this shape; the number of its dimensions.
std::int64_t check_normalized(const char* function, const Operand& operand, const Sizes& normalized_shape) {
  const Tensor& x = operand.tensor(function);
  const auto rank = static_cast<std::int64_t>(normalized_shape.size());
  bool fits = rank >= 1 && rank <= x.dim();
  for (std::size_t d = 0; fits && d < normalized_shape.size(); ++d)
    fits = x.shape()[x.shape().rank() - normalized_shape.size() + d] == Dim(normalized_shape[d]);
  if (!fits)
    fail(function,
         "expects an input whose last dimensions are " + Shape::of(normalized_shape).to_string() + ", got " +
             x.describe(),
         operand.where());
  return rank;
}

void update_running(const Tensor& running, const Tensor& statistic, double momentum, Location where) {
  NoGradGuard no_grad;
  Tensor target = running;
  const Tensor kept = mul(Operand(running, where), Operand(1 - momentum, where)),
               added = mul(Operand(statistic.detach(where), where), Operand(momentum, where));
  target.copy_(add(Operand(kept, where), Operand(added, where)), where);
}

}  // namespace

Tensor batch_norm(const Operand& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
  return detail::batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, false);
}

Tensor detail::batch_norm(const Operand& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                          const Tensor& bias, bool training, double momentum, double eps, bool sync) {
  const Location where = x.where().in("batch_norm");
  if (!training) {
    if (!running_mean.defined() || !running_var.defined())
      fail("batch_norm", "needs running statistics when not training", where);
    return apply("batch_norm", {x.tensor(), weight, bias, running_mean, running_var}, {{"eps", eps}}, where);
  }
  std::vector<Tensor> results =
      detail::apply(ir::kBatchNormTraining, {x.tensor(), weight, bias, running_mean, running_var},
                    {{"eps", eps}, {"momentum", momentum}, {"sync", sync}}, where);
  if (running_mean.defined() && running_var.defined()) {
    NoGradGuard no_grad;
    Tensor mean = running_mean, variance = running_var;
    mean.copy_(results.at(3), where);
    variance.copy_(results.at(4), where);
  }
  return results.at(0);
}

Tensor layer_norm(const Operand& x, const Sizes& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const std::int64_t dims = check_normalized("layer_norm", x, normalized_shape);
  return apply("layer_norm", {x.tensor(), weight, bias}, {{"dims", dims}, {"eps", eps}}, x.where());
}

Tensor rms_norm(const Operand& x, const Sizes& normalized_shape, const Tensor& weight, std::optional<double> eps) {
  const std::int64_t dims = check_normalized("rms_norm", x, normalized_shape);
  return apply("rms_norm", {x.tensor(), weight},
               {{"dims", dims}, {"eps", eps.value_or(ir::epsilon_of(x.tensor().dtype()))}}, x.where());
}

Tensor group_norm(const Operand& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  return apply("group_norm", {x.tensor(), weight, bias}, {{"groups", num_groups}, {"eps", eps}}, x.where());
}

Tensor instance_norm(const Operand& operand, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, bool use_input_stats, double momentum, double eps) {
  const Location where = operand.where().in("instance_norm");
  const Tensor& x = operand.tensor();
  if (x.dim() < 3)
    fail("instance_norm", "expects [batch, channels, ...] with at least one more dimension, got " + x.describe(),
         where);
  if (!use_input_stats) {
    if (!running_mean.defined() || !running_var.defined())
      fail("instance_norm", "needs running statistics without use_input_stats", where);
    return batch_norm(Operand(x, where), running_mean, running_var, weight, bias, false, momentum, eps);
  }
  Dim positions = 1;
  for (std::size_t d = 2; d < x.shape().rank(); ++d) positions = positions * x.shape()[d];
  detail::require_two(positions);
  if (positions == Dim(1)) fail("instance_norm", "expects more than 1 value per channel, got " + x.describe(), where);
  if (running_mean.defined() && running_var.defined()) {
    NoGradGuard no_grad;
    Sizes inner;
    for (std::int64_t d = 2; d < x.dim(); ++d) inner.push_back(d);
    const Tensor constant = x.detach(where), center = mean(Operand(constant, where), inner, true);
    const Tensor squares =
        mean(Operand(square(Operand(sub(Operand(constant, where), Operand(center, where)), where)), where), inner);
    update_running(running_mean, mean(Operand(center.reshape({x.shape()[0], x.shape()[1]}, where), where), {0}),
                   momentum, where);
    const Operand biased(mean(Operand(squares, where), {0}), where);
    if (positions.is_static()) {
      const auto n = static_cast<double>(positions.value());
      update_running(running_var, mul(biased, Operand(n / (n - 1), where)), momentum, where);
    } else {
      const Operand n(detail::size_value(positions, x.dtype(), "instance_norm", where), where);
      const Operand factor(div(n, Operand(sub(n, Operand(1, where)), where)), where);
      update_running(running_var, mul(biased, factor), momentum, where);
    }
  }
  return group_norm(Operand(x, where), detail::fixed_size(x, 1, "instance_norm", where), weight, bias, eps);
}

Tensor local_response_norm(const Operand& x, std::int64_t size, double alpha, double beta, double k) {
  const Location where = x.where().in("local_response_norm");
  const Tensor& t = x.tensor();
  if (size < 1) fail("local_response_norm", "size must be positive, got " + std::to_string(size), where);
  if (t.dim() < 3)
    fail("local_response_norm", "expects [batch, channels, ...] with at least one more dimension, got " + t.describe(),
         where);
  // Channels that are not there are 0, however far a window goes beyond them.
  const std::int64_t channels = detail::fixed_size(t, 1, "local_response_norm", where);
  const std::int64_t beside = std::max<std::int64_t>(channels - 1, 0);
  const std::int64_t before = std::min(size / 2, beside), after = std::min((size - 1) / 2, beside);
  Sizes pads(static_cast<std::size_t>(2 * (t.dim() - 1)), 0);
  pads[pads.size() - 2] = before;
  pads[pads.size() - 1] = after;
  const Tensor squares = pad(Operand(square(Operand(t, where)), where), pads);
  Tensor sum;
  for (std::int64_t i = 0; i <= before + after; ++i) {
    const Tensor part = squares.slice(1, i, i + channels, 1, where);
    sum = sum.defined() ? add(Operand(sum, where), Operand(part, where)) : part;
  }
  const Tensor scale = add(Operand(mul(Operand(sum, where), Operand(alpha / static_cast<double>(size), where)), where),
                           Operand(k, where));
  return div(Operand(t, where), Operand(pow(Operand(scale, where), Operand(beta, where)), where));
}

}  // namespace graven
