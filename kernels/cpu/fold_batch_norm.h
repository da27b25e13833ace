// fold_batch_norm: the weight [channels,inner] and bias of a layer with the batch normalisation behind it, f32.
//
//   scale = gamma / sqrt(var + eps),   new_weight = weight * scale,   new_bias = (bias - mean) * scale + beta
//
//   // a convolution of 3 to 32 channels, 3x3
//   inline constexpr fold_batch_norm_config fold{.channels = 32, .inner = 27};
//   fold_batch_norm(threads, fold, new_weight, new_bias, weight, bias, gamma, beta, mean, var);
//
// All but the weights are [channels]; an absent gamma is 1, an absent bias or beta 0. The factors are computed in
// double, since every result of the layer is multiplied by them. new_weight may be weight.
#pragma once

#include <cstdint>

#include "../config/fold_batch_norm.h"
#include "level.h"
#include "threads.h"
#include "window.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

inline void fold_batch_norm(Threads& threads, const fold_batch_norm_config& config, float* new_weight, float* new_bias,
                            const float* weight, const float* bias, const float* gamma, const float* beta,
                            const float* mean, const float* var) {
  constexpr std::int64_t kPiece = 8192;
  const std::int64_t channels = config.channels, inner = config.inner;
  const std::int64_t rows = inner < kPiece ? kPiece / window::larger(inner, 1) : 1;
  threads.run((channels + rows - 1) / rows, [&](std::int64_t piece) {
    for (std::int64_t c = piece * rows; c < window::smaller(channels, (piece + 1) * rows); ++c) {
      const double scale = (gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0) /
                           __builtin_sqrt(static_cast<double>(var[c]) + config.eps);
      if (new_bias != nullptr) {
        const double shift = (bias != nullptr ? static_cast<double>(bias[c]) : 0.0) - static_cast<double>(mean[c]);
        new_bias[c] = static_cast<float>(shift * scale + (beta != nullptr ? static_cast<double>(beta[c]) : 0.0));
      }
      const float factor = static_cast<float>(scale);
      const float* const from = weight + c * inner;
      float* const to = new_weight + c * inner;
      GRAVEN_INDEPENDENT
      for (std::int64_t i = 0; i < inner; ++i) to[i] = from[i] * factor;
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
