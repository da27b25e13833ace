// Learning-rate schedules: closed formulas in double, as PyTorch's schedulers compute them step by step.
//
//   optim::SGD optimizer(model.parameters(), {.lr = 0.1});
//   lr_scheduler::CosineAnnealingLR schedule(optimizer, {.T_max = 1000});
//   for (...) { ...; optimizer.step(); schedule.step(); }          // eager
//   add_optimizer(optimizer, schedule);                            // in a graph, which steps it after each call
//
// Any schedule can start with a warm-up: schedule.warmup(500) raises the rate linearly from a third of itself over the
// first 500 steps. Or one schedule follows another:
//
//   lr_scheduler::SequentialLR schedule(optimizer,
//                                       {lr_scheduler::LinearLR(optimizer, {.start_factor = 0.1, .total_iters = 500}),
//                                        lr_scheduler::CosineAnnealingLR(optimizer, {.T_max = 9500})},
//                                       {500});
//
// An option that is out of its range is a user error with the line that makes the schedule.
//
// ReduceLROnPlateau, which follows a loss and not the number of steps, is a class of its own at the end of this file.
// For the others:
//
// Each step's rate follows from the number of steps before it alone, so what is resumed goes on exactly; an emitted
// program has the same formulas (its runtime/schedule.h).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "graven/optim.h"

namespace graven::lr_scheduler {

enum class Warmup : std::uint8_t { constant, linear };
struct WarmupOptions {
  Warmup method = Warmup::linear;
  double factor = 1.0 / 3;
};

class LRScheduler {
 public:
  /// After the optimizer's step: the rates of the next one. User error within build(): a graph's own schedule advances
  /// with each call.
  void step(Location where = Location::current());
  /// Of the next step, by parameter group.
  std::vector<double> get_last_lr() const;
  /// Steps done.
  std::int64_t last_epoch() const;
  void set_last_epoch(std::int64_t steps, Location where = Location::current());
  /// During the first `iters` steps the rate is lr * factor (constant), or rises linearly from lr * factor to what the
  /// schedule has at step `iters`. The schedule's own clock runs from step 0.
  LRScheduler& warmup(std::int64_t iters, WarmupOptions options = {}, Location where = Location::current());
  /// "last_epoch"; "base_lrs", what the groups start from; the schedule's options by their names, and "milestones"; of
  /// a sequence's parts as "0.gamma".
  nn::StateDict state_dict() const;
  /// Into a schedule of the same class; its optimizer's rates follow. All or nothing, as Optimizer::load_state_dict.
  nn::LoadReport load_state_dict(const nn::StateDict& state, bool strict = true, Location where = Location::current());

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 protected:
  /// With the rates that the groups start from, where the schedule and not the optimizer says so.
  using ScheduleAndRates = std::pair<ir::Schedule, std::vector<double>>;
  LRScheduler(const optim::Optimizer& optimizer, ir::Schedule schedule);
  LRScheduler(const optim::Optimizer& optimizer, ScheduleAndRates schedule);
  /// Factors of the groups' rates by the number of steps done; the schedule is the one that files and programs have.
  LRScheduler(const optim::Optimizer& optimizer, ir::Schedule schedule,
              std::vector<std::function<double(std::int64_t)>> factors, Location where);

 private:
  LRScheduler(const optim::Optimizer& optimizer, ir::Schedule schedule,
              std::vector<std::function<double(std::int64_t)>> factors);
  std::shared_ptr<State> state_;
};

/// lr gamma^floor(t / step_size)
struct StepLROptions {
  std::int64_t step_size = 1;
  double gamma = 0.1;
};
class StepLR : public LRScheduler {
 public:
  StepLR(const optim::Optimizer& optimizer, StepLROptions options, Location where = Location::current());
};

/// lr gamma^(milestones passed)
struct MultiStepLROptions {
  std::vector<std::int64_t> milestones;
  double gamma = 0.1;
};
class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(const optim::Optimizer& optimizer, MultiStepLROptions options, Location where = Location::current());
};

/// lr gamma^t
struct ExponentialLROptions {
  double gamma = 0.1;
};
class ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(const optim::Optimizer& optimizer, ExponentialLROptions options, Location where = Location::current());
};

/// eta_min + (lr - eta_min) (1 + cos(pi t / T_max)) / 2
struct CosineAnnealingLROptions {
  std::int64_t T_max = 1;
  double eta_min = 0;
};
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(const optim::Optimizer& optimizer, CosineAnnealingLROptions options,
                    Location where = Location::current());
};

/// lr (start + (end - start) min(t, total) / total)
struct LinearLROptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total_iters = 5;
};
class LinearLR : public LRScheduler {
 public:
  explicit LinearLR(const optim::Optimizer& optimizer, LinearLROptions options = {},
                    Location where = Location::current());
};

/// lr factor for t < total, then lr
struct ConstantLROptions {
  double factor = 1.0 / 3;
  std::int64_t total_iters = 5;
};
class ConstantLR : public LRScheduler {
 public:
  explicit ConstantLR(const optim::Optimizer& optimizer, ConstantLROptions options = {},
                      Location where = Location::current());
};

/// end + (lr - end) (1 - min(t, n) / n)^power, where n is total and end is end_learning_rate. With cycle the rate falls
/// again and again: n is the first multiple of total that is not below t. The last two options are OneFlow's.
struct PolynomialLROptions {
  std::int64_t total_iters = 5;
  double power = 1;
  double end_learning_rate = 0;
  bool cycle = false;
};
class PolynomialLR : public LRScheduler {
 public:
  explicit PolynomialLR(const optim::Optimizer& optimizer, PolynomialLROptions options = {},
                        Location where = Location::current());
};

/// OneFlow's: lr ((1 - alpha) (1 + cos(pi min(t, decay_steps) / decay_steps)) / 2 + alpha)
struct CosineDecayLROptions {
  std::int64_t decay_steps = 1;
  double alpha = 0;
};
class CosineDecayLR : public LRScheduler {
 public:
  CosineDecayLR(const optim::Optimizer& optimizer, CosineDecayLROptions options, Location where = Location::current());
};

/// eta_min + (lr - eta_min) (1 + cos(pi t / T)) / 2 for T = T_0 steps; then t starts from 0 again, and T is T_mult
/// times as large.
struct CosineAnnealingWarmRestartsOptions {
  std::int64_t T_0 = 1;
  std::int64_t T_mult = 1;
  double eta_min = 0;
};
class CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(const optim::Optimizer& optimizer, CosineAnnealingWarmRestartsOptions options,
                              Location where = Location::current());
};

/// A rate for all parameter groups, or one for each: `0.1`, or `{0.1, 0.01}`.
class GroupRates {
 public:
  GroupRates() = default;
  GroupRates(double rate) : rates_{rate} {}                            // NOLINT: .max_lr = 0.1
  GroupRates(std::initializer_list<double> rates) : rates_(rates) {}   // NOLINT: .max_lr = {0.1, 0.01}
  GroupRates(std::vector<double> rates) : rates_(std::move(rates)) {}  // NOLINT: of as many groups as a program has
  const std::vector<double>& list() const { return rates_; }

 private:
  std::vector<double> rates_;
};

enum class AnnealStrategy : std::uint8_t { cos, linear };
/// One rise from max_lr / div_factor to max_lr in the first pct_start of the steps, and one fall to max_lr / div_factor
/// / final_div_factor, reached in the last step; with three_phase the fall is as long as the rise and leads back to
/// where that began, and the rest goes on down from there. The optimizer's own lr gives way to max_lr / div_factor:
/// that is what --lr of an emitted program sets, and the whole curve with it.
///
/// From step total_steps on the last rate stays, where PyTorch's overshoots by a step and then throws. PyTorch's
/// cycle_momentum does not exist: the optimizer's momentum is a constant of the program, as with cycle_momentum =
/// False.
struct OneCycleLROptions {
  GroupRates max_lr = {};
  std::int64_t total_steps = 0;
  double pct_start = 0.3;
  AnnealStrategy anneal_strategy = AnnealStrategy::cos;
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
};
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(const optim::Optimizer& optimizer, OneCycleLROptions options, Location where = Location::current());
};

enum class CyclicMode : std::uint8_t { triangular, triangular2, exp_range };
/// From base_lr to max_lr in step_size_up steps and back in step_size_down (as many, where it is not given), again and
/// again. triangular2 halves the height of each cycle, exp_range multiplies it by gamma^t. The optimizer's own lr gives
/// way to base_lr: that is what --lr of an emitted program sets, and the whole curve with it, so max_lr / base_lr is
/// one number for all groups.
///
/// As with OneCycleLR there is no cycle_momentum; nor are there functions in place of the three modes (scale_fn).
struct CyclicLROptions {
  GroupRates base_lr = {};
  GroupRates max_lr = {};
  std::int64_t step_size_up = 2000;
  std::optional<std::int64_t> step_size_down = std::nullopt;
  CyclicMode mode = CyclicMode::triangular;
  double gamma = 1;
};
class CyclicLR : public LRScheduler {
 public:
  CyclicLR(const optim::Optimizer& optimizer, CyclicLROptions options, Location where = Location::current());
};

/// The first schedule until step milestones[0], the second from there until milestones[1], and so on. Each counts from
/// its own first step; a warm-up that it has stands there too. What they are is copied: stepping or changing one of
/// them later has no effect on the sequence.
///
/// OneCycleLR and CyclicLR change the rate that every schedule of the optimizer starts from: within a sequence they are
/// made first.
class SequentialLR : public LRScheduler {
 public:
  SequentialLR(const optim::Optimizer& optimizer, const std::vector<LRScheduler>& schedulers,
               const std::vector<std::int64_t>& milestones, Location where = Location::current());
};

/// lr f(t), for a function of the program's own: one for all groups, or one for each.
///
///   lr_scheduler::LambdaLR schedule(optimizer, [](std::int64_t t) { return 1.0 / (1 + 0.01 * t); });
///
/// Eagerly and in graphs of the same program. A file or a project cannot hold the function, but a table of its values:
/// that of the steps 0 to `tabulated_steps` - 1, computed when the schedule is made, one table for all groups. A
/// program that goes on behind it stops with an error; an emitted one is refused before its first step where it is to
/// make more. Without a table, saving and emitting such a graph is an error. It is no part of a SequentialLR and has no
/// warm-up: the function itself may do what they do. state_dict() has the steps, not the function, as PyTorch's has of
/// functions.
struct LambdaLROptions {
  std::int64_t tabulated_steps = 0;  ///< up to 1,000,000
};
class LambdaLR : public LRScheduler {
 public:
  using Function = std::function<double(std::int64_t)>;
  LambdaLR(const optim::Optimizer& optimizer, Function lr_lambda, LambdaLROptions options = {},
           Location where = Location::current());
  /// User error when there are not as many as groups, one is empty, or there is to be a table and they differ in it.
  LambdaLR(const optim::Optimizer& optimizer, std::vector<Function> lr_lambda, LambdaLROptions options = {},
           Location where = Location::current());
};

enum class PlateauMode : std::uint8_t { min, max };
enum class ThresholdMode : std::uint8_t { rel, abs };
struct ReduceLROnPlateauOptions {
  PlateauMode mode = PlateauMode::min;  ///< min: less is better, as of losses; max: more, as of an accuracy
  double factor = 0.1;                  ///< below 1
  std::int64_t patience = 10;           ///< epochs without an improvement that it waits for
  double threshold = 1e-4;              ///< an improvement is by more than this, or than this part of the best
  ThresholdMode threshold_mode = ThresholdMode::rel;
  std::int64_t cooldown = 0;  ///< epochs after a reduction that do not count
  GroupRates min_lr = 0.0;
  double eps = 1e-8;  ///< what a rate must change by at least
};
/// Multiplies the rates by `factor` when a number has not improved for more than `patience` epochs:
///
///   lr_scheduler::ReduceLROnPlateau schedule(optimizer, {.patience = 3});
///   for (...) { ...; schedule.step(validation_loss); }
///
/// With a schedule of the optimizer beside it the reduction stays: the schedule goes on from the reduced rate, as
/// PyTorch's do, eagerly and in a graph. User error in step() beside LambdaLR, OneCycleLR, CyclicLR,
/// CosineAnnealingWarmRestarts and SequentialLR, which set each step's rate anew. A rate that a schedule has at its
/// least (eta_min) is not reduced.
///
/// The optimizer may be a graph's: the graph's next call has the new rate. What is emitted of a graph that was given
/// it, add_optimizer(optimizer, schedule), steps it itself: after each epoch that it evaluates, with the held-out loss,
/// or without a held-out set after each epoch, with the training loss; with PlateauMode::max with the held-out
/// accuracy, and without one it is an error. Its numbers stand in the program's checkpoints.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(const optim::Optimizer& optimizer, ReduceLROnPlateauOptions options = {},
                             Location where = Location::current());
  /// After an epoch, with its loss or accuracy: a number, or a tensor of one element.
  void step(double metric, Location where = Location::current());
  void step(const Tensor& metric, Location where = Location::current());
  std::vector<double> get_last_lr() const;
  double best() const;
  std::int64_t num_bad_epochs() const;
  std::int64_t last_epoch() const;
  bool in_cooldown() const;
  /// "best", "num_bad_epochs", "cooldown_counter", "last_epoch". The rates are the optimizer's own state.
  nn::StateDict state_dict() const;
  nn::LoadReport load_state_dict(const nn::StateDict& state, bool strict = true, Location where = Location::current());

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace graven::lr_scheduler
