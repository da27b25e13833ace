// batch_norm: batch normalisation of x [outer,channels,inner] for each channel, and its gradient, f32. Formulas:
// config/batch_norm.h.
//
//   inline constexpr batch_norm_config bn{.outer = 64 * 16 * 16, .channels = 32, .inner = 1};               // NHWC
//   batch_norm(threads, bn, y, mean, rstd, new_running_mean, new_running_var, x, gamma, beta, running_mean,
//              running_var, workspace);
//   batch_norm_backward(threads, bn, dx, dgamma, dbeta, dy, x, gamma, mean, rstd, workspace);
//   batch_norm_inference(threads, bn, y, x, gamma, beta, mean, var);
//
// gamma, beta, statistics, mean and rstd are [channels]; an absent gamma is 1, an absent beta 0. Training's mean and
// rstd are what the gradient needs. The new running statistics are written where they and the old ones are given, and
// may be the same memory.
//
// The variance is found from differences to a mean, block by block, each block small enough to stay in the first-level
// cache between the two passes; blocks are merged by the formula of Chan, Golub and LeVeque (1979), so nothing cancels
// however large the mean is.
#pragma once

#include <cstdint>

#include "../config/batch_norm.h"
#include "check_value.h"
#include "simd.h"
#include "threads.h"
#include "window.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace batch_norm_detail {

using window::part_of;
using window::range;
using window::smaller;

/// Count, mean and sum of squared differences from it.
struct moments {
  double count = 0, mean = 0, squares = 0;

  /// Chan, Golub and LeVeque: of the union of two sets.
  GRAVEN_ALWAYS_INLINE void merge(const moments& other) {
    const double total = count + other.count;
    if (total == 0) return;
    const double difference = other.mean - mean;
    mean += difference * (other.count / total);
    squares += other.squares + difference * difference * (count * other.count / total);
    count = total;
  }
};

/// Moments of n contiguous values.
inline moments of_run(const float* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 4096;
  moments all;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t size = smaller(kBlock, n - begin), whole = size / kPanel * kPanel;
    const float* const p = x + begin;
    moments block;
    block.count = static_cast<double>(size);
    vec total[kPanelVectors] = {};
    for (std::int64_t i = 0; i < whole; i += kPanel)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) total[v] += load(p + i + v * kLanes);
    double rest = 0;
    for (std::int64_t i = whole; i < size; ++i) rest += p[i];
    block.mean = (static_cast<double>(sum(total)) + rest) / block.count;
    const vec mean = broadcast(static_cast<float>(block.mean));
    vec squares[kPanelVectors] = {};
    for (std::int64_t i = 0; i < whole; i += kPanel)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) {
        const vec d = load(p + i + v * kLanes) - mean;
        squares[v] = fma(d, d, squares[v]);
      }
    block.squares = sum(squares);
    for (std::int64_t i = whole; i < size; ++i) {
      const double d = static_cast<double>(p[i]) - block.mean;
      block.squares += d * d;
    }
    all.merge(block);
  }
  return all;
}

/// Stores the lanes of `v` from `done` on, and `old` in those before.
GRAVEN_ALWAYS_INLINE void store_last(float* p, vec v, vec old, int done) {
  store(p, v);
  if (done == 0) return;
  float lanes[kLanes];
  store(lanes, old);
  for (int l = 0; l < done; ++l) p[l] = lanes[l];
}

/// mean[c] and squares[c] of rows [rows) of x [outer,channels].
inline void of_rows(const float* x, range rows, std::int64_t channels, float* mean, float* squares) {
  const std::int64_t block_rows = 4096 / channels > 16 ? 4096 / channels : 16;
  double count = 0;
  for (std::int64_t begin = rows.begin; begin < rows.end || begin == rows.begin; begin += block_rows) {
    const std::int64_t size = smaller(block_rows, rows.end - begin);
    const float* const p = x + begin * channels;
    // Merging weights; all rows of a block count alike for every channel.
    const double total = count + static_cast<double>(size);
    const float share = total > 0 ? static_cast<float>(static_cast<double>(size) / total) : 0.0f;
    const float both = total > 0 ? static_cast<float>(count * static_cast<double>(size) / total) : 0.0f;
    const float reciprocal = size > 0 ? 1.0f / static_cast<float>(size) : 0.0f;
    const bool first = begin == rows.begin;
    std::int64_t next = 0;
    for (; next < channels && channels >= kLanes; next += kLanes) {
      // The last vector may begin among channels that are done: these are computed again, and left as they are.
      const std::int64_t c = smaller(next, channels - kLanes);
      const int done = static_cast<int>(next - c);
      vec s0{}, s1{};
      std::int64_t r = 0;
      for (; r + 2 <= size; r += 2) s0 += load(p + r * channels + c), s1 += load(p + (r + 1) * channels + c);
      if (r < size) s0 += load(p + r * channels + c);
      const vec m = (s0 + s1) * reciprocal;
      vec q0{}, q1{};
      for (r = 0; r + 2 <= size; r += 2) {
        const vec d0 = load(p + r * channels + c) - m, d1 = load(p + (r + 1) * channels + c) - m;
        q0 = fma(d0, d0, q0), q1 = fma(d1, d1, q1);
      }
      if (r < size) {
        const vec d = load(p + r * channels + c) - m;
        q0 = fma(d, d, q0);
      }
      if (first) {
        store(mean + c, m), store(squares + c, q0 + q1);
      } else {
        const vec old = load(mean + c), old_squares = load(squares + c), difference = m - old;
        store_last(mean + c, fma(difference, broadcast(share), old), old, done);
        store_last(squares + c, fma(difference * difference, broadcast(both), old_squares + (q0 + q1)), old_squares,
                   done);
      }
    }
    for (std::int64_t c = next; c < channels; ++c) {
      // Fewer channels than a vector has, in the same order: how many these are does not show.
      float s0 = 0, s1 = 0, q0 = 0, q1 = 0;
      std::int64_t r = 0;
      for (; r + 2 <= size; r += 2) s0 += p[r * channels + c], s1 += p[(r + 1) * channels + c];
      if (r < size) s0 += p[r * channels + c];
      const float m = (s0 + s1) * reciprocal;
      for (r = 0; r + 2 <= size; r += 2) {
        const float d0 = p[r * channels + c] - m, d1 = p[(r + 1) * channels + c] - m;
        q0 = fma(d0, d0, q0), q1 = fma(d1, d1, q1);
      }
      if (r < size) {
        const float d = p[r * channels + c] - m;
        q0 = fma(d, d, q0);
      }
      if (first) {
        mean[c] = m, squares[c] = q0 + q1;
      } else {
        const float difference = m - mean[c];
        mean[c] = fma(difference, share, mean[c]);
        squares[c] = fma(difference * difference, both, squares[c] + (q0 + q1));
      }
    }
    count = total;
    if (rows.size() == 0) break;
  }
}

/// y[r][c] = x[r][c] * scale[c] + shift[c] over rows of [channels].
inline void scale_rows(float* y, const float* x, range rows, std::int64_t channels, const float* scale,
                       const float* shift) {
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const float* const from = x + r * channels;
    float* const to = y + r * channels;
    GRAVEN_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c) to[c] = fma(from[c], scale[c], shift[c]);
  }
}

/// A channel's statistics, stored, and the factors that normalise it.
struct factors {
  float scale, shift;
};
template <class T>
struct statistics {
  T *mean, *rstd, *new_running_mean, *new_running_var;
  const T *gamma, *beta, *running_mean, *running_var;

  double gamma_of(std::int64_t c) const { return gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0; }
  double beta_of(std::int64_t c) const { return beta != nullptr ? static_cast<double>(beta[c]) : 0.0; }
  /// Stores them; rstd.
  double store(const batch_norm_config& config, std::int64_t c, const moments& m) const {
    const double rstd_c = 1.0 / __builtin_sqrt(m.squares / m.count + config.eps);
    if (mean != nullptr) mean[c] = static_cast<T>(m.mean);
    if (rstd != nullptr) rstd[c] = static_cast<T>(rstd_c);
    if (new_running_mean != nullptr && running_mean != nullptr)
      new_running_mean[c] =
          static_cast<T>((1.0 - config.momentum) * static_cast<double>(running_mean[c]) + config.momentum * m.mean);
    if (new_running_var != nullptr && running_var != nullptr)
      new_running_var[c] = static_cast<T>((1.0 - config.momentum) * static_cast<double>(running_var[c]) +
                                          config.momentum * (m.squares / (m.count - 1.0)));
    return rstd_c;
  }
  factors finish(const batch_norm_config& config, std::int64_t c, const moments& m) const {
    const double scale = store(config, c, m) * gamma_of(c);
    return {static_cast<float>(scale), static_cast<float>(beta_of(c) - m.mean * scale)};
  }
};

/// Moments of channel c, of images that have inner > 1.
inline moments of_channel(const batch_norm_config& config, const float* x, std::int64_t c) {
  moments m;
  for (std::int64_t o = 0; o < config.outer; ++o)
    m.merge(of_run(x + (o * config.channels + c) * config.inner, config.inner));
  return m;
}
inline void normalise_channel(const batch_norm_config& config, float* y, const float* x, std::int64_t c,
                              const factors& f) {
  for (std::int64_t o = 0; o < config.outer; ++o) {
    const float* const from = x + (o * config.channels + c) * config.inner;
    float* const to = y + (o * config.channels + c) * config.inner;
    GRAVEN_INDEPENDENT
    for (std::int64_t i = 0; i < config.inner; ++i) to[i] = fma(from[i], f.scale, f.shift);
  }
}

/// Of rows, inner = 1: mean and squares of each piece of them, [pieces,2,channels].
inline void of_pieces(Threads& threads, const batch_norm_config& config, const float* x, float* parts) {
  const std::int64_t pieces = batch_norm_pieces(config), channels = config.channels;
  threads.run(pieces, [&](std::int64_t piece) {
    float* const part = parts + piece * 2 * channels;
    of_rows(x, part_of(config.outer, piece, pieces), channels, part, part + channels);
  });
}
/// Moments of channel c, from those of the pieces.
inline moments of_parts(const batch_norm_config& config, const float* parts, std::int64_t c) {
  const std::int64_t pieces = batch_norm_pieces(config);
  moments all;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    moments part;
    part.count = static_cast<double>(part_of(config.outer, piece, pieces).size());
    part.mean = parts[piece * 2 * config.channels + c];
    part.squares = parts[(piece * 2 + 1) * config.channels + c];
    all.merge(part);
  }
  return all;
}
inline void normalise_rows(Threads& threads, const batch_norm_config& config, float* y, const float* x,
                           const float* scale, const float* shift) {
  const std::int64_t pieces = batch_norm_pieces(config);
  threads.run(pieces, [&](std::int64_t piece) {
    scale_rows(y, x, part_of(config.outer, piece, pieces), config.channels, scale, shift);
  });
}

/// A channel's sums of dy and of dy * (x - mean).
struct gradient_sums {
  double dy = 0, products = 0;
};
/// dx = a * dy + b * (x - mean) + c.
struct line {
  float a, b, c;
};
inline line line_of(double rstd, double gamma, double count, const gradient_sums& s) {
  return {static_cast<float>(gamma * rstd), static_cast<float>(-gamma * rstd * rstd * rstd * s.products / count),
          static_cast<float>(-gamma * rstd * s.dy / count)};
}

/// Of images, inner > 1.
inline gradient_sums sums_of_channel(const batch_norm_config& config, const float* dy, const float* x, float m,
                                     std::int64_t c) {
  gradient_sums all;
  for (std::int64_t o = 0; o < config.outer; ++o) {
    const std::int64_t at = (o * config.channels + c) * config.inner;
    for (std::int64_t begin = 0; begin < config.inner; begin += 4096) {
      const std::int64_t size = smaller(4096, config.inner - begin), whole = size / kPanel * kPanel;
      const float *const g = dy + at + begin, *const v = x + at + begin;
      vec s[kPanelVectors] = {}, p[kPanelVectors] = {};
      for (std::int64_t i = 0; i < whole; i += kPanel)
#pragma GCC unroll 4
        for (int l = 0; l < kPanelVectors; ++l) {
          const vec gradient = load(g + i + l * kLanes);
          s[l] += gradient;
          p[l] = fma(gradient, load(v + i + l * kLanes) - broadcast(m), p[l]);
        }
      all.dy += sum(s), all.products += sum(p);
      for (std::int64_t i = whole; i < size; ++i) all.dy += g[i], all.products += g[i] * (v[i] - m);
    }
  }
  return all;
}
inline void gradient_of_channel(const batch_norm_config& config, float* dx, const float* dy, const float* x, float m,
                                std::int64_t c, const line& f) {
  for (std::int64_t o = 0; o < config.outer; ++o) {
    const std::int64_t at = (o * config.channels + c) * config.inner;
    GRAVEN_INDEPENDENT
    for (std::int64_t i = 0; i < config.inner; ++i) dx[at + i] = fma(f.a, dy[at + i], fma(f.b, x[at + i] - m, f.c));
  }
}

/// Of rows, inner = 1: the sums of each piece of them, [pieces,2,channels].
inline void sums_of_pieces(Threads& threads, const batch_norm_config& config, const float* dy, const float* x,
                           const float* mean, float* parts) {
  const std::int64_t pieces = batch_norm_pieces(config), channels = config.channels;
  threads.run(pieces, [&](std::int64_t piece) {
    const range rows = part_of(config.outer, piece, pieces);
    float* const sums = parts + piece * 2 * channels;
    float* const products = sums + channels;
    for (std::int64_t c = 0; c < channels; ++c) sums[c] = products[c] = 0;
    const std::int64_t block_rows = 4096 / channels > 16 ? 4096 / channels : 16;
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += block_rows) {
      const std::int64_t end = smaller(begin + block_rows, rows.end);
      std::int64_t next = 0;
      for (; next < channels && channels >= kLanes; next += kLanes) {
        const std::int64_t c = smaller(next, channels - kLanes);
        const int done = static_cast<int>(next - c);
        const vec m = load(mean + c);
        vec s{}, p{};
        for (std::int64_t r = begin; r < end; ++r) {
          const vec g = load(dy + r * channels + c);
          s += g;
          p = fma(g, load(x + r * channels + c) - m, p);
        }
        const vec old = load(sums + c), old_products = load(products + c);
        store_last(sums + c, old + s, old, done);
        store_last(products + c, old_products + p, old_products, done);
      }
      for (std::int64_t c = next; c < channels; ++c) {
        float s = 0, p = 0;
        for (std::int64_t r = begin; r < end; ++r) {
          s += dy[r * channels + c];
          p = fma(dy[r * channels + c], x[r * channels + c] - mean[c], p);
        }
        sums[c] += s, products[c] += p;
      }
    }
  });
}
inline gradient_sums sums_of_parts(const batch_norm_config& config, const float* parts, std::int64_t c) {
  const std::int64_t pieces = batch_norm_pieces(config);
  gradient_sums all;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    all.dy += parts[piece * 2 * config.channels + c];
    all.products += parts[(piece * 2 + 1) * config.channels + c];
  }
  return all;
}
/// a, b and last: each channel's line.
inline void gradient_of_rows(Threads& threads, const batch_norm_config& config, float* dx, const float* dy,
                             const float* x, const float* mean, const float* a, const float* b, const float* last) {
  const std::int64_t pieces = batch_norm_pieces(config), channels = config.channels;
  threads.run(pieces, [&](std::int64_t piece) {
    const range rows = part_of(config.outer, piece, pieces);
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      const float *const g = dy + r * channels, *const v = x + r * channels;
      float* const to = dx + r * channels;
      GRAVEN_INDEPENDENT
      for (std::int64_t c = 0; c < channels; ++c) to[c] = fma(a[c], g[c], fma(b[c], v[c] - mean[c], last[c]));
    }
  });
}

}  // namespace batch_norm_detail

/// Training: normalises with the batch's own statistics; of 1 value a channel they are a value_error. Workspace:
/// batch_norm_workspace_bytes(config), none where that is 0.
inline void batch_norm(Threads& threads, const batch_norm_config& config, float* y, float* mean, float* rstd,
                       float* new_running_mean, float* new_running_var, const float* x, const float* gamma,
                       const float* beta, const float* running_mean, const float* running_var,
                       void* workspace = nullptr) {
  using namespace batch_norm_detail;
  const std::int64_t channels = config.channels, inner = config.inner;
  if (config.outer * channels * inner == 0) return;
  check_has_variance("batch_norm", config.outer * inner);
  const statistics<float> out{mean, rstd, new_running_mean, new_running_var, gamma, beta, running_mean, running_var};
  if (inner != 1) {
    threads.run(channels, [&](std::int64_t c) {
      normalise_channel(config, y, x, c, out.finish(config, c, of_channel(config, x, c)));
    });
    return;
  }
  float* const parts = static_cast<float*>(workspace);
  float* const scale = parts + batch_norm_pieces(config) * 2 * channels;
  float* const shift = scale + channels;
  of_pieces(threads, config, x, parts);
  for (std::int64_t c = 0; c < channels; ++c) {
    const factors f = out.finish(config, c, of_parts(config, parts, c));
    scale[c] = f.scale, shift[c] = f.shift;
  }
  normalise_rows(threads, config, y, x, scale, shift);
}

/// Inference: y = (x - mean) / sqrt(var + eps) * gamma + beta with given statistics.
inline void batch_norm_inference(Threads& threads, const batch_norm_config& config, float* y, const float* x,
                                 const float* gamma, const float* beta, const float* mean, const float* var) {
  using namespace batch_norm_detail;
  const std::int64_t channels = config.channels, inner = config.inner;
  if (config.outer * channels * inner == 0) return;
  const auto factors_of = [&](std::int64_t c) {
    const double scale = (gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0) /
                         __builtin_sqrt(static_cast<double>(var[c]) + config.eps);
    return factors{static_cast<float>(scale),
                   static_cast<float>((beta != nullptr ? static_cast<double>(beta[c]) : 0.0) -
                                      static_cast<double>(mean[c]) * scale)};
  };
  if (inner != 1) {
    threads.run(config.outer * channels, [&](std::int64_t piece) {
      const factors f = factors_of(piece % channels);
      GRAVEN_INDEPENDENT
      for (std::int64_t i = 0; i < inner; ++i) y[piece * inner + i] = fma(x[piece * inner + i], f.scale, f.shift);
    });
    return;
  }
  // Without scratch, the factors of some channels at a time are kept on the stack.
  constexpr std::int64_t kChannels = 512;
  const std::int64_t pieces = batch_norm_pieces(config);
  threads.run(pieces, [&](std::int64_t piece) {
    const range rows = part_of(config.outer, piece, pieces);
    for (std::int64_t first = 0; first < channels; first += kChannels) {
      const std::int64_t n = smaller(kChannels, channels - first);
      alignas(64) float scale[kChannels], shift[kChannels];
      for (std::int64_t c = 0; c < n; ++c) {
        const factors f = factors_of(first + c);
        scale[c] = f.scale, shift[c] = f.shift;
      }
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        const float* const from = x + r * channels + first;
        float* const to = y + r * channels + first;
        GRAVEN_INDEPENDENT
        for (std::int64_t c = 0; c < n; ++c) to[c] = fma(from[c], scale[c], shift[c]);
      }
    }
  });
}

/// dbeta = sum dy; dgamma = sum dy * (x - mean) * rstd;
/// dx = gamma * rstd * (dy - dbeta / count - (x - mean) * rstd * dgamma / count), count = outer * inner.
/// Workspace: batch_norm_backward_workspace_bytes(config), none where that is 0.
inline void batch_norm_backward(Threads& threads, const batch_norm_config& config, float* dx, float* dgamma,
                                float* dbeta, const float* dy, const float* x, const float* gamma, const float* mean,
                                const float* rstd, void* workspace = nullptr) {
  using namespace batch_norm_detail;
  const std::int64_t channels = config.channels, inner = config.inner;
  if (config.outer * channels * inner == 0) return;
  const double count = static_cast<double>(config.outer * inner);
  const auto finish = [&](std::int64_t c, const gradient_sums& s) {
    const double r = rstd[c], g = gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0;
    if (dgamma != nullptr) dgamma[c] = static_cast<float>(s.products * r);
    if (dbeta != nullptr) dbeta[c] = static_cast<float>(s.dy);
    return line_of(r, g, count, s);
  };
  if (inner != 1) {
    threads.run(channels, [&](std::int64_t c) {
      gradient_of_channel(config, dx, dy, x, mean[c], c, finish(c, sums_of_channel(config, dy, x, mean[c], c)));
    });
    return;
  }
  float* const parts = static_cast<float*>(workspace);
  sums_of_pieces(threads, config, dy, x, mean, parts);
  // The factors replace the first parts, which are no longer needed once a channel is done; c goes behind the last.
  float* const last = parts + batch_norm_pieces(config) * 2 * channels;
  for (std::int64_t c = 0; c < channels; ++c) {
    const line f = finish(c, sums_of_parts(config, parts, c));
    parts[c] = f.a, parts[channels + c] = f.b, last[c] = f.c;
  }
  gradient_of_rows(threads, config, dx, dy, x, mean, parts, parts + channels, last);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
