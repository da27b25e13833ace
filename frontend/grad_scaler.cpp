#include "graven/grad_scaler.h"

#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/eager/program.h"
#include "frontend/grad_scaler_state.h"
#include "frontend/module_state.h"
#include "frontend/trace.h"
#include "ir/ops.h"

namespace graven::amp {

using graven::detail::fail_at;
using graven::detail::refuse_within_build;

namespace {

void check_growth(double factor, Location where) {
  if (!(factor > 1) || !std::isfinite(factor))
    fail_at(fmt::format("GradScaler: growth_factor must be more than 1, got {}", factor), where);
}
void check_backoff(double factor, Location where) {
  if (!(factor > 0 && factor < 1))
    fail_at(fmt::format("GradScaler: backoff_factor must lie in (0, 1), got {}", factor), where);
}
void check_interval(std::int64_t interval, Location where) {
  if (interval < 1) fail_at(fmt::format("GradScaler: growth_interval must be at least 1, got {}", interval), where);
}
/// As f32 has it.
void check_scale(double scale, const char* what, Location where) {
  const float narrow = static_cast<float>(scale);
  if (!(narrow > 0) || !std::isfinite(narrow))
    fail_at(fmt::format("GradScaler: {} must be a positive number of f32, got {}", what, scale), where);
}

/// A step of which all gradients are finite is called 1, another 0.
bool all_finite(const std::vector<Tensor>& gradients) {
  std::map<DType, std::vector<Tensor>> by_dtype;
  Tensor on_device;  // 0, or NaN where one of a device's gradients is not finite: looked at once
  for (const Tensor& g : gradients) {
    if (g.device().is_cpu()) {
      by_dtype[g.dtype()].push_back(g);
      continue;
    }
    const Tensor nothing = (g.detach() * 0).sum().to(DType::f64);
    on_device = on_device.defined() ? on_device + nothing.to(on_device.device()) : nothing;
  }
  bool finite = !on_device.defined() || on_device.item<double>() == 0;
  for (auto& [dtype, inputs] : by_dtype) {
    inputs.push_back(tensor(std::int64_t{1}, DType::i64));
    inputs.push_back(tensor(std::int64_t{0}, DType::i64));  // skipped
    finite = eager::run(ir::kFiniteStep, inputs, {}).at(0).item<std::int64_t>() != 0 && finite;
  }
  return finite;
}

std::vector<Tensor> gradients_of(const optim::Optimizer& optimizer) {
  std::vector<Tensor> gradients;
  for (const Tensor& p : optimizer.parameters())
    if (Tensor g = p.grad(); g.defined()) gradients.push_back(g);
  return gradients;
}

void unscale(GradScaler::State& state, const optim::Optimizer& optimizer, GradScaler::State::Seen& seen) {
  const NoGradGuard no_grad;
  const std::vector<Tensor> gradients = gradients_of(optimizer);
  seen.gradients = static_cast<std::int64_t>(gradients.size());
  seen.finite = all_finite(gradients);
  // In double, rounded to f32, as PyTorch has it.
  const double inverse = static_cast<float>(1 / static_cast<double>(state.scale.item<float>()));
  for (Tensor g : gradients) g.mul_(inverse);
  seen.unscaled = true;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options, Location where) : state_(std::make_shared<State>()) {
  check_scale(options.init_scale, "init_scale", where);
  check_growth(options.growth_factor, where);
  check_backoff(options.backoff_factor, where);
  check_interval(options.growth_interval, where);
  state_->options = options;
  state_->scale = tensor(options.init_scale, DType::f32);
  state_->tracker = tensor(std::int64_t{0}, DType::i64);
}

StaticGradScaler::StaticGradScaler(double scale, Location where) : GradScaler({.init_scale = scale}, where) {
  state_->is_static = true;
}

Tensor GradScaler::scale(const Tensor& outputs, Location where) {
  graven::detail::require_defined(outputs, "GradScaler::scale", where);
  if (outputs.is_traced())
    fail_at(
        "GradScaler::scale within build(): the graph itself scales what its losses' gradients begin with; leave it "
        "out, and set_grad_scaler()",
        where);
  if (!ir::is_floating(outputs.dtype()))
    fail_at("GradScaler::scale: expected a tensor of floating-point numbers, got " + outputs.describe(), where);
  if (!state_->options.enabled) return outputs;
  return outputs * static_cast<double>(state_->scale.item<float>());
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& outputs, Location where) {
  std::vector<Tensor> scaled;
  for (const Tensor& t : outputs) scaled.push_back(scale(t, where));
  return scaled;
}

void GradScaler::unscale_(const optim::Optimizer& optimizer, Location where) {
  refuse_within_build("unscale_() of a GradScaler", where);
  if (!state_->options.enabled) return;
  State::Seen& seen = state_->seen[optimizer.state().get()];
  if (seen.unscaled)
    fail_at("unscale_() has already been called on this " + optimizer.kind() + " since the last update()", where);
  if (seen.stepped) fail_at("unscale_() is called behind step() of this " + optimizer.kind(), where);
  unscale(*state_, optimizer, seen);
}

bool GradScaler::step(optim::Optimizer& optimizer, Location where) {
  refuse_within_build("step() of a GradScaler", where);
  if (!state_->options.enabled) {
    optimizer.step(where);
    return true;
  }
  State::Seen& seen = state_->seen[optimizer.state().get()];
  if (seen.stepped)
    fail_at("step() has already been called on this " + optimizer.kind() + " since the last update()", where);
  if (!seen.unscaled) unscale(*state_, optimizer, seen);
  if (seen.gradients == 0) {
    state_->seen.erase(optimizer.state().get());
    fail_at("step() of a GradScaler: no parameter of this " + optimizer.kind() +
                " has a gradient; call scale(loss).backward() before",
            where);
  }
  seen.stepped = true;
  if (seen.finite) optimizer.step(where);
  return seen.finite;
}

void GradScaler::update(Location where) {
  refuse_within_build("update() of a GradScaler", where);
  State& state = *state_;
  if (!state.options.enabled) return;
  if (state.seen.empty())
    fail_at("update() of a GradScaler: no gradients were looked at since the last one; call step(optimizer) before",
            where);
  std::vector<Tensor> inputs;
  for (const auto& [optimizer, seen] : state.seen)
    inputs.push_back(tensor(std::int64_t{seen.finite ? 1 : 0}, DType::i64));
  state.seen.clear();
  if (state.is_static) return;
  inputs.insert(inputs.end(), {state.scale, state.tracker});
  const NoGradGuard no_grad;
  (void)eager::run(ir::kUpdateLossScale, inputs,
                   {{"growth_factor", state.options.growth_factor},
                    {"backoff_factor", state.options.backoff_factor},
                    {"growth_interval", state.options.growth_interval}});
}

void GradScaler::update(double new_scale, Location where) {
  refuse_within_build("update() of a GradScaler", where);
  if (!state_->options.enabled) return;
  check_scale(new_scale, "the new scale", where);
  state_->seen.clear();
  const NoGradGuard no_grad;
  state_->scale.fill_(new_scale);
}

double GradScaler::get_scale() const { return state_->options.enabled ? state_->scale.item<float>() : 1; }
double GradScaler::growth_factor() const { return state_->options.growth_factor; }
double GradScaler::backoff_factor() const { return state_->options.backoff_factor; }
std::int64_t GradScaler::growth_interval() const { return state_->options.growth_interval; }
void GradScaler::set_growth_factor(double factor, Location where) {
  check_growth(factor, where);
  state_->options.growth_factor = factor;
}
void GradScaler::set_backoff_factor(double factor, Location where) {
  check_backoff(factor, where);
  state_->options.backoff_factor = factor;
}
void GradScaler::set_growth_interval(std::int64_t interval, Location where) {
  check_interval(interval, where);
  state_->options.growth_interval = interval;
}
bool GradScaler::is_enabled() const { return state_->options.enabled; }

nn::StateDict GradScaler::state_dict() const {
  if (!state_->options.enabled) return {};
  return {{"scale", state_->scale},
          {"growth_factor", tensor(state_->options.growth_factor, DType::f64)},
          {"backoff_factor", tensor(state_->options.backoff_factor, DType::f64)},
          {"growth_interval", tensor(state_->options.growth_interval, DType::i64)},
          {"_growth_tracker", state_->tracker}};
}

void GradScaler::load_state_dict(const nn::StateDict& given, Location where) {
  refuse_within_build("load_state_dict() of a GradScaler", where);
  if (!state_->options.enabled) return;
  nn::StateDict targets;
  for (const auto& [name, t] : state_dict()) targets.emplace_back(name, zeros(t.shape(), t.dtype()));
  nn::load_tensors(targets, given, true, "load_state_dict of GradScaler", where);
  const double scale = targets[0].second.item<float>(), growth = targets[1].second.item<double>(),
               backoff = targets[2].second.item<double>();
  const auto interval = targets[3].second.item<std::int64_t>();
  check_scale(scale, "the scale", where);
  check_growth(growth, where);
  check_backoff(backoff, where);
  check_interval(interval, where);
  const NoGradGuard no_grad;
  state_->scale.copy_(targets[0].second);
  state_->tracker.copy_(targets[4].second);
  state_->options.growth_factor = growth;
  state_->options.backoff_factor = backoff;
  state_->options.growth_interval = interval;
}

}  // namespace graven::amp
