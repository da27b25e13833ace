// group_norm over x[batch, channels, inner] and its gradient; formulas: config/group_norm.h.
//
//   with h = (x - mean) * rstd and g = dy * gamma:
//   dx = rstd * (g - mean(g) - h * mean(g * h)), the means over the group;
//   dgamma[channel] = the sum over batch and inner of dy * h, dbeta = the sum of dy
//
//   group_norm(context, group_norm_config{.batch = 8, .channels = 32, .groups = 4, .inner = 256}, y, mean, rstd, x,
//              gamma, beta);
//
// A block for each group of each sample. gamma and beta may be nullptr (1 and 0), and so may mean and rstd where nobody
// needs the gradient.
#pragma once

#include "../config/group_norm.h"
#include "context.cuh"
#include "moments.cuh"
#include "reduce.cuh"

namespace graven::kernels {

template <class T>
__global__ void group_norm_kernel(group_norm_config config, T* y, T* mean, T* rstd, const T* x, const T* gamma,
                                  const T* beta) {
  const std::int64_t each = config.channels / config.groups, size = each * config.inner;
  for (std::int64_t row = blockIdx.x; row < config.batch * config.groups; row += gridDim.x) {
    moments<T> m;
    for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) m.add(x[row * size + i]);
    m = block_moments(m);
    const T scale = T(1) / math::sqrt(m.variance() + static_cast<T>(config.eps));
    for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const std::int64_t channel = row % config.groups * each + i / config.inner;
      y[row * size + i] = (x[row * size + i] - m.mean) * scale * (gamma != nullptr ? gamma[channel] : T(1)) +
                          (beta != nullptr ? beta[channel] : T(0));
    }
    if (threadIdx.x == 0) {
      if (mean != nullptr) mean[row] = m.mean;
      if (rstd != nullptr) rstd[row] = scale;
    }
  }
}

template <class T>
__global__ void group_norm_backward_kernel(group_norm_config config, T* dx, const T* dy, const T* x, const T* gamma,
                                           const T* mean, const T* rstd) {
  const std::int64_t each = config.channels / config.groups, size = each * config.inner;
  for (std::int64_t row = blockIdx.x; row < config.batch * config.groups; row += gridDim.x) {
    const std::int64_t first = row * size, channel = row % config.groups * each;
    T sum = 0, along = 0;
    for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const T g = dy[first + i] * (gamma != nullptr ? gamma[channel + i / config.inner] : T(1));
      sum += g;
      along += g * (x[first + i] - mean[row]) * rstd[row];
    }
    sum = block_reduce<sum_of>(sum);
    along = block_reduce<sum_of>(along);
    for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const T g = dy[first + i] * (gamma != nullptr ? gamma[channel + i / config.inner] : T(1)),
              h = (x[first + i] - mean[row]) * rstd[row];
      dx[first + i] = rstd[row] * (g - (sum + h * along) / static_cast<T>(size));
    }
  }
}

/// A block a channel.
template <class T>
__global__ void group_norm_gradient_sums_kernel(group_norm_config config, T* dgamma, T* dbeta, const T* dy, const T* x,
                                                const T* mean, const T* rstd) {
  const std::int64_t each = config.channels / config.groups;
  for (std::int64_t channel = blockIdx.x; channel < config.channels; channel += gridDim.x) {
    T sum = 0, products = 0;
    for (std::int64_t i = threadIdx.x; i < config.batch * config.inner; i += blockDim.x) {
      const std::int64_t sample = i / config.inner, row = sample * config.groups + channel / each;
      const std::int64_t at = (sample * config.channels + channel) * config.inner + i % config.inner;
      sum += dy[at];
      products += dy[at] * (x[at] - mean[row]) * rstd[row];
    }
    sum = block_reduce<sum_of>(sum);
    products = block_reduce<sum_of>(products);
    if (threadIdx.x == 0) {
      if (dgamma != nullptr) dgamma[channel] = products;
      if (dbeta != nullptr) dbeta[channel] = sum;
    }
  }
}

#ifndef __CUDACC_RTC__

/// y may be x.
template <class T>
void group_norm(CudaContext& context, const group_norm_config& config, T* y, plain_t<T>* mean, plain_t<T>* rstd,
                const T* x, const plain_t<T>* gamma, const plain_t<T>* beta) {
  launch(context, "group_norm", &group_norm_kernel<T>, launch_shape(config.batch * config.groups * kBlock, kBlock),
         config, y, mean, rstd, x, gamma, beta);
}
/// dx may be dy. dgamma and dbeta may be nullptr.
template <class T>
void group_norm_backward(CudaContext& context, const group_norm_config& config, T* dx, plain_t<T>* dgamma,
                         plain_t<T>* dbeta, const T* dy, const T* x, const plain_t<T>* gamma, const T* mean,
                         const T* rstd) {
  if (dgamma != nullptr || dbeta != nullptr)
    launch(context, "group_norm_backward", &group_norm_gradient_sums_kernel<T>,
           launch_shape(config.channels * kBlock, kBlock), config, dgamma, dbeta, dy, x, mean, rstd);
  // Last, since dx may lie where dy does.
  launch(context, "group_norm_backward", &group_norm_backward_kernel<T>,
         launch_shape(config.batch * config.groups * kBlock, kBlock), config, dx, dy, x, gamma, mean, rstd);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
