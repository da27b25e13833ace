// group_norm over x[batch, channels, inner] and its gradient, in float (formulas in config/group_norm.h and in
// kernels/reference/group_norm.h).
//
//   inline constexpr group_norm_config norm{.batch = 8, .channels = 32, .groups = 4, .inner = 16 * 16, .eps = 1e-5};
//   group_norm(threads, norm, y, mean, rstd, x, gamma, beta);
//   group_norm_backward(threads, norm, dx, dgamma, dbeta, dy, x, gamma, mean, rstd, workspace);
//
// gamma and beta, mean and rstd, dgamma and dbeta may be nullptr. The workspace has
// group_norm_backward_workspace_bytes(config) bytes.
#pragma once

#include <cstdint>

#include "../config/group_norm.h"
#include "layer_norm.h"
#include "level.h"
#include "scalar_math.h"
#include "simd.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

inline void group_norm(Threads& threads, const group_norm_config& c, float* y, float* mean, float* rstd, const float* x,
                       const float* gamma, const float* beta) {
  using namespace detail;
  const std::int64_t per_group = c.channels / c.groups, size = per_group * c.inner;
  threads.run(c.batch * c.groups, [&](std::int64_t row) {
    const float* const in = x + row * size;
    const float m = sum_row(size, [&](vec sum, std::int64_t i, int count) { return sum + load_up_to(in + i, count); }) /
                    static_cast<float>(size);
    const vec center = broadcast(m);
    const float squares = sum_row(size, [&](vec sum, std::int64_t i, int count) {
      const vec d = keep_first(load_up_to(in + i, count) - center, count);
      return fma(d, d, sum);
    });
    const float s = 1.0f / math::sqrt(squares / static_cast<float>(size) + static_cast<float>(c.eps));
    for (std::int64_t k = 0; k < per_group; ++k) {
      const std::int64_t channel = row % c.groups * per_group + k;
      const vec scale = broadcast(gamma != nullptr ? s * gamma[channel] : s),
                shift = broadcast(beta != nullptr ? beta[channel] : 0.0f);
      const float* const from = in + k * c.inner;
      float* const to = y + row * size + k * c.inner;
      for_row(c.inner, [&](std::int64_t i, int count, int) {
        store_up_to(to + i, fma(load_up_to(from + i, count) - center, scale, shift), count);
      });
    }
    if (mean != nullptr) mean[row] = m;
    if (rstd != nullptr) rstd[row] = s;
  });
}

inline void group_norm_backward(Threads& threads, const group_norm_config& c, float* dx, float* dgamma, float* dbeta,
                                const float* dy, const float* x, const float* gamma, const float* mean,
                                const float* rstd, void* workspace) {
  using namespace detail;
  const std::int64_t per_group = c.channels / c.groups, size = per_group * c.inner;
  float* const sums = static_cast<float*>(workspace);  // [batch][channels][2]: of dy, of dy * h
  threads.run(c.batch * c.groups, [&](std::int64_t row) {
    const std::int64_t first = row / c.groups * c.channels + row % c.groups * per_group;
    const vec center = broadcast(mean[row]), scale = broadcast(rstd[row]);
    float total = 0, along = 0;
    for (std::int64_t k = 0; k < per_group; ++k) {
      const float* const in = x + (first + k) * c.inner;
      const float* const d = dy + (first + k) * c.inner;
      const float bias =
          sum_row(c.inner, [&](vec sum, std::int64_t i, int count) { return sum + load_up_to(d + i, count); });
      const float weight = sum_row(c.inner, [&](vec sum, std::int64_t i, int count) {
        // dy is 0 beyond `count`.
        return fma(load_up_to(d + i, count), (load_up_to(in + i, count) - center) * scale, sum);
      });
      sums[(first + k) * 2] = bias;
      sums[(first + k) * 2 + 1] = weight;
      const float factor = gamma != nullptr ? gamma[row % c.groups * per_group + k] : 1.0f;
      total += factor * bias;
      along += factor * weight;
    }
    const vec a = broadcast(total / static_cast<float>(size)), b = broadcast(along / static_cast<float>(size));
    for (std::int64_t k = 0; k < per_group; ++k) {
      const float* const in = x + (first + k) * c.inner;
      const float* const d = dy + (first + k) * c.inner;
      float* const to = dx + (first + k) * c.inner;
      const vec factor = broadcast(gamma != nullptr ? gamma[row % c.groups * per_group + k] : 1.0f);
      for_row(c.inner, [&](std::int64_t i, int count, int) {
        const vec h = (load_up_to(in + i, count) - center) * scale;
        store_up_to(to + i, scale * fma(h, -b, fma(load_up_to(d + i, count), factor, -a)), count);
      });
    }
  });
  if (dgamma == nullptr && dbeta == nullptr) return;
  for (std::int64_t channel = 0; channel < c.channels; ++channel) {
    float weight = 0, bias = 0;
    for (std::int64_t n = 0; n < c.batch; ++n) {
      bias += sums[(n * c.channels + channel) * 2];
      weight += sums[(n * c.channels + channel) * 2 + 1];
    }
    if (dgamma != nullptr) dgamma[channel] = weight;
    if (dbeta != nullptr) dbeta[channel] = bias;
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
