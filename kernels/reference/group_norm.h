// group_norm over x[batch, channels, inner] and its gradient, as plain loops (torch.nn.functional.group_norm; see
// config/group_norm.h).
//
//   with h = (x - mean) * rstd and g = dy * gamma:
//   dx = rstd * (g - mean(g) - h * mean(g * h)), the means over the group;
//   dgamma[channel] = the sum over batch and inner of dy * h, dbeta = the sum of dy
//
//   reference::group_norm(group_norm_config{.batch = 2, .channels = 4, .groups = 2, .inner = 9}, y, mean, rstd, x,
//                         gamma, beta);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/group_norm.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void group_norm(const group_norm_config& c, T* y, plain_t<T>* mean, plain_t<T>* rstd, const plain_t<T>* x,
                const plain_t<T>* gamma, const plain_t<T>* beta) {
  using C = compute_t<T>;
  const std::int64_t each = c.channels / c.groups, size = each * c.inner;
  for (std::int64_t row = 0; row < c.batch * c.groups; ++row) {
    C sum = 0, squares = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += C(x[row * size + i]);
    const C m = sum / static_cast<C>(size);
    for (std::int64_t i = 0; i < size; ++i) squares += (C(x[row * size + i]) - m) * (C(x[row * size + i]) - m);
    const C s = C(1) / std::sqrt(squares / static_cast<C>(size) + static_cast<C>(c.eps));
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t channel = row % c.groups * each + i / c.inner;
      const C h = (C(x[row * size + i]) - m) * s;
      y[row * size + i] = static_cast<T>(h * (gamma ? C(gamma[channel]) : C(1)) + (beta ? C(beta[channel]) : C(0)));
    }
    if (mean) mean[row] = static_cast<T>(m);
    if (rstd) rstd[row] = static_cast<T>(s);
  }
}

template <class T>
void group_norm_backward(const group_norm_config& c, T* dx, plain_t<T>* dgamma, plain_t<T>* dbeta, const plain_t<T>* dy,
                         const plain_t<T>* x, const plain_t<T>* gamma, const plain_t<T>* mean, const plain_t<T>* rstd) {
  using C = compute_t<T>;
  const std::int64_t each = c.channels / c.groups, size = each * c.inner;
  for (std::int64_t row = 0; row < c.batch * c.groups; ++row) {
    C sum = 0, along = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const C g = C(dy[row * size + i]) * (gamma ? C(gamma[row % c.groups * each + i / c.inner]) : C(1));
      sum += g;
      along += g * (C(x[row * size + i]) - C(mean[row])) * C(rstd[row]);
    }
    for (std::int64_t i = 0; i < size; ++i) {
      const C g = C(dy[row * size + i]) * (gamma ? C(gamma[row % c.groups * each + i / c.inner]) : C(1));
      const C h = (C(x[row * size + i]) - C(mean[row])) * C(rstd[row]);
      dx[row * size + i] = static_cast<T>(C(rstd[row]) * (g - (sum + h * along) / static_cast<C>(size)));
    }
  }
  for (std::int64_t channel = 0; channel < c.channels; ++channel) {
    C weight = 0, bias = 0;
    for (std::int64_t n = 0; n < c.batch; ++n) {
      const std::int64_t row = n * c.groups + channel / each;
      for (std::int64_t i = 0; i < c.inner; ++i) {
        const std::int64_t at = (n * c.channels + channel) * c.inner + i;
        weight += C(dy[at]) * (C(x[at]) - C(mean[row])) * C(rstd[row]);
        bias += C(dy[at]);
      }
    }
    if (dgamma) dgamma[channel] = static_cast<T>(weight);
    if (dbeta) dbeta[channel] = static_cast<T>(bias);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
