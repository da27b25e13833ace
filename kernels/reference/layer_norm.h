// layer_norm and rms_norm over the rows of x[rows, size], and their gradients, as plain loops
// (torch.nn.functional.layer_norm and rms_norm).
//
//   layer_norm: y = h * gamma + beta, h = (x - mean) * rstd;   rms_norm: y = h * gamma, h = x * rstd
//   with g = dy * gamma:   layer_norm: dx = rstd * (g - mean(g) - h * mean(g * h))
//                          rms_norm:   dx = rstd * (g - h * mean(g * h))
//   dgamma = the sum over rows of dy * h, dbeta = the sum of dy
//
//   reference::layer_norm(layer_norm_config{.rows = 4, .size = 8, .eps = 1e-5}, y, mean, rstd, x, gamma, beta);
//
// gamma and beta may be nullptr (1 and 0), and so may mean and rstd where nobody needs the gradient.
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/layer_norm.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void layer_norm(const layer_norm_config& c, T* y, plain_t<T>* mean, plain_t<T>* rstd, const plain_t<T>* x,
                const plain_t<T>* gamma, const plain_t<T>* beta) {
  using C = compute_t<T>;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    C sum = 0, squares = 0;
    for (std::int64_t i = 0; i < c.size; ++i) sum += C(x[r * c.size + i]);
    const C m = sum / static_cast<C>(c.size);
    for (std::int64_t i = 0; i < c.size; ++i) squares += (C(x[r * c.size + i]) - m) * (C(x[r * c.size + i]) - m);
    const C s = C(1) / std::sqrt(squares / static_cast<C>(c.size) + static_cast<C>(c.eps));
    for (std::int64_t i = 0; i < c.size; ++i) {
      const C h = (C(x[r * c.size + i]) - m) * s;
      y[r * c.size + i] = static_cast<T>(h * (gamma ? C(gamma[i]) : C(1)) + (beta ? C(beta[i]) : C(0)));
    }
    if (mean) mean[r] = static_cast<T>(m);
    if (rstd) rstd[r] = static_cast<T>(s);
  }
}

template <class T>
void layer_norm_backward(const layer_norm_config& c, T* dx, plain_t<T>* dgamma, plain_t<T>* dbeta, const plain_t<T>* dy,
                         const plain_t<T>* x, const plain_t<T>* gamma, const plain_t<T>* mean, const plain_t<T>* rstd) {
  using C = compute_t<T>;
  for (std::int64_t i = 0; i < c.size; ++i) {
    C weight = 0, bias = 0;
    for (std::int64_t r = 0; r < c.rows; ++r) {
      weight += C(dy[r * c.size + i]) * (C(x[r * c.size + i]) - C(mean[r])) * C(rstd[r]);
      bias += C(dy[r * c.size + i]);
    }
    if (dgamma) dgamma[i] = static_cast<T>(weight);
    if (dbeta) dbeta[i] = static_cast<T>(bias);
  }
  for (std::int64_t r = 0; r < c.rows; ++r) {
    C sum = 0, along = 0;
    for (std::int64_t i = 0; i < c.size; ++i) {
      const C g = C(dy[r * c.size + i]) * (gamma ? C(gamma[i]) : C(1));
      sum += g;
      along += g * (C(x[r * c.size + i]) - C(mean[r])) * C(rstd[r]);
    }
    for (std::int64_t i = 0; i < c.size; ++i) {
      const C g = C(dy[r * c.size + i]) * (gamma ? C(gamma[i]) : C(1)),
              h = (C(x[r * c.size + i]) - C(mean[r])) * C(rstd[r]);
      dx[r * c.size + i] = static_cast<T>(C(rstd[r]) * (g - (sum + h * along) / static_cast<C>(c.size)));
    }
  }
}

template <class T>
void rms_norm(const layer_norm_config& c, T* y, plain_t<T>* rstd, const plain_t<T>* x, const plain_t<T>* gamma) {
  using C = compute_t<T>;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    C squares = 0;
    for (std::int64_t i = 0; i < c.size; ++i) squares += C(x[r * c.size + i]) * C(x[r * c.size + i]);
    const C s = C(1) / std::sqrt(squares / static_cast<C>(c.size) + static_cast<C>(c.eps));
    for (std::int64_t i = 0; i < c.size; ++i)
      y[r * c.size + i] = static_cast<T>(C(x[r * c.size + i]) * s * (gamma ? C(gamma[i]) : C(1)));
    if (rstd) rstd[r] = static_cast<T>(s);
  }
}

template <class T>
void rms_norm_backward(const layer_norm_config& c, T* dx, plain_t<T>* dgamma, const plain_t<T>* dy, const plain_t<T>* x,
                       const plain_t<T>* gamma, const plain_t<T>* rstd) {
  using C = compute_t<T>;
  if (dgamma)
    for (std::int64_t i = 0; i < c.size; ++i) {
      C weight = 0;
      for (std::int64_t r = 0; r < c.rows; ++r) weight += C(dy[r * c.size + i]) * C(x[r * c.size + i]) * C(rstd[r]);
      dgamma[i] = static_cast<T>(weight);
    }
  for (std::int64_t r = 0; r < c.rows; ++r) {
    C along = 0;
    for (std::int64_t i = 0; i < c.size; ++i)
      along += C(dy[r * c.size + i]) * (gamma ? C(gamma[i]) : C(1)) * C(x[r * c.size + i]) * C(rstd[r]);
    for (std::int64_t i = 0; i < c.size; ++i) {
      const C g = C(dy[r * c.size + i]) * (gamma ? C(gamma[i]) : C(1)), h = C(x[r * c.size + i]) * C(rstd[r]);
      dx[r * c.size + i] = static_cast<T>(C(rstd[r]) * (g - h * along / static_cast<C>(c.size)));
    }
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
