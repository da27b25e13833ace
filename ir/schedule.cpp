#include "ir/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

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
constexpr ScheduleOption kPlateauOptions[] = {
    {"max", ScheduleNumber::flag},      {"factor", ScheduleNumber::share},  {"patience", ScheduleNumber::from_0},
    {"threshold", ScheduleNumber::any}, {"absolute", ScheduleNumber::flag}, {"cooldown", ScheduleNumber::from_0},
    {"eps", ScheduleNumber::any},
};
constexpr ScheduleOption kWarmupOptions[] = {{"warmup_factor", ScheduleNumber::any},
                                             {"warmup_iters", ScheduleNumber::from_0}};

/// The options that a kind has, and those of them that it may do without.
struct ScheduleKind {
  std::string_view name;
  std::vector<std::string_view> options, optional = {};
};
const std::vector<ScheduleKind>& schedule_kinds() {
  static const std::vector<ScheduleKind> table = {
      {"constant", {"factor", "total_iters"}},
      {"linear", {"start_factor", "end_factor", "total_iters"}},
      {"step", {"step_size", "gamma"}},
      {"multi_step", {"gamma"}},
      {"exponential", {"gamma"}},
      {"cosine", {"T_max", "eta_min"}},
      {"cosine_warm_restarts", {"T_0", "T_mult", "eta_min"}},
      {"cosine_decay", {"decay_steps", "alpha"}},
      {"polynomial", {"total_iters", "power"}, {"end_learning_rate", "cycle"}},
      {"one_cycle", {"total_steps", "pct_start", "anneal_linear", "div_factor", "final_div_factor", "three_phase"}},
      {"triangular", {"max_factor", "step_size_up", "step_size_down"}},
      {"triangular2", {"max_factor", "step_size_up", "step_size_down"}},
      {"exp_range", {"max_factor", "step_size_up", "step_size_down", "gamma"}},
      {"table", {}},
      {"sequential", {}},
  };
  return table;
}
constexpr std::string_view kWarmup[] = {"warmup_iters", "warmup_factor", "warmup_linear"};

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& found) {
  throw UserError(what + ": expected " + expected + ", found " + found);
}
[[noreturn]] void refuse(const Schedule& schedule, const std::string& expected, const std::string& found) {
  refuse("the schedule '" + schedule.kind + "'", expected, found);
}

void check_number(const std::string& whose, const std::string& name, double x, ScheduleNumber number) {
  const auto expect = [&](bool allowed, const char* what) {
    if (!allowed) refuse(whose, what + (" for " + name), fmt::format("{}", x));
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

void check_number(const Schedule& schedule, const std::string& name, double x, ScheduleNumber number) {
  check_number("the schedule '" + schedule.kind + "'", name, x, number);
}

void check_parts(const Schedule& schedule) {
  const auto& milestones = schedule.milestones;
  if (schedule.kind != "sequential") {
    if (!schedule.parts.empty())
      throw UserError("the schedule '" + schedule.kind + "' has parts, as only 'sequential' may");
    return;
  }
  if (milestones.size() + 1 != schedule.parts.size())
    refuse(schedule, "one milestone fewer than parts",
           fmt::format("{} and {}", milestones.size(), schedule.parts.size()));
  for (std::size_t i = 0; i < milestones.size(); ++i)
    if (!(milestones[i] > (i == 0 ? 0 : milestones[i - 1])))
      refuse(schedule, "milestones that increase from above 0", fmt::format("{}", fmt::join(milestones, ", ")));
  for (const Schedule& part : schedule.parts) check_schedule(part);
}

}  // namespace

std::span<const ScheduleOption> schedule_options() { return kScheduleOptions; }
std::span<const ScheduleOption> warmup_options() { return kWarmupOptions; }

std::span<const ScheduleOption> plateau_options() { return kPlateauOptions; }

void check_plateau(const Optimizer& optimizer) {
  if (optimizer.plateau.empty()) return;
  const std::string whose = "the reduction on a plateau";
  std::map<std::string, ScheduleNumber> due;
  for (const ScheduleOption& o : kPlateauOptions) due.emplace(o.name, o.number);
  for (std::size_t g = 0; g < optimizer.groups.size(); ++g) due.emplace(plateau_min_lr(g), ScheduleNumber::any);
  for (const auto& [name, x] : optimizer.plateau) {
    const auto found = due.find(name);
    if (found == due.end()) throw UserError(whose + " has an unknown option, '" + name + "'");
    check_number(whose, name, x, found->second);
    due.erase(found);
  }
  if (!due.empty()) throw UserError(whose + " lacks the option '" + due.begin()->first + "'");
  if (const char* name = sets_rates_anew(optimizer.schedule))
    throw UserError(
        fmt::format("ReduceLROnPlateau beside {}, which sets the rate of each step anew: a reduction would be "
                    "gone with the next one; have one of the two",
                    name));
}

const char* sets_rates_anew(const Schedule& schedule) {
  constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {kProgramsOwnSchedule, "LambdaLR"},
      {"table", "LambdaLR"},
      {"cosine_warm_restarts", "CosineAnnealingWarmRestarts"},
      {"one_cycle", "OneCycleLR"},
      {"triangular", "CyclicLR"},
      {"triangular2", "CyclicLR"},
      {"exp_range", "CyclicLR"},
      {"sequential", "SequentialLR"}};
  for (const auto& [kind, name] : kKinds)
    if (schedule.kind == kind) return name;
  return nullptr;
}

void require_portable(const Schedule& schedule) {
  if (schedule.kind != kProgramsOwnSchedule) return;
  throw UserError("the learning-rate schedule LambdaLR is a function of this program, which cannot be saved or emitted")
      .note(
          "give it a table, {.tabulated_steps = ...}, or use one of the other schedules, or SequentialLR with several "
          "of "
          "them");
}

void check_schedule(const Schedule& schedule) {
  if (schedule.kind.empty() || schedule.kind == "none") {
    if (!schedule.options.empty() || !schedule.milestones.empty() || !schedule.parts.empty() ||
        !schedule.factors.empty())
      throw UserError("options, milestones, parts or factors of no schedule");
    return;
  }
  const auto& kinds = schedule_kinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const ScheduleKind& k) { return k.name == schedule.kind; });
  if (kind == kinds.end()) {
    std::vector<std::string_view> names;
    for (const ScheduleKind& k : kinds) names.push_back(k.name);
    throw UserError("there is no learning-rate schedule of kind '" + schedule.kind + "'")
        .note(fmt::format("known  {}", fmt::join(names, ", ")));
  }
  for (const auto& [name, x] : schedule.options) {
    const bool warmup = std::find(std::begin(kWarmup), std::end(kWarmup), name) != std::end(kWarmup);
    if (!warmup && !contains(kind->options, name) && !contains(kind->optional, name))
      throw UserError("the schedule '" + schedule.kind + "' has an unknown option, '" + name + "'");
    ScheduleNumber number = ScheduleNumber::flag;  // of warmup_linear
    for (const auto options : {schedule_options(), warmup_options()})
      for (const ScheduleOption& o : options)
        if (o.name == name) number = o.number;
    check_number(schedule, name, x, number);
  }
  if (!schedule.milestones.empty() && schedule.kind != "multi_step" && schedule.kind != "sequential")
    refuse(schedule, "no milestones", fmt::format("{}", fmt::join(schedule.milestones, ", ")));
  if (schedule.kind == "table" ? schedule.factors.empty() : !schedule.factors.empty())
    refuse(schedule, schedule.kind == "table" ? "at least one factor" : "no factors",
           fmt::format("{}", schedule.factors.size()));
  for (const double f : schedule.factors) check_number(schedule, "a factor", f, ScheduleNumber::any);
  for (const double m : schedule.milestones) check_number(schedule, "a milestone", m, ScheduleNumber::from_0);
  if (!std::is_sorted(schedule.milestones.begin(), schedule.milestones.end()))
    refuse(schedule, "milestones that increase", fmt::format("{}", fmt::join(schedule.milestones, ", ")));
  check_parts(schedule);
  for (const std::string_view name : kind->options)
    if (!schedule.options.count(std::string(name)))
      throw UserError(fmt::format("the schedule '{}' lacks the option '{}'", schedule.kind, name));
  const std::size_t warmup =
      static_cast<std::size_t>(std::count_if(std::begin(kWarmup), std::end(kWarmup), [&](std::string_view name) {
        return schedule.options.count(std::string(name)) != 0;
      }));
  if (warmup != 0 && warmup != std::size(kWarmup))
    refuse(schedule, fmt::format("all of {}", fmt::join(kWarmup, ", ")), "some of them");
}

}  // namespace graven::ir
