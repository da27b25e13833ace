// Linear layers whose weights are updated as their gradients are computed: linear's sizes and an optimizer's options.
#pragma once

#include <cstdint>

#include "adam.h"
#include "linear.h"
#include "sgd.h"

namespace graven::kernels {

struct linear_sgd_config {
  std::int64_t m;  ///< rows of x and dy: the batch
  std::int64_t n;  ///< rows of the weight: out_features
  std::int64_t k;  ///< columns of the weight: in_features
  /// The weight is [n, k, taps]: dw belongs to the tap `tap`, and the gradients of the others are 0.
  std::int64_t taps;
  std::int64_t tap;  ///< 0 where taps is 1
  double momentum;   ///< this and what follows: as in sgd_config
  double dampening;
  double weight_decay;
  bool nesterov;
  bool maximize;

  constexpr linear_config linear() const { return {.m = m, .n = n, .k = k}; }
  constexpr sgd_config update() const {
    return {.momentum = momentum,
            .dampening = dampening,
            .weight_decay = weight_decay,
            .nesterov = nesterov,
            .maximize = maximize};
  }
};

struct linear_adam_config {
  std::int64_t m;  ///< rows of x and dy: the batch
  std::int64_t n;  ///< rows of the weight: out_features
  std::int64_t k;  ///< columns of the weight: in_features
  /// The weight is [n, k, taps]: dw belongs to the tap `tap`, and the gradients of the others are 0.
  std::int64_t taps;
  std::int64_t tap;  ///< 0 where taps is 1
  double beta1;      ///< this and what follows: as in adam_config
  double beta2;
  double eps;
  double weight_decay;
  bool decoupled;
  bool amsgrad;
  bool maximize;
  bool do_bias_correction;

  constexpr linear_config linear() const { return {.m = m, .n = n, .k = k}; }
  constexpr adam_config update() const {
    return {.beta1 = beta1,
            .beta2 = beta2,
            .eps = eps,
            .weight_decay = weight_decay,
            .decoupled = decoupled,
            .amsgrad = amsgrad,
            .maximize = maximize,
            .do_bias_correction = do_bias_correction};
  }
};

}  // namespace graven::kernels
