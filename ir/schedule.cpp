#include "ir/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ir/diagnostic.h"

namespace graven::ir {

namespace {

constexpr ScheduleOption kScheduleOptions[] = {
    {"factor", ScheduleNumber::any},
    {"start_factor", ScheduleNumber::any},
    {"end_factor", ScheduleNumber::any},
    {"gamma", ScheduleNumber::any},
    {"eta_min", ScheduleNumber::any},
    {"alpha", ScheduleNumber::any},
    {"power", ScheduleNumber::any},
    {"end_learning_rate", ScheduleNumber::any},
    {"div_factor", ScheduleNumber::positive},
    {"final_div_factor", ScheduleNumber::positive},
    {"pct_start", ScheduleNumber::share},
    {"max_factor", ScheduleNumber::any},
    {"total_iters", ScheduleNumber::from_0},
    {"step_size", ScheduleNumber::from_1},
    {"T_max", ScheduleNumber::from_1},
    {"T_0", ScheduleNumber::from_1},
    {"T_mult", ScheduleNumber::from_1},
    {"decay_steps", ScheduleNumber::from_1},
    {"total_steps", ScheduleNumber::from_1},
    {"step_size_up", ScheduleNumber::from_1},
    {"step_size_down", ScheduleNumber::from_1},
    {"cycle", ScheduleNumber::flag},
    {"anneal_linear", ScheduleNumber::flag},
    {"three_phase", ScheduleNumber::flag},
};
constexpr ScheduleOption kWarmupOptions[] = {{"warmup_factor", ScheduleNumber::any}, {"warmup_iters", ScheduleNumber::from_0}};

constexpr std::string_view kScheduleKinds[] = {
    "constant",     "linear",     "step",      "multi_step", "exponential", "cosine",    "cosine_warm_restarts",
    "cosine_decay", "polynomial", "one_cycle", "triangular", "triangular2", "exp_range", "sequential"};

[[noreturn]] void refuse(const Schedule& schedule, const std::string& expected, const std::string& found) {
  throw UserError("the schedule '" + schedule.kind + "': expected " + expected + ", found " + found);
}

void check_number(const Schedule& schedule, const std::string& name, double x, ScheduleNumber number) {
  const auto expect = [&](bool allowed, const char* what) {
    if (!allowed) refuse(schedule, what + (" for " + name), fmt::format("{}", x));
  };
  const auto whole = [x](double least) { return x >= least && x <= 0x1p53 && x == std::floor(x); };
  switch (number) {
    case ScheduleNumber::any:
      return expect(std::isfinite(x), "a finite number");
    case ScheduleNumber::positive:
      return expect(x > 0 && std::isfinite(x), "a finite number above 0");
    case ScheduleNumber::share:
      return expect(x >= 0 && x <= 1, "a number from 0 to 1");
    case ScheduleNumber::from_0:
      return expect(whole(0), "a whole number from 0 to 2^53");
    case ScheduleNumber::from_1:
      return expect(whole(1), "a whole number from 1 to 2^53");
    case ScheduleNumber::flag:
      return expect(x == 0 || x == 1, "0 or 1");
  }
}

void check_parts(const Schedule& schedule) {
  const auto& milestones = schedule.milestones;
  if (schedule.kind != "sequential") {
    if (!schedule.parts.empty()) throw UserError("the schedule '" + schedule.kind + "' has parts, as only 'sequential' may");
    return;
  }
  if (milestones.size() + 1 != schedule.parts.size())
    refuse(schedule, "one milestone fewer than parts", fmt::format("{} and {}", milestones.size(), schedule.parts.size()));
  for (std::size_t i = 0; i < milestones.size(); ++i)
    if (!(milestones[i] > (i == 0 ? 0 : milestones[i - 1])))
      refuse(schedule, "milestones that increase from above 0", fmt::format("{}", fmt::join(milestones, ", ")));
  for (const Schedule& part : schedule.parts) check_schedule(part);
}

}  // namespace

std::span<const ScheduleOption> schedule_options() { return kScheduleOptions; }
std::span<const ScheduleOption> warmup_options() { return kWarmupOptions; }

void check_schedule(const Schedule& schedule) {
  if (schedule.kind.empty() || schedule.kind == "none") return;
  if (std::find(std::begin(kScheduleKinds), std::end(kScheduleKinds), schedule.kind) == std::end(kScheduleKinds))
    throw UserError("there is no learning-rate schedule of kind '" + schedule.kind + "'")
        .note(fmt::format("known  {}", fmt::join(kScheduleKinds, ", ")));
  for (const auto& [name, x] : schedule.options) {
    if (name == "warmup_linear") continue;
    const ScheduleOption* known = nullptr;
    for (const auto options : {schedule_options(), warmup_options()})
      for (const ScheduleOption& o : options)
        if (o.name == name) known = &o;
    if (!known) throw UserError("the schedule '" + schedule.kind + "' has an unknown option, '" + name + "'");
    check_number(schedule, name, x, known->number);
  }
  for (const double m : schedule.milestones) check_number(schedule, "a milestone", m, ScheduleNumber::from_0);
  check_parts(schedule);
}

}  // namespace graven::ir
