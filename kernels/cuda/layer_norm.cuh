// layer_norm and rms_norm over the rows of x[rows, size], and their gradients; formulas: config/layer_norm.h.
//
//   layer_norm: y = h * gamma + beta, h = (x - mean) * rstd;   rms_norm: y = h * gamma, h = x * rstd
//   with g = dy * gamma:   dx = rstd * (g - mean(g) - h * mean(g * h)), rms_norm without mean(g);
//   dgamma = sum of dy * h, dbeta = sum of dy
//
//   layer_norm(context, layer_norm_config{.rows = 1024, .size = 768}, y, mean, rstd, x, gamma, beta);
//
// Rows of up to 256 vectors of 16 bytes (1024 floats) are a warp's, longer ones a block's. A row is read once and kept
// in registers, up to 4096 floats; what exceeds those is read again for each pass: mean, squares, result. Backward
// reads dy and x once for dx, and once for dgamma and dbeta, whose columns are those of columns.cuh. gamma and beta may
// be nullptr (1 and 0), and so may mean and rstd where nobody needs the gradient. Orders of summation depend on the
// config alone: the same bits on every run.
#pragma once

#include "../config/layer_norm.h"
#include "columns.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// Vectors of its row that a thread keeps, of a warp and of a block of kBlock.
template <int Threads>
inline constexpr int kRowVectors = Threads == 32 ? 8 : 4;

template <bool Centred, int Threads, int W, bool Aligned, class T>
__global__ void __launch_bounds__(kBlock)
    layer_norm_kernel(layer_norm_config config, T* y, T* mean, T* rstd, const T* x, const T* gamma, const T* beta) {
  constexpr int kHeld = kRowVectors<Threads>, kStep = Threads * W;
  const int begin = static_cast<int>(threadIdx.x) % Threads * W;
  const std::int64_t size = config.size, rest = Threads == 32 ? config.size : begin + kHeld * kStep;
  for (std::int64_t row = first_item() / Threads; row < config.rows; row += item_stride() / Threads) {
    const T* from = x + row * size;
    T held[kHeld][W], shift = 0, squares = 0;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      if (begin + h * kStep < size)
        load_elements<Aligned>(held[h], from + begin + h * kStep);
      else
        fill_vector(held[h], T(0));
    }
    if constexpr (Centred) {
      T sum = 0;
#pragma unroll
      for (int h = 0; h < kHeld; ++h)
#pragma unroll
        for (int w = 0; w < W; ++w) sum += held[h][w];
#pragma unroll 4
      for (std::int64_t i = rest; i < size; i += kStep) {
        T values[W];
        load_elements<Aligned>(values, from + i);
#pragma unroll
        for (int w = 0; w < W; ++w) sum += values[w];
      }
      shift = row_reduce<sum_of, Threads>(sum) / static_cast<T>(size);
    }
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      if (begin + h * kStep < size) {
#pragma unroll
        for (int w = 0; w < W; ++w) squares += (held[h][w] - shift) * (held[h][w] - shift);
      }
#pragma unroll 4
    for (std::int64_t i = rest; i < size; i += kStep) {
      T values[W];
      load_elements<Aligned>(values, from + i);
#pragma unroll
      for (int w = 0; w < W; ++w) squares += (values[w] - shift) * (values[w] - shift);
    }
    const T scale =
        T(1) / math::sqrt(row_reduce<sum_of, Threads>(squares) / static_cast<T>(size) + static_cast<T>(config.eps));
    const auto store = [&](T(&values)[W], std::int64_t i) {
      T factors[W], offsets[W];
      fill_vector(factors, T(1));
      fill_vector(offsets, T(0));
      if (gamma != nullptr) load_elements<Aligned>(factors, gamma + i);
      if (beta != nullptr) load_elements<Aligned>(offsets, beta + i);
#pragma unroll
      for (int w = 0; w < W; ++w) values[w] = (values[w] - shift) * scale * factors[w] + offsets[w];
      store_elements<Aligned>(y + row * size + i, values);
    };
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      if (begin + h * kStep < size) store(held[h], begin + h * kStep);
    for (std::int64_t i = rest; i < size; i += kStep) {
      T values[W];
      load_elements<Aligned>(values, from + i);
      store(values, i);
    }
    if (begin == 0) {
      if (mean != nullptr) mean[row] = shift;
      if (rstd != nullptr) rstd[row] = scale;
    }
  }
}

/// `mean` is nullptr where rows are not Centred.
template <bool Centred, int Threads, int W, bool Aligned, class T>
__global__ void __launch_bounds__(kBlock)
    layer_norm_backward_kernel(layer_norm_config config, T* dx, const T* dy, const T* x, const T* gamma, const T* mean,
                               const T* rstd) {
  constexpr int kHeld = kRowVectors<Threads>, kStep = Threads * W;
  const int begin = static_cast<int>(threadIdx.x) % Threads * W;
  const std::int64_t size = config.size, rest = Threads == 32 ? config.size : begin + kHeld * kStep;
  for (std::int64_t row = first_item() / Threads; row < config.rows; row += item_stride() / Threads) {
    const std::int64_t first = row * size;
    const T shift = Centred ? mean[row] : T(0), scale = rstd[row];
    // g = dy * gamma, h = (x - mean) * rstd
    const auto load = [&](T(&g)[W], T(&h)[W], std::int64_t i) {
      T factors[W];
      fill_vector(factors, T(1));
      load_elements<Aligned>(g, dy + first + i);
      load_elements<Aligned>(h, x + first + i);
      if (gamma != nullptr) load_elements<Aligned>(factors, gamma + i);
#pragma unroll
      for (int w = 0; w < W; ++w) {
        g[w] *= factors[w];
        h[w] = (h[w] - shift) * scale;
      }
    };
    T g[kHeld][W], h[kHeld][W], sum = 0, along = 0;
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (begin + k * kStep < size) {
        load(g[k], h[k], begin + k * kStep);
      } else {
        fill_vector(g[k], T(0));
        fill_vector(h[k], T(0));
      }
    }
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
#pragma unroll
      for (int w = 0; w < W; ++w) {
        sum += g[k][w];
        along += g[k][w] * h[k][w];
      }
#pragma unroll 2
    for (std::int64_t i = rest; i < size; i += kStep) {
      T more_g[W], more_h[W];
      load(more_g, more_h, i);
#pragma unroll
      for (int w = 0; w < W; ++w) {
        sum += more_g[w];
        along += more_g[w] * more_h[w];
      }
    }
    sum = Centred ? row_reduce<sum_of, Threads>(sum) / static_cast<T>(size) : T(0);
    along = row_reduce<sum_of, Threads>(along) / static_cast<T>(size);
    const auto store = [&](T(&values)[W], const T(&along_h)[W], std::int64_t i) {
#pragma unroll
      for (int w = 0; w < W; ++w) values[w] = scale * (values[w] - (sum + along_h[w] * along));
      store_elements<Aligned>(dx + first + i, values);
    };
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (begin + k * kStep < size) store(g[k], h[k], begin + k * kStep);
    for (std::int64_t i = rest; i < size; i += kStep) {
      T more_g[W], more_h[W];
      load(more_g, more_h, i);
      store(more_g, more_h, i);
    }
  }
}

/// dbeta and dgamma [pieces, size]: the sums of dy, and of dy * h. Either may be nullptr.
template <bool Centred, int W, class T>
__global__ void __launch_bounds__(kColumnBlock)
    layer_norm_gradient_sums_kernel(column_cut cut, T* dbeta, T* dgamma, const T* dy, const T* x, const T* mean,
                                    const T* rstd) {
  const column_place at = place_in_columns<W>(cut, 0);
  T sums[2 * W];
  fill_vector(sums, T(0));
  for (std::int64_t row = at.begin + at.line; row < at.end; row += kRowsAhead * cut.lines()) {
    const std::int64_t place = row * cut.columns + at.column;
    T g[kRowsAhead][W], h[kRowsAhead][W], shift[kRowsAhead][1], scale[kRowsAhead][1];
    load_rows(g, cut, row, at.end, dy + place, T(0));
    load_rows(h, cut, row, at.end, x + place, T(0));
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      const bool inside = row + r * cut.lines() < at.end;
      shift[r][0] = Centred && inside ? mean[row + r * cut.lines()] : T(0);
      scale[r][0] = inside ? rstd[row + r * cut.lines()] : T(0);
    }
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r)
#pragma unroll
      for (int w = 0; w < W; ++w) {
        sums[w] += g[r][w];
        sums[W + w] += g[r][w] * (h[r][w] - shift[r][0]) * scale[r][0];
      }
  }
  join_lines(cut, at.line, sums, [](T(&a)[2 * W], const T(&b)[2 * W]) {
#pragma unroll
    for (int i = 0; i < 2 * W; ++i) a[i] += b[i];
  });
  if (!at.stores()) return;
  const std::int64_t to = blockIdx.y * cut.columns + at.column;
#pragma unroll
  for (int w = 0; w < W; ++w) {
    if (dbeta != nullptr) dbeta[to + w] = sums[w];
    if (dgamma != nullptr) dgamma[to + w] = sums[W + w];
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// A kernel for rows of `size`: of kernels for a warp and for a block, with vectors, with as many elements one by one,
/// and with single elements.
template <class Kernel>
struct row_kernels {
  Kernel* warp[3];
  Kernel* block[3];
};

/// Calls use(kernel, launch shape).
template <class T, class Kernel, class Use>
void with_row_kernel(std::int64_t rows, std::int64_t size, bool aligned, const row_kernels<Kernel>& kernels,
                     const Use& use) {
  const int width = width_for<T>(size), which = width == 1 ? 2 : aligned ? 0 : 1;
  if (size / width <= 32 * kRowVectors<32>)
    use(kernels.warp[which], row_launch_shape<32>(rows));
  else
    use(kernels.block[which], row_launch_shape<kBlock>(rows));
}

template <bool Centred, class T>
void layer_norm(CudaContext& context, const char* name, const layer_norm_config& config, T* y, T* mean, T* rstd,
                const T* x, const T* gamma, const T* beta) {
  constexpr int kWidth = kFloatWidth<T>;
  const row_kernels<void(layer_norm_config, T*, T*, T*, const T*, const T*, const T*)> kernels = {
      {&layer_norm_kernel<Centred, 32, kWidth, true, T>, &layer_norm_kernel<Centred, 32, kWidth, false, T>,
       &layer_norm_kernel<Centred, 32, 1, true, T>},
      {&layer_norm_kernel<Centred, kBlock, kWidth, true, T>, &layer_norm_kernel<Centred, kBlock, kWidth, false, T>,
       &layer_norm_kernel<Centred, kBlock, 1, true, T>}};
  with_row_kernel<T>(config.rows, config.size, aligned_for_vectors<kWidth>(y, x, gamma, beta), kernels,
                     [&](auto* kernel, const LaunchShape& shape) {
                       launch(context, name, kernel, shape, config, y, mean, rstd, x, gamma, beta);
                     });
}

template <bool Centred, class T>
void layer_norm_backward(CudaContext& context, const char* name, const layer_norm_config& config, T* dx, T* dgamma,
                         T* dbeta, const T* dy, const T* x, const T* gamma, const T* mean, const T* rstd) {
  constexpr int kWidth = kFloatWidth<T>;
  if (dgamma != nullptr || dbeta != nullptr) {
    const int width = width_for<T>(config.size);
    const bool vectors = takes_vectors<T>(config.size, dy, x);
    const column_cut cut = cut_columns(1, config.rows, config.size, width);
    T *of_beta = dbeta, *of_gamma = dgamma, *sums = nullptr;
    const std::int64_t items = cut.pieces * config.size;
    if (cut.pieces > 1) {
      sums = static_cast<T*>(context.workspace(2 * static_cast<std::size_t>(items) * sizeof(T)));
      of_beta = sums;
      of_gamma = sums + items;
    }
    launch(context, name,
           vectors ? &layer_norm_gradient_sums_kernel<Centred, kWidth, T>
                   : &layer_norm_gradient_sums_kernel<Centred, 1, T>,
           column_shape(cut, vectors ? kWidth : 1), cut, of_beta, of_gamma, dy, x, mean, rstd);
    if (cut.pieces > 1) add_pieces(context, name, config.size, cut.pieces, dbeta, dgamma, static_cast<const T*>(sums));
  }
  // Last, since dx may lie where dy does.
  const row_kernels<void(layer_norm_config, T*, const T*, const T*, const T*, const T*, const T*)> kernels = {
      {&layer_norm_backward_kernel<Centred, 32, kWidth, true, T>,
       &layer_norm_backward_kernel<Centred, 32, kWidth, false, T>,
       &layer_norm_backward_kernel<Centred, 32, 1, true, T>},
      {&layer_norm_backward_kernel<Centred, kBlock, kWidth, true, T>,
       &layer_norm_backward_kernel<Centred, kBlock, kWidth, false, T>,
       &layer_norm_backward_kernel<Centred, kBlock, 1, true, T>}};
  with_row_kernel<T>(config.rows, config.size, aligned_for_vectors<kWidth>(dx, dy, x, gamma), kernels,
                     [&](auto* kernel, const LaunchShape& shape) {
                       launch(context, name, kernel, shape, config, dx, dy, x, gamma, mean, rstd);
                     });
}

}  // namespace detail

/// y may be x.
template <class T>
void layer_norm(CudaContext& context, const layer_norm_config& config, T* y, plain_t<T>* mean, plain_t<T>* rstd,
                const T* x, const plain_t<T>* gamma, const plain_t<T>* beta) {
  detail::layer_norm<true, T>(context, "layer_norm", config, y, mean, rstd, x, gamma, beta);
}
template <class T>
void rms_norm(CudaContext& context, const layer_norm_config& config, T* y, plain_t<T>* rstd, const T* x,
              const plain_t<T>* gamma) {
  detail::layer_norm<false, T>(context, "rms_norm", config, y, nullptr, rstd, x, gamma, nullptr);
}
/// dx may be dy. dgamma and dbeta may be nullptr.
template <class T>
void layer_norm_backward(CudaContext& context, const layer_norm_config& config, T* dx, plain_t<T>* dgamma,
                         plain_t<T>* dbeta, const T* dy, const T* x, const plain_t<T>* gamma, const T* mean,
                         const T* rstd) {
  detail::layer_norm_backward<true, T>(context, "layer_norm_backward", config, dx, dgamma, dbeta, dy, x, gamma, mean,
                                       rstd);
}
template <class T>
void rms_norm_backward(CudaContext& context, const layer_norm_config& config, T* dx, plain_t<T>* dgamma, const T* dy,
                       const T* x, const plain_t<T>* gamma, const T* rstd) {
  detail::layer_norm_backward<false, T>(context, "rms_norm_backward", config, dx, dgamma, nullptr, dy, x, gamma,
                                        nullptr, rstd);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
