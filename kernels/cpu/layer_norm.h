// layer_norm and rms_norm over the rows of x[rows, size], and their gradients, in float (formulas in
// config/layer_norm.h and in kernels/reference/layer_norm.h).
//
//   inline constexpr layer_norm_config norm{.rows = 8 * 128, .size = 768, .eps = 1e-5};
//   layer_norm(threads, norm, y, mean, rstd, x, gamma, beta);
//   layer_norm_backward(threads, norm, dx, dgamma, dbeta, dy, x, gamma, mean, rstd, workspace);
//
// gamma and beta, mean and rstd, dgamma and dbeta may be nullptr. A row is read from memory once and then again from
// the first-level cache; the mean is subtracted before squares are summed, so nothing cancels. The workspace has
// layer_norm_backward_workspace_bytes(config) bytes.
#pragma once

#include <cstdint>

#include "../config/layer_norm.h"
#include "level.h"
#include "scalar_math.h"
#include "simd.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Calls body(first element, elements, vector of the panel) for the vectors of a panel of which `count` elements, at
/// most 16, are there.
template <class Body>
GRAVEN_ALWAYS_INLINE void for_panel(std::int64_t first, int count, const Body& body) {
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v) {
    const int left = count - v * kLanes;
    if (left > 0) body(first + v * kLanes, left < kLanes ? left : kLanes, v);
  }
}
/// For all of a row, panel by panel.
template <class Body>
GRAVEN_ALWAYS_INLINE void for_row(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) for_panel(i, kPanel, body);
  if (i < n) for_panel(i, static_cast<int>(n - i), body);
}
/// Of terms that add(sum, first element, elements) adds to a vector. Four panels side by side hide the latency of an
/// addition.
template <class Add>
GRAVEN_ALWAYS_INLINE float sum_row(std::int64_t n, const Add& add) {
  vec s[4][kPanelVectors] = {};
  std::int64_t i = 0;
  for (; i + 4 * kPanel <= n; i += 4 * kPanel)
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) s[p][v] = add(s[p][v], i + p * kPanel + v * kLanes, kLanes);
  for (; i + kPanel <= n; i += kPanel)
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) s[0][v] = add(s[0][v], i + v * kLanes, kLanes);
  if (i < n)
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      const std::int64_t left = n - i - v * kLanes;
      if (left > 0) s[1][v] = add(s[1][v], i + v * kLanes, static_cast<int>(left < kLanes ? left : kLanes));
    }
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v) s[0][v] = (s[0][v] + s[1][v]) + (s[2][v] + s[3][v]);
  return sum(s[0]);
}
/// kLanes elements, or the first `count` and zeros.
GRAVEN_ALWAYS_INLINE vec load_up_to(const float* p, int count) {
  return count == kLanes ? load(p) : load_partial(p, count);
}
GRAVEN_ALWAYS_INLINE void store_up_to(float* p, vec v, int count) {
  if (count == kLanes)
    store(p, v);
  else
    store_partial(p, v, count);
}
/// Lanes below `count` of v, 0 in the others.
GRAVEN_ALWAYS_INLINE vec keep_first(vec v, int count) {
  if (count == kLanes) return v;
  float lanes[kLanes];
  store(lanes, v);
  for (int l = 0; l < kLanes; ++l) lanes[l] = l < count ? lanes[l] : 0.0f;
  return load(lanes);
}

template <bool kCentered>
inline void norm_rows(Threads& threads, const layer_norm_config& c, float* y, float* mean, float* rstd, const float* x,
                      const float* gamma, const float* beta) {
  const std::int64_t each = c.size > 0 ? (8192 + c.size - 1) / c.size : c.rows, n = c.size;
  if (c.rows == 0) return;
  threads.run((c.rows + each - 1) / each, [&](std::int64_t piece) {
    const std::int64_t last = (piece + 1) * each < c.rows ? (piece + 1) * each : c.rows;
    for (std::int64_t r = piece * each; r < last; ++r) {
      const float* const in = x + r * n;
      float* const out = y + r * n;
      float m = 0;
      if constexpr (kCentered)
        m = sum_row(n, [&](vec sum, std::int64_t i, int count)
                           __attribute__((always_inline)) { return sum + load_up_to(in + i, count); }) /
            static_cast<float>(n);
      const vec center = broadcast(m);
      const float squares = sum_row(n, [&](vec sum, std::int64_t i, int count) __attribute__((always_inline)) {
        const vec d = keep_first(load_up_to(in + i, count) - center, count);
        return fma(d, d, sum);
      });
      const float s = 1.0f / math::sqrt(squares / static_cast<float>(n) + static_cast<float>(c.eps));
      const vec scale = broadcast(s);
      if (gamma != nullptr && beta != nullptr)
        for_row(n, [&](std::int64_t i, int count, int) __attribute__((always_inline)) {
          store_up_to(out + i,
                      fma((load_up_to(in + i, count) - center) * scale, load_up_to(gamma + i, count),
                          load_up_to(beta + i, count)),
                      count);
        });
      else if (gamma != nullptr)
        for_row(n, [&](std::int64_t i, int count, int) __attribute__((always_inline)) {
          store_up_to(out + i, (load_up_to(in + i, count) - center) * scale * load_up_to(gamma + i, count), count);
        });
      else
        for_row(n, [&](std::int64_t i, int count, int) __attribute__((always_inline)) {
          const vec h = (load_up_to(in + i, count) - center) * scale;
          store_up_to(out + i, beta != nullptr ? h + load_up_to(beta + i, count) : h, count);
        });
      if (mean != nullptr) mean[r] = m;
      if (rstd != nullptr) rstd[r] = s;
    }
  });
}

template <bool kCentered>
inline void norm_rows_backward(Threads& threads, const layer_norm_config& c, float* dx, float* dgamma, float* dbeta,
                               const float* dy, const float* x, const float* gamma, const float* mean,
                               const float* rstd, void* workspace) {
  const std::int64_t n = c.size, pieces = layer_norm_pieces(c), each = (c.rows + pieces - 1) / pieces;
  float* const partial = static_cast<float*>(workspace);  // [pieces][2][size]
  const bool sums = dgamma != nullptr || dbeta != nullptr;
  threads.run(pieces, [&](std::int64_t piece) {
    float* const weight = partial + piece * 2 * n;
    float* const bias = weight + n;
    if (sums)
      for (std::int64_t i = 0; i < 2 * n; ++i) weight[i] = 0;
    const std::int64_t last = (piece + 1) * each < c.rows ? (piece + 1) * each : c.rows;
    for (std::int64_t r = piece * each; r < last; ++r) {
      const float* const in = x + r * n;
      const float* const d = dy + r * n;
      float* const out = dx + r * n;
      const vec center = broadcast(kCentered ? mean[r] : 0.0f), scale = broadcast(rstd[r]);
      vec sum_g[kPanelVectors] = {}, sum_gh[kPanelVectors] = {};
      for_row(n, [&](std::int64_t i, int count, int v) __attribute__((always_inline)) {
        const vec dyi = load_up_to(d + i, count), h = (load_up_to(in + i, count) - center) * scale;
        const vec g = gamma != nullptr ? dyi * load_up_to(gamma + i, count) : dyi;  // 0 beyond `count`
        sum_g[v] += g;
        sum_gh[v] = fma(g, h, sum_gh[v]);
        if (sums) {
          store_up_to(weight + i, fma(dyi, h, load_up_to(weight + i, count)), count);
          if (kCentered) store_up_to(bias + i, load_up_to(bias + i, count) + dyi, count);
        }
      });
      const vec a = broadcast(kCentered ? sum(sum_g) / static_cast<float>(n) : 0.0f),
                b = broadcast(sum(sum_gh) / static_cast<float>(n));
      for_row(n, [&](std::int64_t i, int count, int) __attribute__((always_inline)) {
        const vec dyi = load_up_to(d + i, count), h = (load_up_to(in + i, count) - center) * scale;
        const vec g = gamma != nullptr ? dyi * load_up_to(gamma + i, count) : dyi;
        store_up_to(out + i, scale * fma(h, -b, g - a), count);
      });
    }
  });
  if (!sums) return;
  constexpr std::int64_t kColumns = 256;
  threads.run((n + kColumns - 1) / kColumns, [&](std::int64_t piece) {
    const std::int64_t last = (piece + 1) * kColumns < n ? (piece + 1) * kColumns : n;
    for (std::int64_t i = piece * kColumns; i < last; ++i) {
      float weight = 0, bias = 0;
      for (std::int64_t p = 0; p < pieces; ++p) {
        weight += partial[p * 2 * n + i];
        bias += partial[p * 2 * n + n + i];
      }
      if (dgamma != nullptr) dgamma[i] = weight;
      if (dbeta != nullptr) dbeta[i] = bias;
    }
  });
}

}  // namespace detail

inline void layer_norm(Threads& threads, const layer_norm_config& c, float* y, float* mean, float* rstd, const float* x,
                       const float* gamma, const float* beta) {
  detail::norm_rows<true>(threads, c, y, mean, rstd, x, gamma, beta);
}

inline void layer_norm_backward(Threads& threads, const layer_norm_config& c, float* dx, float* dgamma, float* dbeta,
                                const float* dy, const float* x, const float* gamma, const float* mean,
                                const float* rstd, void* workspace) {
  detail::norm_rows_backward<true>(threads, c, dx, dgamma, dbeta, dy, x, gamma, mean, rstd, workspace);
}

inline void rms_norm(Threads& threads, const layer_norm_config& c, float* y, float* rstd, const float* x,
                     const float* gamma) {
  detail::norm_rows<false>(threads, c, y, nullptr, rstd, x, gamma, nullptr);
}

inline void rms_norm_backward(Threads& threads, const layer_norm_config& c, float* dx, float* dgamma, const float* dy,
                              const float* x, const float* gamma, const float* rstd, void* workspace) {
  detail::norm_rows_backward<false>(threads, c, dx, dgamma, nullptr, dy, x, gamma, nullptr, rstd, workspace);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
