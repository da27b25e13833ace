// ReduceLROnPlateau of torch.optim.lr_scheduler: learning rates that fall when a number has not improved for some time.
//
//   Plateau plateau{.factor = 0.1, .patience = 3};
//   PlateauState state;
//   if (plateau.sees(state, held_out_loss)) lr = plateau.reduced(schedule, lr, min_lr, steps_done);   // after an epoch
//
// The numbers are those of PyTorch's, in double and in its order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "schedule.h"

namespace graven::runtime {

struct PlateauState {
  bool has_best = false;        ///< there was a number that is better than none
  double best = 0;              ///< of those seen
  std::int64_t bad_epochs = 0;  ///< without an improvement, since the last one or the last reduction
  std::int64_t cooldown = 0;    ///< epochs that are still not to count
  std::int64_t epochs = 0;      ///< seen
};

struct Plateau {
  bool max = false;  ///< more is better, as of an accuracy; otherwise less, as of a loss
  double factor = 0.1;
  std::int64_t patience = 10;  ///< epochs without an improvement that it waits for
  double threshold = 1e-4;     ///< an improvement is by more than this part of the best,
  bool absolute = false;       ///< or by more than this
  std::int64_t cooldown = 0;   ///< epochs after a reduction that do not count
  double eps = 1e-8;           ///< what a rate must change by at least

  /// After an epoch, with its number: whether the rates are to be reduced.
  bool sees(PlateauState& state, double number) const {
    ++state.epochs;
    if (is_better(state, number)) {
      state.has_best = true;
      state.best = number;
      state.bad_epochs = 0;
    } else {
      ++state.bad_epochs;
    }
    if (state.cooldown > 0) {
      --state.cooldown;
      state.bad_epochs = 0;
    }
    if (state.bad_epochs <= patience) return false;
    state.cooldown = cooldown;
    state.bad_epochs = 0;
    return true;
  }

  /// What a schedule is to start from instead of `lr`, `steps` steps being done, so that it goes on from the reduced
  /// rate, as PyTorch's, which multiply the rate that they find: it is a straight line in what it starts from. What it
  /// has at its least, its eta_min, is not reduced.
  double reduced(const Schedule& schedule, double lr, double min_lr, std::int64_t steps) const {
    if (schedule.kind == Schedule::Kind::none && schedule.warmup == Schedule::Warmup::none) {
      const double next = std::max(lr * factor, min_lr);
      return lr - next > eps ? next : lr;
    }
    const double rate = schedule.learning_rate(lr, steps), least = schedule.learning_rate(0, steps),
                 slope = schedule.learning_rate(1, steps) - least, next = std::max({rate * factor, min_lr, least});
    return rate - next > eps && slope > 0 ? (next - least) / slope : lr;
  }

 private:
  bool is_better(const PlateauState& state, double number) const {
    const double none = std::numeric_limits<double>::infinity(), best = state.has_best ? state.best
                                                                        : max          ? -none
                                                                                       : none;
    if (absolute) return max ? number > best + threshold : number < best - threshold;
    return max ? number > best * (1 + threshold) : number < best * (1 - threshold);
  }
};

}  // namespace graven::runtime
