// Adafactor as plain loops over any float type: what kernels/cpu/adafactor.h says, sums one after the other.
//
//   reference::adafactor(config, count, params, grads, row_vars, col_vars, variances, sizes, lr, step);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/adafactor.h"
#include "../cpu/dtype.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void adafactor(const adafactor_config& config, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
               plain_t<T>* const* row_vars, plain_t<T>* const* col_vars, plain_t<T>* const* variances,
               const std::int64_t* sizes, double lr, std::int64_t step) {
  using C = compute_t<T>;
  if (step == 0) return;
  const C weight = static_cast<C>(std::pow(static_cast<double>(step), config.beta2_decay));
  /// From the nearer one: in the first step the weight is 1.
  const auto move = [&](T& mean, double to) {
    const C old = static_cast<C>(mean), square = static_cast<C>(to);
    mean = static_cast<T>(weight < C(0.5) ? old + weight * (square - old) : square - (1 - weight) * (square - old));
  };
  const double eps1 = config.eps1;
  for (std::int64_t t = 0; t < count; ++t) {
    const adafactor_shape shape(sizes + 3 * t);
    const std::int64_t numel = shape.numel();
    if (numel == 0) continue;
    const bool factored = row_vars != nullptr && row_vars[t] != nullptr;
    T* const p = params[t];
    const T* const grad = grads[t];
    const auto square = [&](std::int64_t i) {
      return static_cast<double>(static_cast<C>(grad[i])) * static_cast<double>(static_cast<C>(grad[i]));
    };

    double of_parameter = 0;
    for (std::int64_t i = 0; i < numel; ++i)
      of_parameter += static_cast<double>(static_cast<C>(p[i])) * static_cast<double>(static_cast<C>(p[i]));
    if (!factored)
      for (std::int64_t i = 0; i < numel; ++i) move(variances[t][i], square(i));
    else
      for (std::int64_t matrix = 0; matrix < shape.matrices; ++matrix) {
        const std::int64_t begin = matrix * shape.rows * shape.columns;
        for (std::int64_t r = 0; r < shape.rows; ++r) {
          double sum = 0;
          for (std::int64_t c = 0; c < shape.columns; ++c) sum += square(begin + r * shape.columns + c);
          move(row_vars[t][matrix * shape.rows + r], sum / static_cast<double>(shape.columns));
        }
        for (std::int64_t c = 0; c < shape.columns; ++c) {
          double sum = 0;
          for (std::int64_t r = 0; r < shape.rows; ++r) sum += square(begin + r * shape.columns + c);
          move(col_vars[t][matrix * shape.columns + c], sum / static_cast<double>(shape.rows));
        }
      }

    /// The gradients of a matrix's row over the roots of the estimated means of their squares: what(element, change).
    const auto for_changes = [&](const auto& what) {
      for (std::int64_t matrix = 0; matrix < shape.matrices; ++matrix) {
        double mean = 0;
        for (std::int64_t r = 0; factored && r < shape.rows; ++r)
          mean += static_cast<double>(static_cast<C>(row_vars[t][matrix * shape.rows + r]));
        mean /= static_cast<double>(shape.rows);
        if (mean < eps1) mean = eps1;
        for (std::int64_t r = 0; r < shape.rows; ++r)
          for (std::int64_t c = 0; c < shape.columns; ++c) {
            const std::int64_t row = matrix * shape.rows + r, i = row * shape.columns + c;
            C estimate = factored ? static_cast<C>(static_cast<double>(static_cast<C>(row_vars[t][row])) / mean) *
                                        static_cast<C>(col_vars[t][matrix * shape.columns + c])
                                  : static_cast<C>(variances[t][i]);
            const C least = static_cast<C>(eps1 * eps1);
            if (estimate < least) estimate = least;
            what(i, static_cast<C>(grad[i]) / std::sqrt(estimate));
          }
      }
    };
    double of_changes = 0;
    for_changes([&](std::int64_t, C u) { of_changes += static_cast<double>(u) * static_cast<double>(u); });

    const double size = static_cast<double>(numel);
    const double rms_parameter = std::sqrt(of_parameter / size), rms_changes = std::sqrt(of_changes / size) / config.d;
    const double rho = 1 / std::sqrt(static_cast<double>(step)) < lr ? 1 / std::sqrt(static_cast<double>(step)) : lr;
    double length = rho * (rms_parameter > config.eps2 ? rms_parameter : config.eps2);
    length /= rms_changes > 1 ? rms_changes : 1;
    if (config.maximize) length = -length;
    const C shrink = static_cast<C>(1 - lr * config.weight_decay);
    for_changes([&](std::int64_t i, C u) {
      p[i] = static_cast<T>(static_cast<C>(p[i]) * shrink - static_cast<C>(length) * u);
    });
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
