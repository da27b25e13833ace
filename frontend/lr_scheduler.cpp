#include "graven/lr_scheduler.h"

#include <algorithm>
#include <cmath>

#include "frontend/optim_state.h"
#include "runtime_min/schedule.h"

namespace graven::lr_scheduler {

namespace {

/// The formulas are those of emitted programs.
runtime::Schedule schedule_of(const ir::Schedule& s) {
  using Kind = runtime::Schedule::Kind;
  runtime::Schedule r;
  constexpr std::pair<const char*, Kind> kKinds[] = {{"constant", Kind::constant},     {"linear", Kind::linear},           {"step", Kind::step},
                                                     {"multi_step", Kind::multi_step}, {"exponential", Kind::exponential}, {"cosine", Kind::cosine},
                                                     {"polynomial", Kind::polynomial}};
  for (const auto& [name, kind] : kKinds)
    if (s.kind == name) r.kind = kind;
  const auto read = [&](const char* name, auto& field) {
    if (const auto it = s.options.find(name); it != s.options.end()) field = static_cast<std::remove_reference_t<decltype(field)>>(it->second);
  };
  read("factor", r.factor);
  read("start_factor", r.start_factor);
  read("end_factor", r.end_factor);
  read("gamma", r.gamma);
  read("eta_min", r.eta_min);
  read("power", r.power);
  read("total_iters", r.total_iters);
  read("step_size", r.step_size);
  read("T_max", r.T_max);
  read("warmup_factor", r.warmup_factor);
  read("warmup_iters", r.warmup_iters);
  if (const auto it = s.options.find("warmup_linear"); it != s.options.end())
    r.warmup = it->second != 0 ? runtime::Schedule::Warmup::linear : runtime::Schedule::Warmup::constant;
  for (double m : s.milestones) r.milestones.push_back(static_cast<std::int64_t>(m));
  return r;
}

void require(bool condition, const std::string& message) {
  if (!condition) throw UserError(message);
}

/// The schedule, if `mistake` is empty; it is checked before the first rate is computed.
ir::Schedule make(const std::string& mistake, std::string kind, std::map<std::string, double> options, std::vector<double> milestones = {}) {
  require(mistake.empty(), mistake);
  return {std::move(kind), std::move(options), std::move(milestones)};
}

std::string positive(const char* name, std::int64_t n) { return n >= 1 ? "" : std::string(name) + " must be positive, got " + std::to_string(n); }
std::string not_negative(const char* name, std::int64_t n) {
  return n >= 0 ? "" : std::string(name) + " must not be negative, got " + std::to_string(n);
}
std::string finite(const char* name, double x) {
  return std::isfinite(x) ? "" : std::string(name) + " must be a finite number, got " + std::to_string(x);
}
/// From 0 to 1, or above 0 to 1.
std::string part(const char* name, double x, bool zero = true) {
  if (x <= 1 && (zero ? x >= 0 : x > 0)) return "";
  return std::string(name) + " must lie in " + (zero ? "[0, 1]" : "(0, 1]") + ", got " + std::to_string(x);
}
/// The first mistake of several.
std::string first(std::initializer_list<std::string> mistakes) {
  for (const std::string& m : mistakes)
    if (!m.empty()) return m;
  return "";
}

}  // namespace

double scheduled_rate(const ir::Schedule& schedule, double lr, std::int64_t steps) { return schedule_of(schedule).learning_rate(lr, steps); }

std::vector<double> LRScheduler::State::rates() const {
  const runtime::Schedule formula = schedule_of(schedule);
  std::vector<double> rates;
  for (const auto& g : optimizer->groups) rates.push_back(formula.learning_rate(g.base_lr, steps));
  return rates;
}

void LRScheduler::State::apply() const {
  const std::vector<double> now = rates();
  for (std::size_t i = 0; i < now.size(); ++i) optimizer->groups[i].options["lr"] = now[i];
}

LRScheduler::LRScheduler(const optim::Optimizer& optimizer, ir::Schedule schedule) : state_(std::make_shared<State>()) {
  state_->optimizer = optimizer.state();
  state_->schedule = std::move(schedule);
  state_->apply();
}

void LRScheduler::step() {
  ++state_->steps;
  state_->apply();
}
std::vector<double> LRScheduler::get_last_lr() const { return state_->rates(); }
std::int64_t LRScheduler::last_epoch() const { return state_->steps; }
void LRScheduler::set_last_epoch(std::int64_t steps) {
  require(steps >= 0, "a schedule cannot stand before its first step");
  state_->steps = steps;
  state_->apply();
}

LRScheduler& LRScheduler::warmup(std::int64_t iters, WarmupOptions options) {
  require(iters >= 0, "warmup: the number of steps must not be negative, got " + std::to_string(iters));
  require(options.factor >= 0 && options.factor <= 1, "warmup: the factor must lie in [0, 1], got " + std::to_string(options.factor));
  state_->schedule.options["warmup_iters"] = static_cast<double>(iters);
  state_->schedule.options["warmup_factor"] = options.factor;
  state_->schedule.options["warmup_linear"] = options.method == Warmup::linear ? 1 : 0;
  state_->apply();
  return *this;
}

StepLR::StepLR(const optim::Optimizer& optimizer, StepLROptions o)
    : LRScheduler(optimizer, make(first({positive("StepLR: step_size", o.step_size), finite("StepLR: gamma", o.gamma)}), "step",
                                  {{"step_size", static_cast<double>(o.step_size)}, {"gamma", o.gamma}})) {}

MultiStepLR::MultiStepLR(const optim::Optimizer& optimizer, MultiStepLROptions o)
    : LRScheduler(optimizer, make(first({std::is_sorted(o.milestones.begin(), o.milestones.end()) ? "" : "MultiStepLR: milestones must increase",
                                         finite("MultiStepLR: gamma", o.gamma)}),
                                  "multi_step", {{"gamma", o.gamma}}, std::vector<double>(o.milestones.begin(), o.milestones.end()))) {}

ExponentialLR::ExponentialLR(const optim::Optimizer& optimizer, ExponentialLROptions o)
    : LRScheduler(optimizer, make(finite("ExponentialLR: gamma", o.gamma), "exponential", {{"gamma", o.gamma}})) {}

CosineAnnealingLR::CosineAnnealingLR(const optim::Optimizer& optimizer, CosineAnnealingLROptions o)
    : LRScheduler(optimizer, make(first({positive("CosineAnnealingLR: T_max", o.T_max), finite("CosineAnnealingLR: eta_min", o.eta_min)}), "cosine",
                                  {{"T_max", static_cast<double>(o.T_max)}, {"eta_min", o.eta_min}})) {}

LinearLR::LinearLR(const optim::Optimizer& optimizer, LinearLROptions o)
    : LRScheduler(
          optimizer,
          make(first({part("LinearLR: start_factor", o.start_factor, false), part("LinearLR: end_factor", o.end_factor),
                      not_negative("LinearLR: total_iters", o.total_iters)}),
               "linear", {{"start_factor", o.start_factor}, {"end_factor", o.end_factor}, {"total_iters", static_cast<double>(o.total_iters)}})) {}

ConstantLR::ConstantLR(const optim::Optimizer& optimizer, ConstantLROptions o)
    : LRScheduler(optimizer, make(first({part("ConstantLR: factor", o.factor), not_negative("ConstantLR: total_iters", o.total_iters)}), "constant",
                                  {{"factor", o.factor}, {"total_iters", static_cast<double>(o.total_iters)}})) {}

PolynomialLR::PolynomialLR(const optim::Optimizer& optimizer, PolynomialLROptions o)
    : LRScheduler(optimizer, make(first({positive("PolynomialLR: total_iters", o.total_iters), finite("PolynomialLR: power", o.power)}), "polynomial",
                                  {{"power", o.power}, {"total_iters", static_cast<double>(o.total_iters)}})) {}

}  // namespace graven::lr_scheduler
