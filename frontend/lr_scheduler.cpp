#include "graven/lr_scheduler.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "frontend/dispatch.h"
#include "frontend/module_state.h"
#include "frontend/optim_state.h"
#include "frontend/trace.h"
#include "ir/schedule.h"
#include "runtime_min/schedule.h"

namespace graven::lr_scheduler {

namespace {

/// The formulas are those of emitted programs.
runtime::Schedule schedule_of(const ir::Schedule& s) {
  ir::check_schedule(s);
  using Kind = runtime::Schedule::Kind;
  runtime::Schedule r;
  constexpr std::pair<const char*, Kind> kKinds[] = {{"constant", Kind::constant},
                                                     {"linear", Kind::linear},
                                                     {"step", Kind::step},
                                                     {"multi_step", Kind::multi_step},
                                                     {"exponential", Kind::exponential},
                                                     {"cosine", Kind::cosine},
                                                     {"cosine_warm_restarts", Kind::cosine_warm_restarts},
                                                     {"cosine_decay", Kind::cosine_decay},
                                                     {"polynomial", Kind::polynomial},
                                                     {"one_cycle", Kind::one_cycle},
                                                     {"triangular", Kind::triangular},
                                                     {"triangular2", Kind::triangular2},
                                                     {"exp_range", Kind::exp_range},
                                                     {"table", Kind::table},
                                                     {"sequential", Kind::sequential}};
  for (const auto& [name, kind] : kKinds)
    if (s.kind == name) r.kind = kind;
  const auto read = [&](const char* name, auto& field) {
    if (const auto it = s.options.find(name); it != s.options.end())
      field = static_cast<std::remove_reference_t<decltype(field)>>(it->second);
  };
  read("factor", r.factor);
  read("start_factor", r.start_factor);
  read("end_factor", r.end_factor);
  read("gamma", r.gamma);
  read("eta_min", r.eta_min);
  read("alpha", r.alpha);
  read("power", r.power);
  read("end_learning_rate", r.end_learning_rate);
  read("div_factor", r.div_factor);
  read("final_div_factor", r.final_div_factor);
  read("pct_start", r.pct_start);
  read("max_factor", r.max_factor);
  read("total_iters", r.total_iters);
  read("step_size", r.step_size);
  read("T_max", r.T_max);
  read("T_0", r.T_0);
  read("T_mult", r.T_mult);
  read("decay_steps", r.decay_steps);
  read("total_steps", r.total_steps);
  read("step_size_up", r.step_size_up);
  read("step_size_down", r.step_size_down);
  read("cycle", r.cycle);
  read("anneal_linear", r.anneal_linear);
  read("three_phase", r.three_phase);
  read("warmup_factor", r.warmup_factor);
  read("warmup_iters", r.warmup_iters);
  if (const auto it = s.options.find("warmup_linear"); it != s.options.end())
    r.warmup = it->second != 0 ? runtime::Schedule::Warmup::linear : runtime::Schedule::Warmup::constant;
  for (double m : s.milestones) r.milestones.push_back(static_cast<std::int64_t>(m));
  for (const ir::Schedule& part : s.parts) r.parts.push_back(schedule_of(part));
  r.factors = s.factors;
  return r;
}

void require(bool condition, const std::string& message) {
  if (!condition) throw UserError(message);
}

/// The schedule, if `mistake` is empty; it is checked before the first rate is computed.
ir::Schedule make(const std::string& mistake, std::string kind, std::map<std::string, double> options,
                  std::vector<double> milestones = {}) {
  require(mistake.empty(), mistake);
  return {std::move(kind), std::move(options), std::move(milestones)};
}

std::string positive(const char* name, std::int64_t n) {
  if (n > std::int64_t{1} << 53) return std::string(name) + " must be at most 2^53, got " + std::to_string(n);
  return n >= 1 ? "" : std::string(name) + " must be positive, got " + std::to_string(n);
}
std::string not_negative(const char* name, std::int64_t n) {
  return n >= 0 ? "" : std::string(name) + " must not be negative, got " + std::to_string(n);
}
std::string finite(const char* name, double x) {
  return std::isfinite(x) ? "" : std::string(name) + " must be a finite number, got " + fmt::format("{}", x);
}
std::string above_zero(const char* name, double x) {
  return std::isfinite(x) && x > 0
             ? ""
             : std::string(name) + " must be a finite number above 0, got " + fmt::format("{}", x);
}
std::string increasing(const char* name, const std::vector<std::int64_t>& numbers) {
  const auto found = std::is_sorted_until(numbers.begin(), numbers.end());
  return found == numbers.end() ? "" : fmt::format("{} must increase, got {} behind {}", name, *found, *(found - 1));
}
/// From 0 to 1, or above 0 to 1.
std::string part(const char* name, double x, bool zero = true) {
  if (x <= 1 && (zero ? x >= 0 : x > 0)) return "";
  return std::string(name) + " must lie in " + (zero ? "[0, 1]" : "(0, 1]") + ", got " + fmt::format("{}", x);
}
/// The first mistake of several.
std::string first(std::initializer_list<std::string> mistakes) {
  for (const std::string& m : mistakes)
    if (!m.empty()) return m;
  return "";
}

/// What is OneFlow's alone stands only where it is used: the hash of graphs that don't is as it was, and their
/// checkpoints go on.
std::map<std::string, double> polynomial_options(const PolynomialLROptions& o) {
  std::map<std::string, double> options{{"power", o.power}, {"total_iters", static_cast<double>(o.total_iters)}};
  if (o.end_learning_rate != 0) options["end_learning_rate"] = o.end_learning_rate;
  if (o.cycle) options["cycle"] = 1;
  return options;
}

/// One rate for each of the optimizer's groups.
std::vector<double> by_group(const std::string& name, const optim::Optimizer& optimizer, const GroupRates& rates) {
  const std::size_t groups = optimizer.state()->groups.size();
  std::vector<double> list = rates.list();
  if (list.size() == 1) list.resize(groups, list[0]);
  require(list.size() == groups,
          fmt::format("{} must be one number, or one for each of the {} parameter groups, got {}", name, groups,
                      rates.list().size()));
  for (const double rate : list)
    require(rate >= 0 && std::isfinite(rate), fmt::format("{} must be finite and not negative, got {}", name, rate));
  return list;
}

std::pair<ir::Schedule, std::vector<double>> one_cycle(const optim::Optimizer& optimizer, const OneCycleLROptions& o) {
  std::vector<double> rates = by_group("OneCycleLR: max_lr", optimizer, o.max_lr);
  ir::Schedule schedule =
      make(first({positive("OneCycleLR: total_steps", o.total_steps), part("OneCycleLR: pct_start", o.pct_start),
                  above_zero("OneCycleLR: div_factor", o.div_factor),
                  above_zero("OneCycleLR: final_div_factor", o.final_div_factor)}),
           "one_cycle",
           {{"total_steps", static_cast<double>(o.total_steps)},
            {"pct_start", o.pct_start},
            {"anneal_linear", o.anneal_strategy == AnnealStrategy::linear ? 1 : 0},
            {"div_factor", o.div_factor},
            {"final_div_factor", o.final_div_factor},
            {"three_phase", o.three_phase ? 1 : 0}});
  for (double& rate : rates) rate /= o.div_factor;
  return {std::move(schedule), std::move(rates)};
}

std::pair<ir::Schedule, std::vector<double>> cyclic(const optim::Optimizer& optimizer, const CyclicLROptions& o) {
  std::vector<double> base = by_group("CyclicLR: base_lr", optimizer, o.base_lr),
                      top = by_group("CyclicLR: max_lr", optimizer, o.max_lr);
  const std::int64_t down = o.step_size_down.value_or(o.step_size_up);
  require(base[0] > 0, "CyclicLR: base_lr must be above 0, since the whole curve is a multiple of it");
  const double factor = top[0] / base[0];
  for (std::size_t i = 1; i < base.size(); ++i)  // factors that differ by rounding are one
    require(base[i] > 0 && std::abs(top[i] / base[i] - factor) <= 1e-12 * factor,
            fmt::format("CyclicLR: max_lr / base_lr must be the same for each parameter group, got {} / {} and {} / {}",
                        top[0], base[0], top[i], base[i]));
  std::string kind = o.mode == CyclicMode::triangular    ? "triangular"
                     : o.mode == CyclicMode::triangular2 ? "triangular2"
                                                         : "exp_range";
  ir::Schedule schedule =
      make(first({positive("CyclicLR: step_size_up", o.step_size_up), positive("CyclicLR: step_size_down", down),
                  finite("CyclicLR: gamma", o.gamma), finite("CyclicLR: max_lr / base_lr", factor)}),
           kind,
           {{"max_factor", factor},
            {"step_size_up", static_cast<double>(o.step_size_up)},
            {"step_size_down", static_cast<double>(down)}});
  if (o.mode == CyclicMode::exp_range) schedule.options["gamma"] = o.gamma;
  return {std::move(schedule), std::move(base)};
}

std::size_t depth(const ir::Schedule& schedule) {
  std::size_t deepest = 0;
  for (const ir::Schedule& part : schedule.parts) deepest = std::max(deepest, depth(part));
  return deepest + 1;
}

/// A program's groups have one rate each that all parts start from, so OneCycleLR and CyclicLR set it for every one of
/// them. A part that was made for another would silently change.
void check_base_lrs(const std::vector<LRScheduler>& schedulers) {
  for (std::size_t i = 0; i < schedulers.size(); ++i)
    for (std::size_t j = 0; j < schedulers.size(); ++j) {
      const LRScheduler::State &one = *schedulers[i].state(), &other = *schedulers[j].state();
      if (!other.sets_base_lr) continue;
      const auto differing =
          std::mismatch(one.first_base_lrs.begin(), one.first_base_lrs.end(), other.first_base_lrs.begin());
      if (differing.first == one.first_base_lrs.end()) continue;
      throw UserError(
          fmt::format("SequentialLR: scheduler {} starts from the learning rate {}, but scheduler {} sets it to {}", i,
                      *differing.first, j, *differing.second))
          .note("make OneCycleLR or CyclicLR before the others: all start from the rate that it sets");
    }
}

ir::Schedule sequence(const optim::Optimizer& optimizer, const std::vector<LRScheduler>& schedulers,
                      const std::vector<std::int64_t>& milestones) {
  require(!schedulers.empty(), "SequentialLR: there are no schedulers");
  for (std::size_t i = 0; i < schedulers.size(); ++i)
    require(schedulers[i].state()->optimizer == optimizer.state(),
            fmt::format("SequentialLR: scheduler {} belongs to another optimizer", i));
  require(milestones.size() + 1 == schedulers.size(),
          fmt::format("SequentialLR: expected one milestone fewer than schedulers, got {} and {}", milestones.size(),
                      schedulers.size()));
  for (std::size_t i = 0; i < milestones.size(); ++i)
    require(milestones[i] > (i == 0 ? 0 : milestones[i - 1]),
            fmt::format("SequentialLR: milestones must increase from above 0, got {}", fmt::join(milestones, ", ")));
  for (std::size_t i = 0; i < schedulers.size(); ++i)
    require(schedulers[i].state()->factors.empty(),
            fmt::format(
                "SequentialLR: scheduler {} is a LambdaLR, which stands alone: let its function count the steps", i));
  check_base_lrs(schedulers);
  ir::Schedule schedule{"sequential", {}, std::vector<double>(milestones.begin(), milestones.end())};
  for (const LRScheduler& part : schedulers) schedule.parts.push_back(part.state()->schedule);
  require(depth(schedule) <= ir::kMaximumScheduleDepth,
          fmt::format("SequentialLR: schedules stand within schedules at most {} deep, got {}",
                      ir::kMaximumScheduleDepth, depth(schedule)));
  return schedule;
}

}  // namespace

double scheduled_rate(const ir::Schedule& schedule, double lr, std::int64_t steps) {
  const runtime::Schedule formula = schedule_of(schedule);
  require(formula.covers(steps), fmt::format("step {}: the table of a LambdaLR ends after {} steps (tabulated_steps)",
                                             steps + 1, formula.covered_steps()));
  return formula.learning_rate(lr, steps);
}

std::vector<double> LRScheduler::State::rates_at(std::int64_t after) const {
  if (!factors.empty()) {
    std::vector<double> rates;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const double factor = factors[i](after);
      require(std::isfinite(factor),
              fmt::format("LambdaLR: the function gave {} for step {}; a factor must be finite", factor, after));
      rates.push_back(optimizer->groups[i].base_lr * factor);
    }
    return rates;
  }
  const runtime::Schedule formula = schedule_of(schedule);
  std::vector<double> rates;
  for (const auto& g : optimizer->groups) rates.push_back(formula.learning_rate(g.base_lr, after));
  return rates;
}

void LRScheduler::State::set(const std::vector<double>& now) const {
  for (std::size_t i = 0; i < now.size(); ++i) optimizer->groups[i].options["lr"] = now[i];
}

std::int64_t LRScheduler::State::next_step() const {
  require(steps < std::numeric_limits<std::int64_t>::max(), "step() of a schedule: there are no more steps to count");
  return steps + 1;
}

LRScheduler::LRScheduler(const optim::Optimizer& optimizer, ir::Schedule schedule)
    : LRScheduler(optimizer, std::move(schedule), {}) {}
LRScheduler::LRScheduler(const optim::Optimizer& optimizer, ScheduleAndRates schedule)
    : state_(std::make_shared<State>()) {
  state_->optimizer = optimizer.state();
  state_->schedule = std::move(schedule.first);
  state_->first_base_lrs = std::move(schedule.second);
  state_->sets_base_lr = true;
  for (std::size_t i = 0; i < state_->first_base_lrs.size(); ++i)
    state_->optimizer->groups[i].base_lr = state_->first_base_lrs[i];
  state_->apply();
  state_->optimizer->schedule = state_;
}

LRScheduler::LRScheduler(const optim::Optimizer& optimizer, ir::Schedule schedule,
                         std::vector<std::function<double(std::int64_t)>> factors, Location where)
    // The program's own functions are asked for the first rates.
    : LRScheduler(
          detail::located(where, [&] { return LRScheduler(optimizer, std::move(schedule), std::move(factors)); })) {}
LRScheduler::LRScheduler(const optim::Optimizer& optimizer, ir::Schedule schedule,
                         std::vector<std::function<double(std::int64_t)>> factors)
    : state_(std::make_shared<State>()) {
  state_->optimizer = optimizer.state();
  state_->schedule = std::move(schedule);
  state_->factors = std::move(factors);
  for (const auto& g : state_->optimizer->groups) state_->first_base_lrs.push_back(g.base_lr);
  state_->apply();
  state_->optimizer->schedule = state_;
}

void LRScheduler::step(Location where) {
  if (detail::active_trace())
    detail::fail_at(
        "step() of a schedule within build(), which runs once; give it to add_optimizer(), and it advances after every "
        "call",
        where);
  detail::located(where, [&] { state_->go_to(state_->next_step()); });
}
std::vector<double> LRScheduler::get_last_lr() const { return state_->rates(); }
std::int64_t LRScheduler::last_epoch() const { return state_->steps; }
void LRScheduler::set_last_epoch(std::int64_t steps, Location where) {
  detail::located(where, [&] {
    require(steps >= 0,
            fmt::format("set_last_epoch: a schedule cannot stand before its first step, expected 0 or more, got {}",
                        steps));
    state_->go_to(steps);
  });
}

namespace {

/// The numbers of a schedule and of its parts, each under its name.
template <class AnySchedule, class OnNumber, class OnMilestones>
void for_each_number(AnySchedule& schedule, const std::string& prefix, OnNumber&& on_number,
                     OnMilestones&& on_milestones) {
  for (auto& [name, value] : schedule.options) on_number(prefix + name, value);
  if (!schedule.milestones.empty()) on_milestones(prefix + "milestones", schedule.milestones);
  for (std::size_t i = 0; i < schedule.parts.size(); ++i)
    for_each_number(schedule.parts[i], fmt::format("{}{}.", prefix, i), on_number, on_milestones);
}

Shape list_of(std::size_t n) { return Shape{static_cast<std::int64_t>(n)}; }

}  // namespace

nn::StateDict LRScheduler::state_dict() const {
  std::vector<double> rates;
  for (const auto& g : state_->optimizer->groups) rates.push_back(g.base_lr);
  nn::StateDict result{{"last_epoch", tensor(state_->steps, DType::i64)},
                       {"base_lrs", from_data(rates, list_of(rates.size()))}};
  for_each_number(
      state_->schedule, "",
      [&](const std::string& name, double value) { result.emplace_back(name, tensor(value, DType::f64)); },
      [&](const std::string& name, const std::vector<double>& values) {
        result.emplace_back(name, from_data(values, list_of(values.size())));
      });
  return result;
}

nn::LoadReport LRScheduler::load_state_dict(const nn::StateDict& state, bool strict, Location where) {
  detail::refuse_within_build("load_state_dict() of a schedule", where);
  const std::string what = "load_state_dict of a learning-rate schedule";
  std::int64_t steps = state_->steps;
  std::vector<double> rates;
  for (const auto& g : state_->optimizer->groups) rates.push_back(g.base_lr);
  ir::Schedule schedule = state_->schedule;
  std::vector<nn::LoadTarget> expected{{"last_epoch", {DType::i64, Shape{}}},
                                       {"base_lrs", {DType::f64, list_of(rates.size())}}};
  for_each_number(
      schedule, "", [&](const std::string& name, double) { expected.push_back({name, {DType::f64, Shape{}}}); },
      [&](const std::string& name, const std::vector<double>& values) {
        expected.push_back({name, {DType::f64, list_of(values.size())}});
      });
  nn::LoadReport report = nn::check_entries(expected, state, strict, what, where);
  const std::map<std::string, Tensor> given(state.begin(), state.end());
  const auto read = [&](const std::string& name, auto&& take) {
    if (const auto it = given.find(name); it != given.end()) take(it->second);
  };
  read("last_epoch", [&](const Tensor& t) { steps = t.item<std::int64_t>(); });
  read("base_lrs", [&](const Tensor& t) { rates = t.to_vector<double>(); });
  for_each_number(
      schedule, "",
      [&](const std::string& name, double& value) { read(name, [&](const Tensor& t) { value = t.item<double>(); }); },
      [&](const std::string& name, std::vector<double>& values) {
        read(name, [&](const Tensor& t) { values = t.to_vector<double>(); });
      });
  if (steps < 0)
    detail::fail_at(fmt::format("{}: last_epoch must not be negative, got {}; nothing was loaded", what, steps), where);
  for (const double rate : rates)
    if (!(rate >= 0 && std::isfinite(rate)))
      detail::fail_at(
          fmt::format("{}: base_lrs must be finite and not negative, got {}; nothing was loaded", what, rate), where);
  try {
    if (state_->factors.empty()) ir::check_schedule(schedule);
  } catch (UserError& e) {
    e.note(what + "; nothing was loaded").at(where.file_name(), where.line);
    throw;
  }
  state_->steps = steps;
  state_->schedule = std::move(schedule);
  for (std::size_t i = 0; i < rates.size(); ++i) state_->optimizer->groups[i].base_lr = rates[i];
  state_->apply();
  return report;
}

LRScheduler& LRScheduler::warmup(std::int64_t iters, WarmupOptions options, Location where) {
  detail::refuse_within_build("warmup()", where);
  detail::located(where, [&] {
    require(state_->factors.empty(), "warmup: a LambdaLR has none: let its function begin with it");
    require(iters >= 0, "warmup: the number of steps must not be negative, got " + std::to_string(iters));
    require(options.factor >= 0 && options.factor <= 1,
            fmt::format("warmup: the factor must lie in [0, 1], got {}", options.factor));
  });
  state_->schedule.options["warmup_iters"] = static_cast<double>(iters);
  state_->schedule.options["warmup_factor"] = options.factor;
  state_->schedule.options["warmup_linear"] = options.method == Warmup::linear ? 1 : 0;
  state_->apply();
  return *this;
}

StepLR::StepLR(const optim::Optimizer& optimizer, StepLROptions o, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] {
                    return make(first({positive("StepLR: step_size", o.step_size), finite("StepLR: gamma", o.gamma)}),
                                "step", {{"step_size", static_cast<double>(o.step_size)}, {"gamma", o.gamma}});
                  })) {}

MultiStepLR::MultiStepLR(const optim::Optimizer& optimizer, MultiStepLROptions o, Location where)
    : LRScheduler(
          optimizer, detail::located(where, [&] {
            return make(
                first({increasing("MultiStepLR: milestones", o.milestones), finite("MultiStepLR: gamma", o.gamma)}),
                "multi_step", {{"gamma", o.gamma}}, std::vector<double>(o.milestones.begin(), o.milestones.end()));
          })) {}

ExponentialLR::ExponentialLR(const optim::Optimizer& optimizer, ExponentialLROptions o, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] {
                    return make(finite("ExponentialLR: gamma", o.gamma), "exponential", {{"gamma", o.gamma}});
                  })) {}

CosineAnnealingLR::CosineAnnealingLR(const optim::Optimizer& optimizer, CosineAnnealingLROptions o, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] {
                    return make(first({positive("CosineAnnealingLR: T_max", o.T_max),
                                       finite("CosineAnnealingLR: eta_min", o.eta_min)}),
                                "cosine", {{"T_max", static_cast<double>(o.T_max)}, {"eta_min", o.eta_min}});
                  })) {}

LinearLR::LinearLR(const optim::Optimizer& optimizer, LinearLROptions o, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] {
                    return make(first({part("LinearLR: start_factor", o.start_factor, false),
                                       part("LinearLR: end_factor", o.end_factor),
                                       not_negative("LinearLR: total_iters", o.total_iters)}),
                                "linear",
                                {{"start_factor", o.start_factor},
                                 {"end_factor", o.end_factor},
                                 {"total_iters", static_cast<double>(o.total_iters)}});
                  })) {}

ConstantLR::ConstantLR(const optim::Optimizer& optimizer, ConstantLROptions o, Location where)
    : LRScheduler(
          optimizer, detail::located(where, [&] {
            return make(
                first({part("ConstantLR: factor", o.factor), not_negative("ConstantLR: total_iters", o.total_iters)}),
                "constant", {{"factor", o.factor}, {"total_iters", static_cast<double>(o.total_iters)}});
          })) {}

PolynomialLR::PolynomialLR(const optim::Optimizer& optimizer, PolynomialLROptions o, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] {
                    return make(first({positive("PolynomialLR: total_iters", o.total_iters),
                                       finite("PolynomialLR: power", o.power),
                                       finite("PolynomialLR: end_learning_rate", o.end_learning_rate)}),
                                "polynomial", polynomial_options(o));
                  })) {}

CosineDecayLR::CosineDecayLR(const optim::Optimizer& optimizer, CosineDecayLROptions o, Location where)
    : LRScheduler(
          optimizer, detail::located(where, [&] {
            return make(
                first({positive("CosineDecayLR: decay_steps", o.decay_steps), finite("CosineDecayLR: alpha", o.alpha)}),
                "cosine_decay", {{"decay_steps", static_cast<double>(o.decay_steps)}, {"alpha", o.alpha}});
          })) {}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(const optim::Optimizer& optimizer,
                                                         CosineAnnealingWarmRestartsOptions o, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] {
                    return make(first({positive("CosineAnnealingWarmRestarts: T_0", o.T_0),
                                       positive("CosineAnnealingWarmRestarts: T_mult", o.T_mult),
                                       finite("CosineAnnealingWarmRestarts: eta_min", o.eta_min)}),
                                "cosine_warm_restarts",
                                {{"T_0", static_cast<double>(o.T_0)},
                                 {"T_mult", static_cast<double>(o.T_mult)},
                                 {"eta_min", o.eta_min}});
                  })) {}

OneCycleLR::OneCycleLR(const optim::Optimizer& optimizer, OneCycleLROptions o, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] { return one_cycle(optimizer, o); })) {}

CyclicLR::CyclicLR(const optim::Optimizer& optimizer, CyclicLROptions o, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] { return cyclic(optimizer, o); })) {}

namespace {
std::vector<LambdaLR::Function> functions_of(const optim::Optimizer& optimizer,
                                             std::vector<LambdaLR::Function> functions) {
  const std::size_t groups = optimizer.state()->groups.size();
  require(functions.size() == groups,
          fmt::format("LambdaLR: expected one function, or one for each of the {} parameter groups, got {}", groups,
                      functions.size()));
  for (const LambdaLR::Function& f : functions) require(static_cast<bool>(f), "LambdaLR: a function is empty");
  return functions;
}
ir::Schedule tabulated(const std::vector<LambdaLR::Function>& functions, const LambdaLROptions& options) {
  const std::int64_t steps = options.tabulated_steps;
  require(steps >= 0 && steps <= 1'000'000,
          fmt::format("LambdaLR: tabulated_steps must lie in [0, 1000000], got {}", steps));
  if (steps == 0) return {std::string(ir::kProgramsOwnSchedule), {}, {}};
  ir::Schedule schedule{"table", {}, {}};
  for (std::int64_t t = 0; t < steps; ++t) {
    const double factor = functions[0](t);
    require(std::isfinite(factor),
            fmt::format("LambdaLR: the function gave {} for step {}; a factor must be finite", factor, t));
    for (std::size_t g = 1; g < functions.size(); ++g)
      require(
          functions[g](t) == factor,
          fmt::format("LambdaLR: the functions of the parameter groups 0 and {} differ at step {}: a table is one for "
                      "all groups; give them optimizers of their own",
                      g, t));
    schedule.factors.push_back(factor);
  }
  return schedule;
}
}  // namespace
LambdaLR::LambdaLR(const optim::Optimizer& optimizer, Function lr_lambda, LambdaLROptions options, Location where)
    : LambdaLR(optimizer, std::vector<Function>(optimizer.state()->groups.size(), std::move(lr_lambda)), options,
               where) {}
LambdaLR::LambdaLR(const optim::Optimizer& optimizer, std::vector<Function> lr_lambda, LambdaLROptions options,
                   Location where)
    : LRScheduler(optimizer,
                  detail::located(where, [&] { return tabulated(functions_of(optimizer, lr_lambda), options); }),
                  detail::located(where, [&] { return functions_of(optimizer, lr_lambda); }), where) {}

SequentialLR::SequentialLR(const optim::Optimizer& optimizer, const std::vector<LRScheduler>& schedulers,
                           const std::vector<std::int64_t>& milestones, Location where)
    : LRScheduler(optimizer, detail::located(where, [&] { return sequence(optimizer, schedulers, milestones); })) {
  for (const LRScheduler& part : schedulers) state()->sets_base_lr |= part.state()->sets_base_lr;
}

// ---- on a plateau ---------------------------------------------------------------------------------------------------

ReduceLROnPlateau::ReduceLROnPlateau(const optim::Optimizer& optimizer, ReduceLROnPlateauOptions o, Location where)
    : state_(std::make_shared<State>()) {
  detail::located(where, [&] {
    require(o.factor < 1 && o.factor >= 0,
            fmt::format("ReduceLROnPlateau: factor must lie in [0, 1), got {}", o.factor));
    const std::string mistake =
        first({not_negative("ReduceLROnPlateau: patience", o.patience),
               not_negative("ReduceLROnPlateau: cooldown", o.cooldown),
               finite("ReduceLROnPlateau: threshold", o.threshold), finite("ReduceLROnPlateau: eps", o.eps)});
    require(mistake.empty(), mistake);
    state_->min_lr = by_group("ReduceLROnPlateau: min_lr", optimizer, o.min_lr);
  });
  state_->optimizer = optimizer.state();
  state_->plateau = {.max = o.mode == PlateauMode::max,
                     .factor = o.factor,
                     .patience = o.patience,
                     .threshold = o.threshold,
                     .absolute = o.threshold_mode == ThresholdMode::abs,
                     .cooldown = o.cooldown,
                     .eps = o.eps};
}

std::map<std::string, double> ReduceLROnPlateau::State::recorded() const {
  std::map<std::string, double> options = {{"max", plateau.max ? 1 : 0},
                                           {"factor", plateau.factor},
                                           {"patience", static_cast<double>(plateau.patience)},
                                           {"threshold", plateau.threshold},
                                           {"absolute", plateau.absolute ? 1 : 0},
                                           {"cooldown", static_cast<double>(plateau.cooldown)},
                                           {"eps", plateau.eps}};
  for (std::size_t g = 0; g < min_lr.size(); ++g) options[ir::plateau_min_lr(g)] = min_lr[g];
  return options;
}

void ReduceLROnPlateau::step(double metric, Location where) {
  if (detail::active_trace())
    detail::fail_at(
        "step() of ReduceLROnPlateau within build(), which runs once; call it after each epoch, with the epoch's loss",
        where);
  State& s = *state_;
  const std::shared_ptr<LRScheduler::State> schedule = s.optimizer->schedule.lock();
  if (const char* name = schedule ? ir::sets_rates_anew(schedule->schedule) : nullptr)
    detail::fail_at(fmt::format("step() of ReduceLROnPlateau: the optimizer's {} sets the rate of each step anew, and "
                                "a reduction would be gone with the next one; have one of the two",
                                name),
                    where);
  if (s.now.epochs == std::numeric_limits<std::int64_t>::max())
    detail::fail_at("step() of ReduceLROnPlateau: there are no more epochs to count", where);
  if (!s.plateau.sees(s.now, metric)) return;
  const runtime::Schedule formula = schedule ? schedule_of(schedule->schedule) : runtime::Schedule{};
  const std::int64_t steps = schedule ? schedule->steps : 0;
  for (std::size_t i = 0; i < s.min_lr.size(); ++i) {
    auto& group = s.optimizer->groups[i];
    double& rate = group.options.at("lr");
    if (!schedule) {
      rate = s.plateau.reduced(formula, rate, s.min_lr[i], steps);
      continue;
    }
    const double start = s.plateau.reduced(formula, group.base_lr, s.min_lr[i], steps);
    if (start == group.base_lr) continue;
    group.base_lr = start;
    rate = formula.learning_rate(start, steps);
  }
}
void ReduceLROnPlateau::step(const Tensor& metric, Location where) {
  detail::require_defined(metric, "step", where, "the metric");
  if (metric.is_traced()) return step(0.0, where);  // says why not
  step(metric.item<double>(where), where);
}

std::vector<double> ReduceLROnPlateau::get_last_lr() const {
  std::vector<double> rates;
  for (const auto& g : state_->optimizer->groups) rates.push_back(g.options.at("lr"));
  return rates;
}
double ReduceLROnPlateau::best() const {
  const double none = std::numeric_limits<double>::infinity();
  return state_->now.has_best ? state_->now.best : state_->plateau.max ? -none : none;
}
std::int64_t ReduceLROnPlateau::num_bad_epochs() const { return state_->now.bad_epochs; }
std::int64_t ReduceLROnPlateau::last_epoch() const { return state_->now.epochs; }
bool ReduceLROnPlateau::in_cooldown() const { return state_->now.cooldown > 0; }

nn::StateDict ReduceLROnPlateau::state_dict() const {
  return {{"best", tensor(best(), DType::f64)},
          {"num_bad_epochs", tensor(state_->now.bad_epochs, DType::i64)},
          {"cooldown_counter", tensor(state_->now.cooldown, DType::i64)},
          {"last_epoch", tensor(state_->now.epochs, DType::i64)}};
}
nn::LoadReport ReduceLROnPlateau::load_state_dict(const nn::StateDict& state, bool strict, Location where) {
  detail::refuse_within_build("load_state_dict() of a schedule", where);
  const std::string what = "load_state_dict of ReduceLROnPlateau";
  runtime::PlateauState next = state_->now;
  const std::pair<const char*, std::int64_t*> counts[] = {
      {"num_bad_epochs", &next.bad_epochs}, {"cooldown_counter", &next.cooldown}, {"last_epoch", &next.epochs}};
  std::vector<nn::LoadTarget> expected{{"best", {DType::f64, Shape{}}}};
  for (const auto& [name, count] : counts) expected.push_back({name, {DType::i64, Shape{}}});
  nn::LoadReport report = nn::check_entries(expected, state, strict, what, where);
  const std::map<std::string, Tensor> given(state.begin(), state.end());
  if (const auto it = given.find("best"); it != given.end()) {
    next.best = it->second.item<double>();
    next.has_best = next.best != (state_->plateau.max ? -1 : 1) * std::numeric_limits<double>::infinity();
  }
  for (const auto& [name, count] : counts) {
    if (const auto it = given.find(name); it != given.end()) *count = it->second.item<std::int64_t>();
    if (*count < 0)
      detail::fail_at(fmt::format("{}: {} must not be negative, got {}; nothing was loaded", what, name, *count),
                      where);
  }
  state_->now = next;
  return report;
}

}  // namespace graven::lr_scheduler
