// What optimizer and scheduler handles refer to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graven/lr_scheduler.h"
#include "graven/optim.h"
#include "runtime_min/plateau.h"

namespace graven::optim {

struct Optimizer::State {
  std::string kind;
  struct Group {
    std::vector<Tensor> parameters;
    std::map<std::string, double> options;  ///< every option, lr included
    double base_lr = 0;                     ///< what schedules start from
    /// By the state's name, then by parameter. Undefined before the parameter's first step.
    std::map<std::string, std::vector<Tensor>> states;
    std::vector<std::int64_t> steps;  ///< by parameter: updates done
  };
  std::vector<Group> groups;
  std::uint64_t loads = 0;  ///< how often load_state_dict() gave the groups options
  std::vector<std::string> state_names() const;
  /// The one that was made last and is still there: a reduction of the rates must reach what it computes them from.
  std::weak_ptr<lr_scheduler::LRScheduler::State> schedule;
};

}  // namespace graven::optim

namespace graven::optim {

/// The parameters of one optimizer, as they are given: user error for one that is undefined, no leaf of floating-point
/// numbers, or there already.
class GivenParameters {
 public:
  /// `groups`: how many there are; where there are several, errors say in which one.
  GivenParameters(std::string kind, std::size_t groups, Location where)
      : kind_(std::move(kind)), groups_(groups), where_(where) {}
  void add(const Tensor& t, std::size_t group, std::size_t index);
  /// User error where there are none.
  void require_some() const;

 private:
  std::string place(std::size_t group, std::size_t index) const;

  std::string kind_;
  std::size_t groups_;
  Location where_;
  std::map<const graven::detail::TensorImpl*, std::string> places_;
};

}  // namespace graven::optim

namespace graven::lr_scheduler {

/// Of the step that follows `steps` finished ones, where `lr` is the group's own rate. Without a schedule: lr.
double scheduled_rate(const ir::Schedule& schedule, double lr, std::int64_t steps);

struct LRScheduler::State {
  std::shared_ptr<optim::Optimizer::State> optimizer;
  ir::Schedule schedule;
  /// When it was made, by group.
  std::vector<double> first_base_lrs;
  bool sets_base_lr = false;  ///< it, or a part of it, gave the groups those
  std::int64_t steps = 0;
  /// LambdaLR's, by group; none: the schedule's formula.
  std::vector<std::function<double(std::int64_t)>> factors;
  /// By group, after `steps` finished steps.
  std::vector<double> rates() const { return rates_at(steps); }
  std::vector<double> rates_at(std::int64_t after) const;
  void apply() const { set(rates()); }
  /// These many finished steps, and their rates.
  void go_to(std::int64_t after) { set_steps(after, rates_at(after)); }
  void set_steps(std::int64_t after, const std::vector<double>& now) {
    steps = after;
    set(now);
  }
  void set(const std::vector<double>& now) const;
  /// One more; user error where there are no more numbers.
  std::int64_t next_step() const;
};

struct ReduceLROnPlateau::State {
  std::shared_ptr<optim::Optimizer::State> optimizer;
  runtime::Plateau plateau;
  std::vector<double> min_lr;  ///< by group
  runtime::PlateauState now;
  /// As files and programs have it.
  std::map<std::string, double> recorded() const;
};

}  // namespace graven::lr_scheduler

namespace graven::nn {

/// What a graph's state_dict() has of the seed, and of the rates of a parameter group, counted through all optimizers:
/// "lr.0", "initial_lr.0".
inline constexpr std::string_view kSeedEntry = "seed";
inline std::string rate_entry(const char* what, std::size_t group) {
  return std::string(what) + "." + std::to_string(group);
}

/// The number of a checkpoint by that name; none where it has none, or something else, which load_tensors() reports.
inline std::optional<double> number_in(const StateDict& state, const std::string& name) {
  for (const auto& [entry, t] : state)
    if (entry == name && t.defined() && t.sizes().empty() && ir::is_floating(t.dtype())) return t.item<double>();
  return std::nullopt;
}

}  // namespace graven::nn
