// Learning-rate schedules: the closed formulas of torch.optim.lr_scheduler, computed in double from the number of steps done so far, so that
// a resumed run needs no history.
//
//   Schedule schedule{.kind = Schedule::Kind::cosine, .T_max = 10000};
//   schedule.learning_rate(0.1, 0);       // 0.1: the first step
//   schedule.learning_rate(0.1, 10000);   // eta_min
//
// One step is one update of the weights. A linear or constant warm-up may stand in front of any of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace graven::runtime {

struct Schedule {
  enum class Kind : std::uint8_t {
    none,         ///< lr
    constant,     ///< ConstantLR: lr factor until total_iters, then lr
    linear,       ///< LinearLR: lr (start_factor + (end_factor - start_factor) min(t, total_iters) / total_iters)
    step,         ///< StepLR: lr gamma^floor(t / step_size)
    multi_step,   ///< MultiStepLR: lr gamma^(number of milestones <= t)
    exponential,  ///< ExponentialLR: lr gamma^t
    cosine,       ///< CosineAnnealingLR: eta_min + (lr - eta_min) (1 + cos(pi t / T_max)) / 2
    polynomial,   ///< PolynomialLR: lr (1 - min(t, total_iters) / total_iters)^power
  };
  enum class Warmup : std::uint8_t { none, constant, linear };

  Kind kind = Kind::none;
  double factor = 1.0 / 3;                 ///< constant
  double start_factor = 1.0 / 3;           ///< linear
  double end_factor = 1;                   ///< linear
  double gamma = 0.1;                      ///< step, multi_step, exponential
  double eta_min = 0;                      ///< cosine
  double power = 1;                        ///< polynomial
  std::int64_t total_iters = 5;            ///< constant, linear, polynomial
  std::int64_t step_size = 1;              ///< step
  std::int64_t T_max = 1;                  ///< cosine
  std::vector<std::int64_t> milestones{};  ///< multi_step; a milestone that stands twice counts twice

  /// During the first warmup_iters steps the schedule's rate is replaced: constant: lr warmup_factor; linear: from lr warmup_factor up to the
  /// rate that the schedule has when the warm-up ends. The schedule's own clock runs from step 0, warm-up included.
  Warmup warmup = Warmup::none;
  double warmup_factor = 1.0 / 3;
  std::int64_t warmup_iters = 0;

  /// The rate of the step that follows `t` finished steps; t = 0 is the first.
  double learning_rate(double lr, std::int64_t t) const {
    if (warmup == Warmup::none || t >= warmup_iters) return scheduled(lr, t);
    if (warmup == Warmup::constant) return lr * warmup_factor;
    const double start = lr * warmup_factor, end = scheduled(lr, warmup_iters);
    return start + (end - start) * (static_cast<double>(t) / static_cast<double>(warmup_iters));
  }

  /// Sets the length of a schedule that has one (T_max or total_iters); false when it has none.
  bool set_length(std::int64_t steps) {
    if (kind == Kind::cosine) {
      T_max = steps;
    } else if (kind == Kind::constant || kind == Kind::linear || kind == Kind::polynomial) {
      total_iters = steps;
    } else {
      return false;
    }
    return true;
  }

 private:
  double scheduled(double lr, std::int64_t t) const {
    const double steps = static_cast<double>(t), total = static_cast<double>(total_iters);
    switch (kind) {
      case Kind::none:
        return lr;
      case Kind::constant:
        return t < total_iters ? lr * factor : lr;
      case Kind::linear:
        return total_iters == 0 ? lr * end_factor : lr * (start_factor + (end_factor - start_factor) * std::min(steps, total) / total);
      case Kind::step:
        return lr * std::pow(gamma, static_cast<double>(t / step_size));
      case Kind::multi_step: {
        const auto passed = std::count_if(milestones.begin(), milestones.end(), [t](std::int64_t m) { return m <= t; });
        return lr * std::pow(gamma, static_cast<double>(passed));
      }
      case Kind::exponential:
        return lr * std::pow(gamma, steps);
      case Kind::cosine:
        return eta_min + (lr - eta_min) * (1 + std::cos(std::numbers::pi * steps / static_cast<double>(T_max))) / 2;
      case Kind::polynomial:
        return total_iters == 0 ? 0 : lr * std::pow(1 - std::min(steps, total) / total, power);
    }
    return lr;
  }
};

}  // namespace graven::runtime
