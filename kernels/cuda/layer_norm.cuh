// layer_norm and rms_norm over the rows of x[rows, size], and their gradients; formulas: config/layer_norm.h.
//
//   layer_norm: y = h * gamma + beta, h = (x - mean) * rstd;   rms_norm: y = h * gamma, h = x * rstd
//   with g = dy * gamma:   dx = rstd * (g - mean(g) - h * mean(g * h)), rms_norm without mean(g);
//   dgamma = sum of dy * h, dbeta = sum of dy
//
//   layer_norm(context, layer_norm_config{.rows = 1024, .size = 768}, y, mean, rstd, x, gamma, beta);
//
// A block a row. gamma and beta may be nullptr (1 and 0), and so may mean and rstd where nobody needs the gradient.
// Sums over rows are cut into pieces and added in their order: the same bits on every run.
#pragma once

#include "../config/layer_norm.h"
#include "context.cuh"
#include "moments.cuh"
#include "reduce.cuh"

namespace graven::kernels {

template <bool Centred, class T>
__global__ void layer_norm_kernel(layer_norm_config config, T* y, T* mean, T* rstd, const T* x, const T* gamma,
                                  const T* beta) {
  for (std::int64_t row = blockIdx.x; row < config.rows; row += gridDim.x) {
    const T* from = x + row * config.size;
    T shift = 0, variance = 0;
    if constexpr (Centred) {
      moments<T> m;
      for (std::int64_t i = threadIdx.x; i < config.size; i += blockDim.x) m.add(from[i]);
      m = block_moments(m);
      shift = m.mean;
      variance = m.variance();
    } else {
      for (std::int64_t i = threadIdx.x; i < config.size; i += blockDim.x) variance += from[i] * from[i];
      variance = block_reduce<sum_of>(variance) / static_cast<T>(config.size);
    }
    const T scale = T(1) / math::sqrt(variance + static_cast<T>(config.eps));
    for (std::int64_t i = threadIdx.x; i < config.size; i += blockDim.x)
      y[row * config.size + i] =
          (from[i] - shift) * scale * (gamma != nullptr ? gamma[i] : T(1)) + (beta != nullptr ? beta[i] : T(0));
    if (threadIdx.x == 0) {
      if (mean != nullptr) mean[row] = shift;
      if (rstd != nullptr) rstd[row] = scale;
    }
  }
}

/// `mean` is nullptr where rows are not Centred.
template <bool Centred, class T>
__global__ void layer_norm_backward_kernel(layer_norm_config config, T* dx, const T* dy, const T* x, const T* gamma,
                                           const T* mean, const T* rstd) {
  for (std::int64_t row = blockIdx.x; row < config.rows; row += gridDim.x) {
    const std::int64_t first = row * config.size;
    const T shift = Centred ? mean[row] : T(0), scale = rstd[row];
    T sum = 0, along = 0;
    for (std::int64_t i = threadIdx.x; i < config.size; i += blockDim.x) {
      const T g = dy[first + i] * (gamma != nullptr ? gamma[i] : T(1));
      sum += g;
      along += g * (x[first + i] - shift) * scale;
    }
    sum = Centred ? block_reduce<sum_of>(sum) : T(0);
    along = block_reduce<sum_of>(along);
    for (std::int64_t i = threadIdx.x; i < config.size; i += blockDim.x) {
      const T g = dy[first + i] * (gamma != nullptr ? gamma[i] : T(1)), h = (x[first + i] - shift) * scale;
      dx[first + i] = scale * (g - (sum + h * along) / static_cast<T>(config.size));
    }
  }
}

/// A thread for each piece of each column; sums is [2, pieces, size]: of dy, and of dy * h.
template <bool Centred, class T>
__global__ void layer_norm_gradient_sums_kernel(layer_norm_config config, std::int64_t pieces, T* sums, const T* dy,
                                                const T* x, const T* mean, const T* rstd) {
  const std::int64_t items = pieces * config.size;
  for (std::int64_t item = first_item(); item < items; item += item_stride()) {
    const std::int64_t piece = item / config.size, i = item % config.size;
    T sum = 0, products = 0;
    for (std::int64_t row = config.rows * piece / pieces; row < config.rows * (piece + 1) / pieces; ++row) {
      const std::int64_t at = row * config.size + i;
      sum += dy[at];
      products += dy[at] * (x[at] - (Centred ? mean[row] : T(0))) * rstd[row];
    }
    sums[item] = sum;
    sums[items + item] = products;
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

template <bool Centred, class T>
void layer_norm_backward(CudaContext& context, const char* name, const layer_norm_config& config, T* dx, T* dgamma,
                         T* dbeta, const T* dy, const T* x, const T* gamma, const T* mean, const T* rstd) {
  if (dgamma != nullptr || dbeta != nullptr) {
    std::int64_t pieces = config.rows / 32;
    if (config.size > 0 && pieces > 65536 / config.size) pieces = 65536 / config.size;
    if (pieces < 1) pieces = 1;
    T* sums = static_cast<T*>(context.workspace(2 * static_cast<std::size_t>(pieces * config.size) * sizeof(T)));
    launch(context, name, &layer_norm_gradient_sums_kernel<Centred, T>, launch_shape(pieces * config.size), config,
           pieces, sums, dy, x, mean, rstd);
    add_pieces(context, name, config.size, pieces, dbeta, dgamma, static_cast<const T*>(sums));
  }
  // Last, since dx may lie where dy does.
  launch(context, name, &layer_norm_backward_kernel<Centred, T>, launch_shape(config.rows * kBlock, kBlock), config, dx,
         dy, x, gamma, mean, rstd);
}

}  // namespace detail

/// y may be x.
template <class T>
void layer_norm(CudaContext& context, const layer_norm_config& config, T* y, plain_t<T>* mean, plain_t<T>* rstd,
                const T* x, const plain_t<T>* gamma, const plain_t<T>* beta) {
  launch(context, "layer_norm", &layer_norm_kernel<true, T>, launch_shape(config.rows * kBlock, kBlock), config, y,
         mean, rstd, x, gamma, beta);
}
template <class T>
void rms_norm(CudaContext& context, const layer_norm_config& config, T* y, plain_t<T>* rstd, const T* x,
              const plain_t<T>* gamma) {
  launch(context, "rms_norm", &layer_norm_kernel<false, T>, launch_shape(config.rows * kBlock, kBlock), config, y,
         static_cast<T*>(nullptr), rstd, x, gamma, static_cast<const T*>(nullptr));
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
