// batch_norm, plain loops: normalisation of x [outer,channels,inner] for each channel, and its gradient. Formulas:
// config/batch_norm.h and at each function. gamma, beta, the running statistics, mean and rstd are [channels]; an
// absent gamma is 1, an absent beta 0. Sums run in double.
//
//   reference::batch_norm(config, y, mean, rstd, new_running_mean, new_running_var, x, gamma, beta, running_mean,
//                         running_var);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/batch_norm.h"
#include "../cpu/check_value.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// Training: normalises with the batch's statistics; of 1 value a channel they are a value_error. The new running
/// statistics are written where they and the old ones are given.
template <class T>
void batch_norm(const batch_norm_config& config, T* y, plain_t<T>* mean, plain_t<T>* rstd, plain_t<T>* new_running_mean,
                plain_t<T>* new_running_var, const plain_t<T>* x, const plain_t<T>* gamma, const plain_t<T>* beta,
                const plain_t<T>* running_mean, const plain_t<T>* running_var) {
  check_has_variance("batch_norm", config.outer * config.inner);
  const double count = static_cast<double>(config.outer * config.inner);
  for (std::int64_t c = 0; c < config.channels; ++c) {
    const auto at = [&](std::int64_t o, std::int64_t i) { return (o * config.channels + c) * config.inner + i; };
    double sum = 0, squares = 0;
    for (std::int64_t o = 0; o < config.outer; ++o)
      for (std::int64_t i = 0; i < config.inner; ++i) sum += static_cast<double>(x[at(o, i)]);
    const double m = sum / count;
    for (std::int64_t o = 0; o < config.outer; ++o)
      for (std::int64_t i = 0; i < config.inner; ++i) {
        const double d = static_cast<double>(x[at(o, i)]) - m;
        squares += d * d;
      }
    const double r = 1.0 / std::sqrt(squares / count + config.eps);
    const double scale = r * (gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0);
    const double shift = beta != nullptr ? static_cast<double>(beta[c]) : 0.0;
    for (std::int64_t o = 0; o < config.outer; ++o)
      for (std::int64_t i = 0; i < config.inner; ++i)
        y[at(o, i)] = static_cast<T>((static_cast<double>(x[at(o, i)]) - m) * scale + shift);
    if (mean != nullptr) mean[c] = static_cast<T>(m);
    if (rstd != nullptr) rstd[c] = static_cast<T>(r);
    if (new_running_mean != nullptr && running_mean != nullptr)
      new_running_mean[c] =
          static_cast<T>((1.0 - config.momentum) * static_cast<double>(running_mean[c]) + config.momentum * m);
    if (new_running_var != nullptr && running_var != nullptr)
      new_running_var[c] = static_cast<T>((1.0 - config.momentum) * static_cast<double>(running_var[c]) +
                                          config.momentum * (squares / (count - 1.0)));
  }
}

/// Inference: y = (x - mean) / sqrt(var + eps) * gamma + beta with given statistics.
template <class T>
void batch_norm_inference(const batch_norm_config& config, T* y, const plain_t<T>* x, const plain_t<T>* gamma,
                          const plain_t<T>* beta, const plain_t<T>* mean, const plain_t<T>* var) {
  for (std::int64_t o = 0; o < config.outer; ++o)
    for (std::int64_t c = 0; c < config.channels; ++c) {
      const double scale = (gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0) /
                           std::sqrt(static_cast<double>(var[c]) + config.eps);
      const double shift = beta != nullptr ? static_cast<double>(beta[c]) : 0.0;
      for (std::int64_t i = 0; i < config.inner; ++i) {
        const std::int64_t at = (o * config.channels + c) * config.inner + i;
        y[at] = static_cast<T>((static_cast<double>(x[at]) - static_cast<double>(mean[c])) * scale + shift);
      }
    }
}

/// dbeta = sum dy; dgamma = sum dy * (x - mean) * rstd;
/// dx = gamma * rstd * (dy - dbeta / count - (x - mean) * rstd * dgamma / count), count = outer * inner.
template <class T>
void batch_norm_backward(const batch_norm_config& config, T* dx, plain_t<T>* dgamma, plain_t<T>* dbeta,
                         const plain_t<T>* dy, const plain_t<T>* x, const plain_t<T>* gamma, const plain_t<T>* mean,
                         const plain_t<T>* rstd) {
  const double count = static_cast<double>(config.outer * config.inner);
  for (std::int64_t c = 0; c < config.channels; ++c) {
    const auto at = [&](std::int64_t o, std::int64_t i) { return (o * config.channels + c) * config.inner + i; };
    const double m = static_cast<double>(mean[c]), r = static_cast<double>(rstd[c]);
    double sum = 0, products = 0;
    for (std::int64_t o = 0; o < config.outer; ++o)
      for (std::int64_t i = 0; i < config.inner; ++i) {
        sum += static_cast<double>(dy[at(o, i)]);
        products += static_cast<double>(dy[at(o, i)]) * (static_cast<double>(x[at(o, i)]) - m) * r;
      }
    const double scale = r * (gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0);
    for (std::int64_t o = 0; o < config.outer; ++o)
      for (std::int64_t i = 0; i < config.inner; ++i) {
        const double normalised = (static_cast<double>(x[at(o, i)]) - m) * r;
        dx[at(o, i)] =
            static_cast<T>(scale * (static_cast<double>(dy[at(o, i)]) - sum / count - normalised * products / count));
      }
    if (dgamma != nullptr) dgamma[c] = static_cast<T>(products);
    if (dbeta != nullptr) dbeta[c] = static_cast<T>(sum);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
