// fold_batch_norm, plain loops: the weight [channels,inner] and bias of a layer with the batch normalisation behind it.
// An absent gamma is 1, an absent bias or beta 0. Everything is computed in double.
//
//   reference::fold_batch_norm(config, new_weight, new_bias, weight, bias, gamma, beta, mean, var);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/fold_batch_norm.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// scale = gamma / sqrt(var + eps), new_weight = weight * scale, new_bias = (bias - mean) * scale + beta.
template <class T>
void fold_batch_norm(const fold_batch_norm_config& config, T* new_weight, plain_t<T>* new_bias,
                     const plain_t<T>* weight, const plain_t<T>* bias, const plain_t<T>* gamma, const plain_t<T>* beta,
                     const plain_t<T>* mean, const plain_t<T>* var) {
  for (std::int64_t c = 0; c < config.channels; ++c) {
    const double factor = gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0;
    const double offset = bias != nullptr ? static_cast<double>(bias[c]) : 0.0;
    const double shift = beta != nullptr ? static_cast<double>(beta[c]) : 0.0;
    const double scale = factor / std::sqrt(static_cast<double>(var[c]) + config.eps);
    for (std::int64_t i = c * config.inner; i < (c + 1) * config.inner; ++i)
      new_weight[i] = static_cast<T>(static_cast<double>(weight[i]) * scale);
    if (new_bias != nullptr) new_bias[c] = static_cast<T>((offset - static_cast<double>(mean[c])) * scale + shift);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
