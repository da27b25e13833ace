// Rules as codegen/emit/update.h prints them of operators, for tests of the kernels that run rules.
#pragma once

#include <cstdint>

#include "kernels/config/device.h"

namespace graven::kernels::test {

struct momentum_config {
  double momentum, weight_decay;
};

/// b = g in step 1, later momentum b + g, with g = grad + weight_decay p; p -= lr b.
struct momentum_rule {
  template <class C>
  struct numbers {
    C lr, momentum, weight_decay;
    bool is_first_step;
  };
  template <class C, class Config>
  GRAVEN_DEVICE static numbers<C> at_step(const Config& config, double lr, std::int64_t step) {
    return {.lr = static_cast<C>(lr),
            .momentum = static_cast<C>(config.momentum),
            .weight_decay = static_cast<C>(config.weight_decay),
            .is_first_step = step == 1};
  }
  template <class C>
  GRAVEN_DEVICE static void apply(const numbers<C>& k, C& p, C grad, C& b) {
    const C g = math::fma(k.weight_decay, p, grad);
    b = k.is_first_step ? g : math::fma(k.momentum, b, g);
    p = math::fma(-k.lr, b, p);
  }
};

/// p -= lr grad.
struct plain_rule {
  template <class C>
  struct numbers {
    C lr;
  };
  template <class C, class Config>
  GRAVEN_DEVICE static numbers<C> at_step(const Config&, double lr, std::int64_t) {
    return {.lr = static_cast<C>(lr)};
  }
  template <class C>
  GRAVEN_DEVICE static void apply(const numbers<C>& k, C& p, C grad) {
    p = math::fma(-k.lr, grad, p);
  }
};

/// m += (1 - momentum) (grad - m); d = lr |p| / |m| m, the ratio 1 where either is 0; p -= d; changes += d.
struct norms_rule {
  static constexpr int norms = 2;
  template <class C>
  struct numbers {
    C toward_gradient, rate;
  };
  template <class C, class Config>
  GRAVEN_DEVICE static numbers<C> at_step(const Config& config, double, std::int64_t) {
    return {.toward_gradient = static_cast<C>(1 - config.momentum), .rate = 0};
  }
  template <class C, class Config>
  GRAVEN_DEVICE static void at_tensor(numbers<C>& k, const Config&, double lr, std::int64_t, const double* norms) {
    k.rate = static_cast<C>(lr * (math::min(norms[0], norms[1]) > 0 ? norms[0] / norms[1] : 1));
  }
  template <class C>
  GRAVEN_DEVICE static void measure(const numbers<C>& k, C p, C grad, C& m, C&, C (&measured)[norms]) {
    m = math::fma(k.toward_gradient, grad - m, m);
    measured[0] = p;
    measured[1] = m;
  }
  template <class C>
  GRAVEN_DEVICE static void apply(const numbers<C>& k, C& p, C, C& m, C& changes) {
    const C change = k.rate * m;
    changes = changes + change;
    p = p - change;
  }
};

}  // namespace graven::kernels::test
