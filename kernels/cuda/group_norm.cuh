// group_norm over x[batch, channels, inner] and its gradient; formulas: config/group_norm.h.
//
//   with h = (x - mean) * rstd and g = dy * gamma:
//   dx = rstd * (g - mean(g) - h * mean(g * h)), the means over the group;
//   dgamma[channel] = the sum over batch and inner of dy * h, dbeta = the sum of dy
//
//   group_norm(context, group_norm_config{.batch = 8, .channels = 32, .groups = 4, .inner = 256}, y, mean, rstd, x,
//              gamma, beta);
//
// A group of a sample is a row of x. Rows of up to 1024 vectors of 16 bytes (4096 floats) are a block's, which keeps
// them in its registers: x is read once. Longer ones are cut into pieces, whose moments a first kernel leaves and every
// block of a second one joins, before it reads x again and writes its part of y. Backward sums up dy and dy * h for
// each plane (a channel of a sample, `inner` elements), by a warp or in pieces by blocks; from these dgamma and dbeta
// follow, and what dx needs of its group: dy and x are read twice. gamma and beta may be nullptr (1 and 0), and so may
// mean and rstd where nobody needs the gradient. Pieces depend on the config alone: the same bits on every run.
#pragma once

#include "../config/group_norm.h"
#include "columns.cuh"
#include "context.cuh"
#include "moments.cuh"
#include "reduce.cuh"

namespace graven::kernels {

/// Vectors of a row that a thread keeps, or takes one after the other.
inline constexpr int kGroupVectors = 4;

/// y = (x - mean) * rstd * gamma + beta for W elements of one channel.
template <int W, class T>
__device__ inline void normalise_group(T (&x)[W], T mean, T rstd, std::int64_t channel, const T* gamma, const T* beta) {
  const T factor = gamma != nullptr ? gamma[channel] : T(1), offset = beta != nullptr ? beta[channel] : T(0);
#pragma unroll
  for (int w = 0; w < W; ++w) x[w] = (x[w] - mean) * rstd * factor + offset;
}

/// A block a row, of up to kBlock * kGroupVectors vectors. W divides inner, so that a vector is of one channel.
template <int W, bool Aligned, class T>
__global__ void __launch_bounds__(kBlock)
    group_norm_kernel(group_norm_config config, T* y, T* mean, T* rstd, const T* x, const T* gamma, const T* beta) {
  constexpr int kStep = kBlock * W;
  const std::int64_t each = config.channels / config.groups, size = each * config.inner;
  const int begin = static_cast<int>(threadIdx.x) * W;
  for (std::int64_t row = blockIdx.x; row < config.batch * config.groups; row += gridDim.x) {
    const T* from = x + row * size + begin;
    T held[kGroupVectors][W], sum = 0, squares = 0;
#pragma unroll
    for (int h = 0; h < kGroupVectors; ++h) {
      if (begin + h * kStep < size)
        load_elements<Aligned>(held[h], from + h * kStep);
      else
        fill_vector(held[h], T(0));
    }
#pragma unroll
    for (int h = 0; h < kGroupVectors; ++h)
#pragma unroll
      for (int w = 0; w < W; ++w) sum += held[h][w];
    const T shift = block_reduce<sum_of>(sum) / static_cast<T>(size);
#pragma unroll
    for (int h = 0; h < kGroupVectors; ++h)
      if (begin + h * kStep < size) {
#pragma unroll
        for (int w = 0; w < W; ++w) squares += (held[h][w] - shift) * (held[h][w] - shift);
      }
    const T scale =
        T(1) / math::sqrt(block_reduce<sum_of>(squares) / static_cast<T>(size) + static_cast<T>(config.eps));
#pragma unroll
    for (int h = 0; h < kGroupVectors; ++h)
      if (begin + h * kStep < size) {
        normalise_group(held[h], shift, scale, row % config.groups * each + (begin + h * kStep) / config.inner, gamma,
                        beta);
        store_elements<Aligned>(y + row * size + begin + h * kStep, held[h]);
      }
    if (threadIdx.x == 0) {
      if (mean != nullptr) mean[row] = shift;
      if (rstd != nullptr) rstd[row] = scale;
    }
  }
}

/// A block for each of `pieces` pieces, of `piece` elements, of each row. sums is [2, rows, pieces]: the mean, and the
/// sum of squared differences from it.
template <int W, bool Aligned, class T>
__global__ void __launch_bounds__(kBlock)
    group_norm_moments_kernel(std::int64_t rows, std::int64_t size, std::int64_t piece, std::int64_t pieces, T* sums,
                              const T* x) {
  for (std::int64_t item = blockIdx.x; item < rows * pieces; item += gridDim.x) {
    const std::int64_t row = item / pieces, begin = item % pieces * piece,
                       end = begin + piece < size ? begin + piece : size;
    moments<T> m;
    for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * W; i < end; i += kGroupVectors * kBlock * W) {
      T vectors[kGroupVectors][W], values[kGroupVectors * W][1];
      int present = 0;
#pragma unroll
      for (int r = 0; r < kGroupVectors; ++r) {
        if (i + r * kBlock * W < end) {
          load_elements<Aligned>(vectors[r], x + row * size + i + r * kBlock * W);
          present += W;
        } else {
          fill_vector(vectors[r], T(0));
        }
#pragma unroll
        for (int w = 0; w < W; ++w) values[r * W + w][0] = vectors[r][w];
      }
      m.add(values, present);
    }
    m = block_moments(m);
    if (threadIdx.x == 0) {
      sums[item] = m.mean();
      sums[rows * pieces + item] = m.squares();
    }
  }
}

/// A block for each of `parts` parts, of `part` elements, of each row: joins the row's pieces, of which there are at
/// most kBlock, and writes its part of y.
template <int W, class T>
__global__ void __launch_bounds__(kBlock)
    group_norm_apply_kernel(group_norm_config config, std::int64_t piece, std::int64_t pieces, std::int64_t part,
                            std::int64_t parts, T* y, T* mean, T* rstd, const T* sums, const T* x, const T* gamma,
                            const T* beta) {
  const std::int64_t each = config.channels / config.groups, size = each * config.inner,
                     rows = config.batch * config.groups;
  for (std::int64_t item = blockIdx.x; item < rows * parts; item += gridDim.x) {
    const std::int64_t row = item / parts, begin = item % parts * part, end = begin + part < size ? begin + part : size;
    moments<T> m;
    if (threadIdx.x < pieces) {
      const std::int64_t at = row * pieces + threadIdx.x, count = size - threadIdx.x * piece;
      const T other[3] = {static_cast<T>(count < piece ? count : piece), sums[at], sums[rows * pieces + at]};
      m.add(other);
    }
    m = block_moments(m);
    const T scale = T(1) / math::sqrt(m.variance() + static_cast<T>(config.eps));
    if (threadIdx.x == 0 && begin == 0) {
      if (mean != nullptr) mean[row] = m.mean();
      if (rstd != nullptr) rstd[row] = scale;
    }
    for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * W; i < end; i += kGroupVectors * kBlock * W) {
      T values[kGroupVectors][W];
#pragma unroll
      for (int r = 0; r < kGroupVectors; ++r)
        if (i + r * kBlock * W < end) load_vector(values[r], x + row * size + i + r * kBlock * W);
#pragma unroll
      for (int r = 0; r < kGroupVectors; ++r)
        if (const std::int64_t k = i + r * kBlock * W; k < end) {
          normalise_group(values[r], m.mean(), scale, row % config.groups * each + k / config.inner, gamma, beta);
          store_vector(y + row * size + k, values[r]);
        }
    }
  }
}

/// `Threads`, a warp or a block, for each of `pieces` pieces, of `piece` elements, of each plane. sums is [2, planes,
/// pieces]: of dy, and of dy * h.
template <int Threads, class T>
__global__ void __launch_bounds__(kBlock)
    group_norm_gradient_sums_kernel(group_norm_config config, std::int64_t piece, std::int64_t pieces, T* sums,
                                    const T* dy, const T* x, const T* mean, const T* rstd) {
  const std::int64_t each = config.channels / config.groups, items = config.batch * config.channels * pieces;
  const int thread = static_cast<int>(threadIdx.x) % Threads;
  for (std::int64_t item = first_item() / Threads; item < items; item += item_stride() / Threads) {
    const std::int64_t plane = item / pieces, row = plane / each, begin = item % pieces * piece,
                       end = begin + piece < config.inner ? begin + piece : config.inner;
    const T centre = mean[row];
    T sum = 0, products = 0;
#pragma unroll 4
    for (std::int64_t i = begin + thread; i < end; i += Threads) {
      const std::int64_t at = plane * config.inner + i;
      sum += dy[at];
      products += dy[at] * (x[at] - centre);
    }
    if constexpr (Threads == 32) {
      sum = warp_reduce<sum_of>(sum);
      products = warp_reduce<sum_of>(products);
    } else {
      sum = block_reduce<sum_of>(sum);
      products = block_reduce<sum_of>(products);
    }
    if (thread == 0) {
      sums[item] = sum;
      sums[items + item] = products * rstd[row];
    }
  }
}

/// A warp a channel: adds the pieces of its planes. Either result may be nullptr.
template <class T>
__global__ void __launch_bounds__(kBlock)
    group_norm_parameters_kernel(group_norm_config config, std::int64_t pieces, T* dgamma, T* dbeta, const T* sums) {
  const std::int64_t items = config.batch * config.channels * pieces, count = config.batch * pieces;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t channel = first_item() / 32; channel < config.channels; channel += item_stride() / 32) {
    T sum = 0, products = 0;
#pragma unroll 4
    for (std::int64_t i = lane; i < count; i += 32) {
      const std::int64_t at = (i / pieces * config.channels + channel) * pieces + i % pieces;
      sum += sums[at];
      products += sums[items + at];
    }
    sum = warp_reduce<sum_of>(sum);
    products = warp_reduce<sum_of>(products);
    if (lane == 0) {
      if (dgamma != nullptr) dgamma[channel] = products;
      if (dbeta != nullptr) dbeta[channel] = sum;
    }
  }
}

/// A block for each of `parts` parts, of `part` elements, of each row: adds what its group's planes come to, and writes
/// its part of dx, which may be dy.
template <int W, class T>
__global__ void __launch_bounds__(kBlock)
    group_norm_backward_kernel(group_norm_config config, std::int64_t pieces, std::int64_t part, std::int64_t parts,
                               T* dx, const T* dy, const T* x, const T* gamma, const T* mean, const T* rstd,
                               const T* sums) {
  const std::int64_t each = config.channels / config.groups, size = each * config.inner,
                     rows = config.batch * config.groups, items = config.batch * config.channels * pieces;
  for (std::int64_t item = blockIdx.x; item < rows * parts; item += gridDim.x) {
    const std::int64_t row = item / parts, begin = item % parts * part, end = begin + part < size ? begin + part : size,
                       channel = row % config.groups * each;
    const T centre = mean[row], scale = rstd[row];
    T sum = 0, along = 0;
    for (std::int64_t i = threadIdx.x; i < each * pieces; i += kBlock) {
      const T factor = gamma != nullptr ? gamma[channel + i / pieces] : T(1);
      sum += factor * sums[row * each * pieces + i];
      along += factor * sums[items + row * each * pieces + i];
    }
    sum = block_reduce<sum_of>(sum) / static_cast<T>(size);
    along = block_reduce<sum_of>(along) / static_cast<T>(size) * scale;
    for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * W; i < end; i += kGroupVectors * kBlock * W) {
      T g[kGroupVectors][W], values[kGroupVectors][W];
#pragma unroll
      for (int r = 0; r < kGroupVectors; ++r)
        if (i + r * kBlock * W < end) {
          load_vector(g[r], dy + row * size + i + r * kBlock * W);
          load_vector(values[r], x + row * size + i + r * kBlock * W);
        }
#pragma unroll
      for (int r = 0; r < kGroupVectors; ++r)
        if (const std::int64_t k = i + r * kBlock * W; k < end) {
          const T factor = gamma != nullptr ? gamma[channel + k / config.inner] : T(1);
#pragma unroll
          for (int w = 0; w < W; ++w) g[r][w] = scale * (g[r][w] * factor - sum - (values[r][w] - centre) * along);
          store_vector(dx + row * size + k, g[r]);
        }
    }
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// `size` elements, taken `width` at a time, cut into `count` parts.
struct even_parts {
  std::int64_t part, count;
};
/// Parts of `least` vectors at least, and of all `rows` no more than about `most`.
constexpr even_parts cut_rows(std::int64_t rows, std::int64_t size, int width, std::int64_t least, std::int64_t most) {
  const std::int64_t vectors = size / width;
  std::int64_t count = vectors / least;
  if (rows > 0 && count > most / rows) count = most / rows;
  if (count < 1) count = 1;
  if (vectors == 0) return {.part = 1, .count = 1};
  const std::int64_t part = divide_up(vectors, count) * width;
  return {.part = part, .count = divide_up(size, part)};
}

}  // namespace detail

/// y may be x.
template <class T>
void group_norm(CudaContext& context, const group_norm_config& config, T* y, plain_t<T>* mean, plain_t<T>* rstd,
                const T* x, const plain_t<T>* gamma, const plain_t<T>* beta) {
  constexpr int kWidth = kFloatWidth<T>;
  constexpr bool kSingle = kWidth == 1;
  const char* name = "group_norm";
  const std::int64_t rows = config.batch * config.groups, size = config.channels / config.groups * config.inner;
  const int width = width_for<T>(config.inner);
  const bool aligned = aligned_for_vectors<kWidth>(y, x);
  if (size / width <= kBlock * kGroupVectors) {
    launch(context, name,
           width == 1 ? &group_norm_kernel<1, true, T>
           : aligned  ? &group_norm_kernel<kWidth, true, T>
                      : &group_norm_kernel<kWidth, kSingle, T>,
           launch_shape(rows * kBlock, kBlock), config, y, mean, rstd, x, gamma, beta);
    return;
  }
  // A block of the second kernel has a thread for each piece.
  const detail::even_parts pieces = detail::cut_rows(rows, size, width, 2 * kBlock, kBlock),
                           parts = detail::cut_rows(rows, size, width, kGroupVectors * kBlock, 1 << 20);
  T* sums = static_cast<T*>(context.workspace(2 * static_cast<std::size_t>(rows * pieces.count) * sizeof(T)));
  launch(context, name,
         width == 1 ? &group_norm_moments_kernel<1, true, T>
         : aligned  ? &group_norm_moments_kernel<kWidth, true, T>
                    : &group_norm_moments_kernel<kWidth, kSingle, T>,
         launch_shape(rows * pieces.count * kBlock, kBlock), rows, size, pieces.part, pieces.count, sums, x);
  launch(context, name, width > 1 && aligned ? &group_norm_apply_kernel<kWidth, T> : &group_norm_apply_kernel<1, T>,
         launch_shape(rows * parts.count * kBlock, kBlock), config, pieces.part, pieces.count, parts.part, parts.count,
         y, mean, rstd, static_cast<const T*>(sums), x, gamma, beta);
}

/// dx may be dy. dgamma and dbeta may be nullptr.
template <class T>
void group_norm_backward(CudaContext& context, const group_norm_config& config, T* dx, plain_t<T>* dgamma,
                         plain_t<T>* dbeta, const T* dy, const T* x, const plain_t<T>* gamma, const T* mean,
                         const T* rstd) {
  constexpr int kWidth = kFloatWidth<T>;
  const char* name = "group_norm_backward";
  const std::int64_t planes = config.batch * config.channels, rows = config.batch * config.groups,
                     size = config.channels / config.groups * config.inner;
  const int width = width_for<T>(config.inner);
  const bool vectors = takes_vectors<T>(config.inner, dx, dy, x);
  const detail::even_parts pieces = detail::cut_rows(planes, config.inner, 1, 8 * kBlock, 1056),
                           parts = detail::cut_rows(rows, size, width, kGroupVectors * kBlock, 1 << 20);
  T* sums = static_cast<T*>(context.workspace(2 * static_cast<std::size_t>(planes * pieces.count) * sizeof(T)));
  if (config.inner <= 1024)
    launch(context, name, &group_norm_gradient_sums_kernel<32, T>, launch_shape(planes * 32, kBlock), config,
           pieces.part, pieces.count, sums, dy, x, mean, rstd);
  else
    launch(context, name, &group_norm_gradient_sums_kernel<kBlock, T>,
           launch_shape(planes * pieces.count * kBlock, kBlock), config, pieces.part, pieces.count, sums, dy, x, mean,
           rstd);
  if (dgamma != nullptr || dbeta != nullptr)
    launch(context, name, &group_norm_parameters_kernel<T>, launch_shape(config.channels * 32, kBlock), config,
           pieces.count, dgamma, dbeta, static_cast<const T*>(sums));
  // Last, since dx may lie where dy does.
  launch(context, name, vectors ? &group_norm_backward_kernel<kWidth, T> : &group_norm_backward_kernel<1, T>,
         launch_shape(rows * parts.count * kBlock, kBlock), config, pieces.count, parts.part, parts.count, dx, dy, x,
         gamma, mean, rstd, static_cast<const T*>(sums));
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
