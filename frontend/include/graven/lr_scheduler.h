// Learning-rate schedules: closed formulas in double, as PyTorch's schedulers compute them step by step.
//
//   optim::SGD optimizer(model.parameters(), {.lr = 0.1});
//   lr_scheduler::CosineAnnealingLR schedule(optimizer, {.T_max = 1000});
//   for (...) { ...; optimizer.step(); schedule.step(); }          // eager
//   add_optimizer(optimizer, schedule);                            // in a graph, which steps it after each call
//
// Any schedule can start with a warm-up: schedule.warmup(500) raises the rate linearly from a third of itself over the first 500 steps.
#pragma once

#include <cstdint>
#include <memory>
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
  /// After the optimizer's step: the rates of the next one.
  void step();
  /// Of the next step, by parameter group.
  std::vector<double> get_last_lr() const;
  /// Steps done.
  std::int64_t last_epoch() const;
  void set_last_epoch(std::int64_t steps);
  /// During the first `iters` steps the rate is lr * factor (constant), or rises linearly from lr * factor to what the schedule has at step
  /// `iters`. The schedule's own clock runs from step 0.
  LRScheduler& warmup(std::int64_t iters, WarmupOptions options = {});

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 protected:
  LRScheduler(const optim::Optimizer& optimizer, ir::Schedule schedule);

 private:
  std::shared_ptr<State> state_;
};

/// lr gamma^floor(t / step_size)
struct StepLROptions {
  std::int64_t step_size = 1;
  double gamma = 0.1;
};
class StepLR : public LRScheduler {
 public:
  StepLR(const optim::Optimizer& optimizer, StepLROptions options);
};

/// lr gamma^(milestones passed)
struct MultiStepLROptions {
  std::vector<std::int64_t> milestones;
  double gamma = 0.1;
};
class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(const optim::Optimizer& optimizer, MultiStepLROptions options);
};

/// lr gamma^t
struct ExponentialLROptions {
  double gamma = 0.1;
};
class ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(const optim::Optimizer& optimizer, ExponentialLROptions options);
};

/// eta_min + (lr - eta_min) (1 + cos(pi t / T_max)) / 2
struct CosineAnnealingLROptions {
  std::int64_t T_max = 1;
  double eta_min = 0;
};
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(const optim::Optimizer& optimizer, CosineAnnealingLROptions options);
};

/// lr (start + (end - start) min(t, total) / total)
struct LinearLROptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total_iters = 5;
};
class LinearLR : public LRScheduler {
 public:
  explicit LinearLR(const optim::Optimizer& optimizer, LinearLROptions options = {});
};

/// lr factor for t < total, then lr
struct ConstantLROptions {
  double factor = 1.0 / 3;
  std::int64_t total_iters = 5;
};
class ConstantLR : public LRScheduler {
 public:
  explicit ConstantLR(const optim::Optimizer& optimizer, ConstantLROptions options = {});
};

/// lr (1 - min(t, total) / total)^power
struct PolynomialLROptions {
  std::int64_t total_iters = 5;
  double power = 1;
};
class PolynomialLR : public LRScheduler {
 public:
  explicit PolynomialLR(const optim::Optimizer& optimizer, PolynomialLROptions options = {});
};

}  // namespace graven::lr_scheduler
