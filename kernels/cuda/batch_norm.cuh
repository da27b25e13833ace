// batch_norm over x[outer, channels, inner] in training and inference, and its gradient; formulas: config/batch_norm.h.
//
//   batch_norm(context, batch_norm_config{.outer = 64, .channels = 32}, y, mean, rstd, new_running_mean,
//              new_running_var, x, gamma, beta, running_mean, running_var);
//   // rstd = 1 / sqrt(var + eps), as batch_norm left it
//   batch_norm_backward(context, config, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
//
// gamma, beta and the statistics are [channels]; an absent gamma is 1, an absent beta 0. Training with one value a
// channel is a value_error.
//
// Each direction has three steps: what pieces of the channels come to (reads x, backward dy and x), what the pieces of
// a channel come to together, and the elements (reads the same again, writes y or dx): 12 bytes an element of float,
// backward 20, at the speed of memory or, up to some tens of MB, of the second-level cache. In NHWC (inner 1) channels
// are columns (columns.cuh), and those of one piece, up to 1024 rows, take all three steps in one kernel, of which a
// block reads its columns twice. In NCHW a block takes a piece of a channel. Pieces depend on the config alone, and
// what they give is joined in a fixed order: the same bits on every run.
#pragma once

#include "../config/batch_norm.h"
#include "call_faults.cuh"
#include "columns.cuh"
#include "context.cuh"
#include "moments.cuh"
#include "reduce.cuh"

namespace graven::kernels {

/// Parameters of channels `at` and behind, `value` where there are none.
template <int W, class T>
__device__ inline void load_parameters(T (&to)[W], const T* from, std::int64_t at, T value) {
#pragma unroll
  for (int w = 0; w < W; ++w) to[w] = from != nullptr ? from[at + w] : value;
}

// ---- statistics -----------------------------------------------------------------------------------------------------

/// The moments of a thread's columns; in line 0 those of all its lines.
template <int W, class T>
__device__ inline moments<T, W> column_moments(const column_cut& cut, const column_place& at, const T* x) {
  moments<T, W> m;
  const T* from = x + ((at.begin + at.line) * cut.columns + at.column);
  for (std::int64_t row = at.begin + at.line; row < at.end; row += kRowsAhead * cut.lines()) {
    T rows[kRowsAhead][W];
    load_rows(rows, cut, row, at.end, from, T(0));
    int present = 0;
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) present += row + r * cut.lines() < at.end ? 1 : 0;
    m.add(rows, present);
    from += kRowsAhead * cut.step();
  }
  constexpr int kSize = moments<T, W>::size;
  join_lines(cut, at.line, m.data, [](T(&a)[kSize], const T(&b)[kSize]) {
    moments<T, W> joined;
#pragma unroll
    for (int i = 0; i < kSize; ++i) joined.data[i] = a[i];
    joined.add(b);
#pragma unroll
    for (int i = 0; i < kSize; ++i) a[i] = joined.data[i];
  });
  return m;
}

/// Stores what is wanted of a channel's statistics; 1 / sqrt(var + eps). Behind a number out of range (call_faults.cuh)
/// the running ones stay as they are.
template <class T>
__device__ inline T store_statistics(const batch_norm_config& config, std::int64_t channel, T count, T average,
                                     T squares, T* mean, T* rstd, T* new_running_mean, T* new_running_var,
                                     const T* running_mean, const T* running_var, const call_fault* fault) {
  const bool stays = has_fault(fault);
  const T inverse = T(1) / math::sqrt(squares / count + static_cast<T>(config.eps)),
          momentum = static_cast<T>(config.momentum);
  if (mean != nullptr) mean[channel] = average;
  if (rstd != nullptr) rstd[channel] = inverse;
  if (new_running_mean != nullptr && running_mean != nullptr)
    new_running_mean[channel] =
        stays ? running_mean[channel] : (T(1) - momentum) * running_mean[channel] + momentum * average;
  if (new_running_var != nullptr && running_var != nullptr)
    new_running_var[channel] =
        stays ? running_var[channel] : (T(1) - momentum) * running_var[channel] + momentum * (squares / (count - T(1)));
  return inverse;
}

/// sums is [2, pieces, channels]: the mean, and the sum of squared differences from it. NHWC.
template <int W, class T>
__global__ void __launch_bounds__(kColumnBlock) batch_norm_moments_kernel(column_cut cut, T* sums, const T* x) {
  const column_place at = place_in_columns<W>(cut, 0);
  const moments<T, W> m = column_moments<W>(cut, at, x);
  if (!at.stores()) return;
  T* to = sums + blockIdx.y * cut.columns + at.column;
#pragma unroll
  for (int w = 0; w < W; ++w) {
    to[w] = m.mean(w);
    to[cut.pieces * cut.columns + w] = m.squares(w);
  }
}

/// Where element i of a channel lies, of outer * inner in all. NCHW.
__device__ inline std::int64_t channel_element(const batch_norm_config& config, std::int64_t channel, std::int64_t i) {
  const std::int64_t sample = i / config.inner;
  return (sample * config.channels + channel) * config.inner + (i - sample * config.inner);
}

/// The same of NCHW: a block for each piece of each channel, of `piece` elements.
template <class T>
__global__ void __launch_bounds__(kBlock) batch_norm_plane_moments_kernel(batch_norm_config config, std::int64_t piece,
                                                                          std::int64_t pieces, T* sums, const T* x) {
  const std::int64_t count = config.outer * config.inner;
  for (std::int64_t item = blockIdx.x; item < pieces * config.channels; item += gridDim.x) {
    const std::int64_t channel = item % config.channels, begin = item / config.channels * piece,
                       end = begin + piece < count ? begin + piece : count;
    moments<T> m;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kRowsAhead * kBlock) {
      T values[kRowsAhead][1];
      int present = 0;
#pragma unroll
      for (int r = 0; r < kRowsAhead; ++r) {
        const bool inside = i + r * kBlock < end;
        values[r][0] = inside ? x[channel_element(config, channel, i + r * kBlock)] : T(0);
        present += inside ? 1 : 0;
      }
      m.add(values, present);
    }
    m = block_moments(m);
    if (threadIdx.x == 0) {
      sums[item] = m.mean();
      sums[pieces * config.channels + item] = m.squares();
    }
  }
}

/// Joins the pieces, rows here, of which all but the last are of `piece` elements and that one of `last`. In line 0 the
/// moments of its channel.
template <class T>
__device__ inline moments<T> joined_moments(const column_cut& cut, const column_place& at, T piece, T last,
                                            const T* sums) {
  moments<T> m;
  const T* from = sums + (at.line * cut.columns + at.column);
  for (std::int64_t row = at.line; row < at.end; row += kRowsAhead * cut.lines()) {
    T means[kRowsAhead][1], squares[kRowsAhead][1];
    load_rows(means, cut, row, at.end, from, T(0));
    load_rows(squares, cut, row, at.end, from + cut.rows * cut.columns, T(0));
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      const std::int64_t at_row = row + r * cut.lines();
      const T other[3] = {at_row < at.end ? at_row == cut.rows - 1 ? last : piece : T(0), means[r][0], squares[r][0]};
      m.add(other);
    }
    from += kRowsAhead * cut.step();
  }
  join_lines(cut, at.line, m.data, [](T(&a)[3], const T(&b)[3]) {
    moments<T> joined;
    for (int i = 0; i < 3; ++i) joined.data[i] = a[i];
    joined.add(b);
    for (int i = 0; i < 3; ++i) a[i] = joined.data[i];
  });
  return m;
}

/// `statistics` is [2, channels]: mean and rstd for the next kernel.
template <class T>
__global__ void __launch_bounds__(kColumnBlock)
    batch_norm_statistics_kernel(batch_norm_config config, column_cut cut, T piece, T last, T* statistics, T* mean,
                                 T* rstd, T* new_running_mean, T* new_running_var, const T* sums, const T* running_mean,
                                 const T* running_var, const call_fault* fault) {
  const column_place at = place_in_columns<1>(cut, 0);
  const moments<T> m = joined_moments(cut, at, piece, last, sums);
  if (!at.stores()) return;
  statistics[cut.columns + at.column] =
      store_statistics(config, at.column, m.count(), m.mean(), m.squares(), mean, rstd, new_running_mean,
                       new_running_var, running_mean, running_var, fault);
  statistics[at.column] = m.mean();
}

// ---- elements -------------------------------------------------------------------------------------------------------

/// What the elements of W channels are computed with: y = (x - mean) * scale + offset.
template <int W, class T>
struct batch_norm_factors {
  T mean[W], scale[W], offset[W];

  __device__ void apply(T (&x)[W]) const {
#pragma unroll
    for (int w = 0; w < W; ++w) x[w] = (x[w] - mean[w]) * scale[w] + offset[w];
  }
};

/// `second` is rstd, or the variance where `has_variance`.
template <int W, class T>
__device__ inline batch_norm_factors<W, T> load_factors(std::int64_t channel, bool has_variance, T eps, const T* gamma,
                                                        const T* beta, const T* mean, const T* second) {
  batch_norm_factors<W, T> factors;
  T scale[W];
  load_parameters(factors.mean, mean, channel, T(0));
  load_parameters(factors.scale, second, channel, T(0));
  load_parameters(factors.offset, beta, channel, T(0));
  load_parameters(scale, gamma, channel, T(1));
#pragma unroll
  for (int w = 0; w < W; ++w) {
    if (has_variance) factors.scale[w] = T(1) / math::sqrt(factors.scale[w] + eps);
    factors.scale[w] *= scale[w];
  }
  return factors;
}

/// NHWC: `vectors` of W channels, `across` to a row. The launch's threads are a multiple of `across`, or one for each
/// vector: a thread keeps to its channels.
template <int W, class T>
__global__ void __launch_bounds__(kBlock)
    batch_norm_apply_kernel(std::int64_t vectors, unsigned across, T eps, bool has_variance, T* y, const T* x,
                            const T* gamma, const T* beta, const T* mean, const T* second) {
  const std::int64_t first = first_item(), stride = item_stride();
  const auto factors = load_factors<W>(std::int64_t{static_cast<unsigned>(first) % across} * W, has_variance, eps,
                                       gamma, beta, mean, second);
  for (std::int64_t i = first; i < vectors; i += kRowsAhead * stride) {
    T values[kRowsAhead][W];
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r)
      if (i + r * stride < vectors) load_vector(values[r], x + (i + r * stride) * W);
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r)
      if (i + r * stride < vectors) {
        factors.apply(values[r]);
        store_vector(y + (i + r * stride) * W, values[r]);
      }
  }
}

/// NCHW: vectors of W elements of one channel, `across` to a plane.
template <int W, class T>
__global__ void __launch_bounds__(kBlock)
    batch_norm_apply_planes_kernel(std::int64_t vectors, std::int64_t across, std::int64_t channels, T eps,
                                   bool has_variance, T* y, const T* x, const T* gamma, const T* beta, const T* mean,
                                   const T* second) {
  for (std::int64_t i = first_item(); i < vectors; i += item_stride()) {
    T values[W];
    load_vector(values, x + i * W);
    const auto factors = load_factors<1>(i / across % channels, has_variance, eps, gamma, beta, mean, second);
#pragma unroll
    for (int w = 0; w < W; ++w) values[w] = (values[w] - factors.mean[0]) * factors.scale[0] + factors.offset[0];
    store_vector(y + i * W, values);
  }
}

/// NHWC in one piece, all at once. y may be x.
template <int W, class T>
__global__ void __launch_bounds__(kColumnBlock)
    batch_norm_columns_kernel(batch_norm_config config, column_cut cut, T* y, T* mean, T* rstd, T* new_running_mean,
                              T* new_running_var, const T* x, const T* gamma, const T* beta, const T* running_mean,
                              const T* running_var, const call_fault* fault) {
  __shared__ T shared_mean[kColumnBlock * W], shared_rstd[kColumnBlock * W];
  const column_place at = place_in_columns<W>(cut, 0);
  const int slot = (static_cast<int>(threadIdx.x) & ((1 << cut.lane_bits) - 1)) * W;
  const moments<T, W> m = column_moments<W>(cut, at, x);
  if (at.stores()) {
#pragma unroll
    for (int w = 0; w < W; ++w) {
      shared_mean[slot + w] = m.mean(w);
      shared_rstd[slot + w] = store_statistics(config, at.column + w, m.count(), m.mean(w), m.squares(w), mean, rstd,
                                               new_running_mean, new_running_var, running_mean, running_var, fault);
    }
  }
  __syncthreads();
  if (!at.present) return;
  batch_norm_factors<W, T> factors;
  load_parameters(factors.scale, gamma, at.column, T(1));
  load_parameters(factors.offset, beta, at.column, T(0));
#pragma unroll
  for (int w = 0; w < W; ++w) {
    factors.mean[w] = shared_mean[slot + w];
    factors.scale[w] *= shared_rstd[slot + w];
  }
  for (std::int64_t row = at.line; row < at.end; row += kRowsAhead * cut.lines()) {
    const std::int64_t place = row * cut.columns + at.column;
    T rows[kRowsAhead][W];
    load_rows(rows, cut, row, at.end, x + place, T(0));
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r)
      if (row + r * cut.lines() < at.end) {
        factors.apply(rows[r]);
        store_vector(y + place + r * cut.step(), rows[r]);
      }
  }
}

// ---- gradients ------------------------------------------------------------------------------------------------------

/// Of a thread's columns the sums of dy, and of dy * (x - mean) * rstd; in line 0 those of all its lines.
template <int W, class T>
__device__ inline void column_gradient_sums(const column_cut& cut, const column_place& at, T (&sums)[2 * W],
                                            const T* dy, const T* x, const T* mean, const T* rstd) {
  fill_vector(sums, T(0));
  T centre[W], scale[W];
  load_parameters(centre, at.present ? mean : nullptr, at.column, T(0));
  load_parameters(scale, at.present ? rstd : nullptr, at.column, T(0));
  for (std::int64_t row = at.begin + at.line; row < at.end; row += kRowsAhead * cut.lines()) {
    const std::int64_t place = row * cut.columns + at.column;
    T g[kRowsAhead][W], values[kRowsAhead][W];
    load_rows(g, cut, row, at.end, dy + place, T(0));
    load_rows(values, cut, row, at.end, x + place, T(0));
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      if (row + r * cut.lines() < at.end) {
#pragma unroll
        for (int w = 0; w < W; ++w) {
          sums[w] += g[r][w];
          sums[W + w] += g[r][w] * (values[r][w] - centre[w]);
        }
      }
    }
  }
  join_lines(cut, at.line, sums, [](T(&a)[2 * W], const T(&b)[2 * W]) {
#pragma unroll
    for (int i = 0; i < 2 * W; ++i) a[i] += b[i];
  });
#pragma unroll
  for (int w = 0; w < W; ++w) sums[W + w] *= scale[w];
}

/// sums is [2, pieces, channels]. NHWC.
template <int W, class T>
__global__ void __launch_bounds__(kColumnBlock)
    batch_norm_gradient_sums_kernel(column_cut cut, T* sums, const T* dy, const T* x, const T* mean, const T* rstd) {
  const column_place at = place_in_columns<W>(cut, 0);
  T own[2 * W];
  column_gradient_sums<W>(cut, at, own, dy, x, mean, rstd);
  if (!at.stores()) return;
  T* to = sums + blockIdx.y * cut.columns + at.column;
#pragma unroll
  for (int w = 0; w < W; ++w) {
    to[w] = own[w];
    to[cut.pieces * cut.columns + w] = own[W + w];
  }
}

/// The same of NCHW: a block for each piece of each channel, of `piece` elements.
template <class T>
__global__ void __launch_bounds__(kBlock)
    batch_norm_plane_gradient_sums_kernel(batch_norm_config config, std::int64_t piece, std::int64_t pieces, T* sums,
                                          const T* dy, const T* x, const T* mean, const T* rstd) {
  const std::int64_t count = config.outer * config.inner;
  for (std::int64_t item = blockIdx.x; item < pieces * config.channels; item += gridDim.x) {
    const std::int64_t channel = item % config.channels, begin = item / config.channels * piece,
                       end = begin + piece < count ? begin + piece : count;
    const T centre = mean[channel];
    T sum = 0, products = 0;
#pragma unroll 4
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kBlock) {
      const std::int64_t at = channel_element(config, channel, i);
      sum += dy[at];
      products += dy[at] * (x[at] - centre);
    }
    sum = block_reduce<sum_of>(sum);
    products = block_reduce<sum_of>(products);
    if (threadIdx.x == 0) {
      sums[item] = sum;
      sums[pieces * config.channels + item] = products * rstd[channel];
    }
  }
}

/// What the gradient of W channels' elements is computed with: dx = scale * (dy - shift - (x - mean) * slope).
template <int W, class T>
struct batch_norm_slopes {
  T mean[W], scale[W], shift[W], slope[W];

  /// dy becomes dx.
  __device__ void apply(T (&dy)[W], const T (&x)[W]) const {
#pragma unroll
    for (int w = 0; w < W; ++w) dy[w] = scale[w] * (dy[w] - shift[w] - (x[w] - mean[w]) * slope[w]);
  }
};

/// `share` is 1 / (outer * inner); dgamma and dbeta lie at `channel` of theirs.
template <int W, class T>
__device__ inline batch_norm_slopes<W, T> load_slopes(std::int64_t channel, T share, const T (&dbeta)[W],
                                                      const T (&dgamma)[W], const T* gamma, const T* mean,
                                                      const T* rstd) {
  batch_norm_slopes<W, T> slopes;
  T scale[W];
  load_parameters(slopes.mean, mean, channel, T(0));
  load_parameters(slopes.scale, gamma, channel, T(1));
  load_parameters(scale, rstd, channel, T(0));
#pragma unroll
  for (int w = 0; w < W; ++w) {
    slopes.scale[w] *= scale[w];
    slopes.shift[w] = dbeta[w] * share;
    slopes.slope[w] = dgamma[w] * share * scale[w];
  }
  return slopes;
}

/// As batch_norm_apply_kernel. dx may be dy.
template <int W, class T>
__global__ void __launch_bounds__(kBlock)
    batch_norm_backward_kernel(std::int64_t vectors, unsigned across, T share, T* dx, const T* dgamma, const T* dbeta,
                               const T* dy, const T* x, const T* gamma, const T* mean, const T* rstd) {
  const std::int64_t first = first_item(), stride = item_stride(),
                     channel = std::int64_t{static_cast<unsigned>(first) % across} * W;
  T of_beta[W], of_gamma[W];
  load_parameters(of_beta, dbeta, channel, T(0));
  load_parameters(of_gamma, dgamma, channel, T(0));
  const auto slopes = load_slopes<W>(channel, share, of_beta, of_gamma, gamma, mean, rstd);
  for (std::int64_t i = first; i < vectors; i += kRowsAhead * stride) {
    T g[kRowsAhead][W], values[kRowsAhead][W];
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r)
      if (i + r * stride < vectors) {
        load_vector(g[r], dy + (i + r * stride) * W);
        load_vector(values[r], x + (i + r * stride) * W);
      }
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r)
      if (i + r * stride < vectors) {
        slopes.apply(g[r], values[r]);
        store_vector(dx + (i + r * stride) * W, g[r]);
      }
  }
}

/// As batch_norm_apply_planes_kernel. dx may be dy.
template <int W, class T>
__global__ void __launch_bounds__(kBlock)
    batch_norm_backward_planes_kernel(std::int64_t vectors, std::int64_t across, std::int64_t channels, T share, T* dx,
                                      const T* dgamma, const T* dbeta, const T* dy, const T* x, const T* gamma,
                                      const T* mean, const T* rstd) {
  for (std::int64_t i = first_item(); i < vectors; i += item_stride()) {
    T g[W], values[W];
    load_vector(g, dy + i * W);
    load_vector(values, x + i * W);
    const std::int64_t channel = i / across % channels;
    const T of_beta[1] = {dbeta[channel]}, of_gamma[1] = {dgamma[channel]};
    const auto slopes = load_slopes<1>(channel, share, of_beta, of_gamma, gamma, mean, rstd);
#pragma unroll
    for (int w = 0; w < W; ++w) {
      T one[1] = {g[w]};
      const T value[1] = {values[w]};
      slopes.apply(one, value);
      g[w] = one[0];
    }
    store_vector(dx + i * W, g);
  }
}

/// NHWC in one piece, all at once. dx may be dy; dgamma and dbeta may be nullptr.
template <int W, class T>
__global__ void __launch_bounds__(kColumnBlock)
    batch_norm_backward_columns_kernel(column_cut cut, T share, T* dx, T* dgamma, T* dbeta, const T* dy, const T* x,
                                       const T* gamma, const T* mean, const T* rstd) {
  __shared__ T shared_sums[2 * W][kColumnBlock];
  const column_place at = place_in_columns<W>(cut, 0);
  const int lane = static_cast<int>(threadIdx.x) & ((1 << cut.lane_bits) - 1);
  T sums[2 * W];
  column_gradient_sums<W>(cut, at, sums, dy, x, mean, rstd);
  if (at.stores()) {
#pragma unroll
    for (int w = 0; w < W; ++w) {
      if (dbeta != nullptr) dbeta[at.column + w] = sums[w];
      if (dgamma != nullptr) dgamma[at.column + w] = sums[W + w];
      shared_sums[w][lane] = sums[w];
      shared_sums[W + w][lane] = sums[W + w];
    }
  }
  __syncthreads();
  if (!at.present) return;
  T of_beta[W], of_gamma[W];
#pragma unroll
  for (int w = 0; w < W; ++w) {
    of_beta[w] = shared_sums[w][lane];
    of_gamma[w] = shared_sums[W + w][lane];
  }
  const auto slopes = load_slopes<W>(at.column, share, of_beta, of_gamma, gamma, mean, rstd);
  for (std::int64_t row = at.line; row < at.end; row += kRowsAhead * cut.lines()) {
    const std::int64_t place = row * cut.columns + at.column;
    T g[kRowsAhead][W], values[kRowsAhead][W];
    load_rows(g, cut, row, at.end, dy + place, T(0));
    load_rows(values, cut, row, at.end, x + place, T(0));
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r)
      if (row + r * cut.lines() < at.end) {
        slopes.apply(g[r], values[r]);
        store_vector(dx + place + r * cut.step(), g[r]);
      }
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// Elements of a piece of an NCHW channel: 4096 at least, and as many as make about 1024 blocks.
constexpr std::int64_t plane_piece(const batch_norm_config& config) {
  const std::int64_t count = config.outer * config.inner;
  std::int64_t pieces = count / 4096;
  if (config.channels > 0 && pieces > 1024 / config.channels) pieces = 1024 / config.channels;
  return count > 0 ? divide_up(count, pieces < 1 ? 1 : pieces) : 1;
}

/// For `vectors`, `across` to a row, one thread each up to 1056 blocks, beyond that up to 4 vectors a thread: as many
/// threads as make a multiple of `across`, so that a thread's vectors lie below each other.
inline LaunchShape shape_of_rows(std::int64_t vectors, std::int64_t across) {
  const std::int64_t one_each = divide_up(vectors, kBlock), some_each = divide_up(vectors, kRowsAhead * kBlock);
  std::int64_t blocks = one_each < 1056 ? one_each : some_each > 1056 ? some_each : 1056;
  if (blocks > (std::int64_t{1} << 20)) blocks = std::int64_t{1} << 20;
  std::int64_t unit = across;  // across / gcd(across, kBlock)
  for (int factor = kBlock; factor > 1 && unit % 2 == 0; factor /= 2) unit /= 2;
  if (unit > 0) blocks = divide_up(blocks, unit) * unit;
  if (blocks > one_each) blocks = one_each;
  LaunchShape shape = launch_shape(kBlock);
  shape.blocks = dim3(static_cast<unsigned>(blocks));
  shape.empty = vectors == 0;
  return shape;
}

template <class T>
void batch_norm_apply(CudaContext& context, const char* name, const batch_norm_config& config, bool has_variance, T* y,
                      const T* x, const T* gamma, const T* beta, const T* mean, const T* second) {
  constexpr int kWidth = kFloatWidth<T>;
  const std::int64_t n = config.outer * config.channels * config.inner,
                     line = config.inner == 1 ? config.channels : config.inner;
  const bool vectors = takes_vectors<T>(line, y, x);
  const std::int64_t width = vectors ? kWidth : 1;
  if (config.inner == 1)
    launch(context, name, vectors ? &batch_norm_apply_kernel<kWidth, T> : &batch_norm_apply_kernel<1, T>,
           shape_of_rows(n / width, line / width), n / width, line / width, config.eps, has_variance, y, x, gamma, beta,
           mean, second);
  else
    launch(context, name, vectors ? &batch_norm_apply_planes_kernel<kWidth, T> : &batch_norm_apply_planes_kernel<1, T>,
           launch_shape(n / width), n / width, line / width, config.channels, config.eps, has_variance, y, x, gamma,
           beta, mean, second);
}

}  // namespace detail

namespace detail {

/// What of [outer, channels, inner] a block adds up.
template <class T>
struct batch_norm_pieces {
  batch_norm_config config;
  std::int64_t count;
  bool planes;     ///< NCHW
  column_cut cut;  ///< of NHWC
  std::int64_t piece, pieces;

  explicit batch_norm_pieces(const batch_norm_config& of)
      : config(of), count(of.outer * of.inner), planes(of.inner != 1), cut() {
    if (!planes) cut = cut_columns(1, of.outer, of.channels, width_for<T>(of.channels));
    piece = planes ? plane_piece(of) : cut.piece_rows;
    pieces = planes && count > 0 ? divide_up(count, piece) : cut.pieces;
  }
  /// Two numbers a piece and channel.
  std::int64_t sums() const { return 2 * pieces * config.channels; }
  column_cut joined() const { return cut_columns(1, pieces, config.channels, 1, true); }
  T last() const { return static_cast<T>(count - (pieces - 1) * piece); }

  void moments_of(CudaContext& context, const char* name, bool vectors, T* sums, const T* x) const {
    constexpr int kWidth = kFloatWidth<T>;
    if (planes)
      launch(context, name, &batch_norm_plane_moments_kernel<T>,
             launch_shape(pieces * config.channels * kBlock, kBlock), config, piece, pieces, sums, x);
    else
      launch(context, name, vectors ? &batch_norm_moments_kernel<kWidth, T> : &batch_norm_moments_kernel<1, T>,
             column_shape(cut, vectors ? kWidth : 1), cut, sums, x);
  }
  void gradient_sums_of(CudaContext& context, const char* name, bool vectors, T* sums, const T* dy, const T* x,
                        const T* mean, const T* rstd) const {
    constexpr int kWidth = kFloatWidth<T>;
    if (planes)
      launch(context, name, &batch_norm_plane_gradient_sums_kernel<T>,
             launch_shape(pieces * config.channels * kBlock, kBlock), config, piece, pieces, sums, dy, x, mean, rstd);
    else
      launch(context, name,
             vectors ? &batch_norm_gradient_sums_kernel<kWidth, T> : &batch_norm_gradient_sums_kernel<1, T>,
             column_shape(cut, vectors ? kWidth : 1), cut, sums, dy, x, mean, rstd);
  }
};

/// dx, from `share` of the sums over the elements of a channel.
template <class T>
void batch_norm_gradient(CudaContext& context, const char* name, const batch_norm_config& config, T share, T* dx,
                         const T* dgamma, const T* dbeta, const T* dy, const T* x, const T* gamma, const T* mean,
                         const T* rstd) {
  constexpr int kWidth = kFloatWidth<T>;
  const bool planes = config.inner != 1;
  const std::int64_t n = config.outer * config.channels * config.inner, line = planes ? config.inner : config.channels;
  const bool vectors = takes_vectors<T>(line, dx, dy, x);
  const std::int64_t used = vectors ? kWidth : 1;
  if (planes)
    launch(context, name,
           vectors ? &batch_norm_backward_planes_kernel<kWidth, T> : &batch_norm_backward_planes_kernel<1, T>,
           launch_shape(n / used), n / used, line / used, config.channels, share, dx, dgamma, dbeta, dy, x, gamma, mean,
           rstd);
  else
    launch(context, name, vectors ? &batch_norm_backward_kernel<kWidth, T> : &batch_norm_backward_kernel<1, T>,
           shape_of_rows(n / used, line / used), n / used, line / used, share, dx, dgamma, dbeta, dy, x, gamma, mean,
           rstd);
}

}  // namespace detail

/// y may be x. mean, rstd and the new running statistics may be nullptr.
template <class T>
void batch_norm(CudaContext& context, const batch_norm_config& config, T* y, plain_t<T>* mean, plain_t<T>* rstd,
                plain_t<T>* new_running_mean, plain_t<T>* new_running_var, const T* x, const plain_t<T>* gamma,
                const plain_t<T>* beta, const plain_t<T>* running_mean, const plain_t<T>* running_var) {
  constexpr int kWidth = kFloatWidth<T>;
  const char* name = "batch_norm";
  const std::int64_t count = config.outer * config.inner;
  if (count == 1) throw std::invalid_argument("batch_norm: expects more than 1 value per channel when training");
  const detail::batch_norm_pieces<T> all(config);
  const bool vectors = takes_vectors<T>(config.channels, y, x);
  if (!all.planes && all.pieces == 1) {
    const column_cut& cut = all.cut;
    launch(context, name, vectors ? &batch_norm_columns_kernel<kWidth, T> : &batch_norm_columns_kernel<1, T>,
           column_shape(cut, vectors ? kWidth : 1), config, cut, y, mean, rstd, new_running_mean, new_running_var, x,
           gamma, beta, running_mean, running_var, fault_of_calls(context));
    return;
  }
  T* sums = static_cast<T*>(context.workspace(static_cast<std::size_t>(all.sums() + 2 * config.channels) * sizeof(T)));
  T* statistics = sums + all.sums();
  all.moments_of(context, name, vectors, sums, x);
  const column_cut joined = all.joined();
  launch(context, name, &batch_norm_statistics_kernel<T>, column_shape(joined, 1), config, joined, all.piece,
         all.last(), statistics, mean, rstd, new_running_mean, new_running_var, static_cast<const T*>(sums),
         running_mean, running_var, fault_of_calls(context));
  detail::batch_norm_apply<T>(context, name, config, false, y, x, gamma, beta, statistics,
                              statistics + config.channels);
}

template <class T>
void batch_norm_inference(CudaContext& context, const batch_norm_config& config, T* y, const T* x,
                          const plain_t<T>* gamma, const plain_t<T>* beta, const T* mean, const T* var) {
  detail::batch_norm_apply<T>(context, "batch_norm_inference", config, true, y, x, gamma, beta, mean, var);
}

/// dx may be dy. dgamma and dbeta may be nullptr.
template <class T>
void batch_norm_backward(CudaContext& context, const batch_norm_config& config, T* dx, plain_t<T>* dgamma,
                         plain_t<T>* dbeta, const T* dy, const T* x, const plain_t<T>* gamma, const T* mean,
                         const T* rstd) {
  constexpr int kWidth = kFloatWidth<T>;
  const char* name = "batch_norm_backward";
  const detail::batch_norm_pieces<T> all(config);
  const T share = T(1) / static_cast<T>(all.count);
  const bool vectors = takes_vectors<T>(all.planes ? config.inner : config.channels, dx, dy, x);
  if (!all.planes && all.pieces == 1) {
    launch(context, name,
           vectors ? &batch_norm_backward_columns_kernel<kWidth, T> : &batch_norm_backward_columns_kernel<1, T>,
           column_shape(all.cut, vectors ? kWidth : 1), all.cut, share, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
    return;
  }
  T* sums = static_cast<T*>(context.workspace(static_cast<std::size_t>(all.sums() + 2 * config.channels) * sizeof(T)));
  if (dbeta == nullptr) dbeta = sums + all.sums();
  if (dgamma == nullptr) dgamma = sums + all.sums() + config.channels;
  all.gradient_sums_of(context, name, vectors, sums, dy, x, mean, rstd);
  detail::add_pieces(context, name, config.channels, all.pieces, dbeta, dgamma, static_cast<const T*>(sums));
  detail::batch_norm_gradient<T>(context, name, config, share, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
