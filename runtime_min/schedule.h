// Learning-rate schedules: the closed formulas of torch.optim.lr_scheduler, computed in double from the number of steps
// done so far, so that a resumed run needs no history.
//
//   Schedule schedule{.kind = Schedule::Kind::cosine, .T_max = 10000};
//   schedule.learning_rate(0.1, 0);       // 0.1: the first step
//   schedule.learning_rate(0.1, 10000);   // eta_min
//
// One step is one update of the weights. A linear or constant warm-up may stand in front of any of them. Powers and
// cosines are sums and products here: those of C libraries differ in the last bit, and so would two trainings.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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
    cosine_warm_restarts,  ///< CosineAnnealingWarmRestarts: the same over T_0 steps, then anew over T_0 T_mult, T_0
                           ///< T_mult^2, ...
    cosine_decay,  ///< CosineDecayLR: lr ((1 - alpha) (1 + cos(pi min(t, decay_steps) / decay_steps)) / 2 + alpha)
    polynomial,    ///< PolynomialLR: end + (lr - end) (1 - min(t, n) / n)^power, end = end_learning_rate, n =
                   ///< total_iters; with cycle, n is the first multiple of total_iters that is not below t
    one_cycle,    ///< OneCycleLR: from lr to lr div_factor, then down to lr / final_div_factor at step total_steps - 1,
                  ///< and there it stays
    triangular,   ///< CyclicLR: from lr to lr max_factor in step_size_up steps, back in step_size_down, again and again
    triangular2,  ///< the same, each cycle half as high as the one before
    exp_range,    ///< the same, the height above lr times gamma^t
    table,        ///< LambdaLR's function, tabulated: lr factors[t]
    sequential,   ///< SequentialLR: parts[0], from step milestones[0] on parts[1], ...; each counts from its own first
                  ///< step
  };
  enum class Warmup : std::uint8_t { none, constant, linear };

  Kind kind = Kind::none;
  double factor = 1.0 / 3;             ///< constant
  double start_factor = 1.0 / 3;       ///< linear
  double end_factor = 1;               ///< linear
  double gamma = 0.1;                  ///< step, multi_step, exponential, exp_range
  double eta_min = 0;                  ///< cosine, cosine_warm_restarts
  double alpha = 0;                    ///< cosine_decay
  double power = 1;                    ///< polynomial
  double end_learning_rate = 0;        ///< polynomial
  double div_factor = 25;              ///< one_cycle
  double final_div_factor = 1e4;       ///< one_cycle
  double pct_start = 0.3;              ///< one_cycle: the part of total_steps in which the rate rises
  double max_factor = 1;               ///< triangular, triangular2, exp_range
  std::int64_t total_iters = 5;        ///< constant, linear, polynomial
  std::int64_t step_size = 1;          ///< step
  std::int64_t T_max = 1;              ///< cosine
  std::int64_t T_0 = 1;                ///< cosine_warm_restarts
  std::int64_t T_mult = 1;             ///< cosine_warm_restarts
  std::int64_t decay_steps = 1;        ///< cosine_decay
  std::int64_t total_steps = 1;        ///< one_cycle
  std::int64_t step_size_up = 2000;    ///< triangular, triangular2, exp_range
  std::int64_t step_size_down = 2000;  ///< triangular, triangular2, exp_range
  bool cycle = false;                  ///< polynomial
  bool anneal_linear = false;          ///< one_cycle: straight lines; otherwise half waves of a cosine
  bool three_phase = false;            ///< one_cycle: back to lr in as many steps as it rose, and from there to the end
  /// multi_step: one that stands twice counts twice; sequential: one fewer than parts.
  std::vector<std::int64_t> milestones{};
  std::vector<Schedule> parts{};  ///< sequential
  std::vector<double> factors{};  ///< table: of the steps that there are

  /// During the first warmup_iters steps the schedule's rate is replaced: constant: lr warmup_factor; linear: from lr
  /// warmup_factor up to the rate that the schedule has when the warm-up ends. The schedule's own clock runs from step
  /// 0, warm-up included.
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

  /// Of so many steps, from the first on, it knows the rates: a table ends, also within a sequence.
  std::int64_t covered_steps() const {
    constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    if (kind == Kind::table) return static_cast<std::int64_t>(factors.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const std::int64_t start = p == 0 ? 0 : milestones[p - 1], covered = parts[p].covered_steps();
      if (covered < (p < milestones.size() ? milestones[p] : kAll) - start) return start + covered;
    }
    return kAll;
  }
  /// Whether it knows the rate of the step that follows `t` finished steps.
  bool covers(std::int64_t t) const { return t < covered_steps(); }

  /// Sets the length of a schedule that has one (T_max, total_iters, decay_steps, total_steps); false when it has none.
  /// A sequence has its last part's, less the steps before it.
  bool set_length(std::int64_t steps) {
    switch (kind) {
      case Kind::cosine:
        T_max = steps;
        return true;
      case Kind::constant:
      case Kind::linear:
      case Kind::polynomial:
        total_iters = steps;
        return true;
      case Kind::cosine_decay:
        decay_steps = steps;
        return true;
      case Kind::one_cycle:
        total_steps = steps;
        return true;
      case Kind::sequential:
        return steps > start_of_last_part() &&
               parts.back().set_length(steps - (milestones.empty() ? 0 : milestones.back()));
      default:
        return false;
    }
  }

  /// The step where a sequence's last part begins, or in that, if it is a sequence, the last of all; otherwise 0.
  std::int64_t start_of_last_part() const {
    if (kind != Kind::sequential) return 0;
    return (milestones.empty() ? 0 : milestones.back()) + parts.back().start_of_last_part();
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
        return total_iters == 0 ? lr * end_factor
                                : lr * (start_factor + (end_factor - start_factor) * std::min(steps, total) / total);
      case Kind::step:
        return lr * power_of(gamma, t / step_size);
      case Kind::multi_step: {
        const auto passed = std::count_if(milestones.begin(), milestones.end(), [t](std::int64_t m) { return m <= t; });
        return lr * power_of(gamma, passed);
      }
      case Kind::exponential:
        return lr * power_of(gamma, t);
      case Kind::cosine:
        return eta_min + (lr - eta_min) * half_wave(steps, static_cast<double>(T_max));
      case Kind::cosine_warm_restarts: {
        double length = static_cast<double>(T_0), at = T_mult == 1 ? std::fmod(steps, length) : steps;
        for (; at >= length; length *= static_cast<double>(T_mult)) at -= length;
        return eta_min + (lr - eta_min) * half_wave(at, length);
      }
      case Kind::cosine_decay: {
        const double n = static_cast<double>(decay_steps);
        return lr * ((1 - alpha) * half_wave(std::min(steps, n), n) + alpha);
      }
      case Kind::polynomial: {
        if (total_iters == 0) return end_learning_rate;
        const double n = cycle ? total * std::max(1.0, std::ceil(steps / total)) : total;
        return end_learning_rate + (lr - end_learning_rate) * power_of(1 - std::min(steps, n) / n, power);
      }
      case Kind::one_cycle:
        return one_cycle(lr, steps);
      case Kind::triangular:
        return lr + triangle(lr, steps);
      case Kind::triangular2:
        return lr + triangle(lr, steps) * power_of(0.5, t / (step_size_up + step_size_down));
      case Kind::exp_range:
        return lr + triangle(lr, steps) * power_of(gamma, t);
      case Kind::table:
        return lr * factors[static_cast<std::size_t>(std::min(t, static_cast<std::int64_t>(factors.size()) - 1))];
      case Kind::sequential: {
        const auto next = std::upper_bound(milestones.begin(), milestones.end(), t);
        const std::int64_t start = next == milestones.begin() ? 0 : *std::prev(next);
        return parts[static_cast<std::size_t>(next - milestones.begin())].learning_rate(lr, t - start);
      }
    }
    return lr;
  }

  double one_cycle(double lr, double t) const {
    const double total = static_cast<double>(total_steps), peak = lr * div_factor, end = lr / final_div_factor;
    const double top = pct_start * total - 1,
                 last = total - 1;  // the rate turns there; as in PyTorch, `top` may lie between two steps
    t = std::min(t, last);
    if (t <= top) return anneal(lr, peak, t, top);
    if (!three_phase) return anneal(peak, end, t - top, last - top);
    const double back = 2 * pct_start * total - 2;
    return t <= back ? anneal(peak, lr, t - top, back - top) : anneal(lr, end, t - back, last - back);
  }

  /// The rate after `t` of the `length` steps that lead from the rate `from` to the rate `to`.
  double anneal(double from, double to, double t, double length) const {
    if (length <= 0) return to;
    return anneal_linear ? from + (to - from) * (t / length) : to + (from - to) * half_wave(t, length);
  }

  /// The height above lr of a cycle that rises to lr max_factor.
  double triangle(double lr, double t) const {
    const double up = static_cast<double>(step_size_up), down = static_cast<double>(step_size_down),
                 at = std::fmod(t, up + down);
    return lr * (max_factor - 1) * (at <= up ? at / up : (up + down - at) / down);
  }

  /// Half a wave of a cosine: from 1 at t = 0 down to 0 at t = length.
  static double half_wave(double t, double length) { return (1 + cosine_of(t / length)) / 2; }

  /// cos(pi x), x >= 0.
  static double cosine_of(double x) {
    x = std::fmod(x, 2.0);
    if (x > 1) x = 2 - x;
    if (x > 0.5) return -cosine_of(1 - x);
    // Of the half of the quadrant that is nearer to 0, the series of the cosine, of the other one that of the sine.
    const bool is_sine = x > 0.25;
    const double a = std::numbers::pi * (is_sine ? 0.5 - x : x);
    double sum = 0, term = is_sine ? a : 1;
    for (int n = is_sine ? 2 : 1; n < 20; n += 2) {
      sum += term;
      term *= -a * a / (n * (n + 1));
    }
    return sum;
  }

  /// x^n, n >= 0.
  static double power_of(double x, std::int64_t n) {
    double result = 1;
    for (; n > 0; n >>= 1, x *= x)
      if ((n & 1) != 0) result *= x;
    return result;
  }
  /// x^y, x >= 0, y >= 0.
  static double power_of(double x, double y) {
    if (y == std::floor(y) && y < 1e15) return power_of(x, static_cast<std::int64_t>(y));
    if (x == 0) return 0;
    int exponent = 0;
    const double m = std::frexp(x, &exponent), s = (m - 1) / (m + 1);  // log(m) = 2 artanh(s)
    double artanh = 0, odd_power = s;
    for (int n = 1; n < 60; n += 2, odd_power *= s * s) artanh += odd_power / n;
    const double t = y * (exponent + 2 * artanh / std::numbers::ln2), whole = std::floor(t + 0.5),
                 r = (t - whole) * std::numbers::ln2;
    double sum = 0, term = 1;
    for (int n = 1; n < 20; ++n) {
      sum += term;
      term *= r / n;
    }
    return whole < -1100 ? 0 : std::ldexp(sum, static_cast<int>(whole));
  }
};

}  // namespace graven::runtime
