// batch_norm over x[outer, channels, inner] in training and inference, and its gradient; formulas: config/batch_norm.h.
//
//   batch_norm(context, batch_norm_config{.outer = 64, .channels = 32}, y, mean, rstd, new_running_mean,
//              new_running_var, x, gamma, beta, running_mean, running_var);
//   // rstd = 1 / sqrt(var + eps), as batch_norm left it
//   batch_norm_backward(context, config, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
//
// gamma, beta and the statistics are [channels]; an absent gamma is 1, an absent beta 0. A channel's elements are cut
// into pieces whose borders depend on the config alone, and what the pieces give is joined in their order: the same
// bits on every run. Training with one value a channel is a value_error.
#pragma once

#include "../config/batch_norm.h"
#include "context.cuh"
#include "moments.cuh"
#include "reduce.cuh"

namespace graven::kernels {

/// Where element i of a channel lies, of outer * inner in all.
__device__ inline std::int64_t channel_element(const batch_norm_config& config, std::int64_t channel, std::int64_t i) {
  return config.inner == 1 ? i * config.channels + channel
                           : (i / config.inner * config.channels + channel) * config.inner + i % config.inner;
}

/// What the pieces of the channels sum up. NHWC (inner = 1): a thread for each piece of each channel, neighbours read
/// neighbouring channels. Otherwise a block, whose threads read neighbouring elements. sums is [pieces, channels].
template <class T>
__global__ void batch_norm_moments_kernel(batch_norm_config config, std::int64_t pieces, moments<T>* sums, const T* x) {
  const std::int64_t count = config.outer * config.inner;
  const bool alone = config.inner == 1;
  const std::int64_t first = alone ? first_item() : blockIdx.x, stride = alone ? item_stride() : gridDim.x;
  for (std::int64_t item = first; item < pieces * config.channels; item += stride) {
    const std::int64_t piece = item / config.channels, channel = item % config.channels;
    const std::int64_t begin = count * piece / pieces, end = count * (piece + 1) / pieces;
    moments<T> m;
    for (std::int64_t i = begin + (alone ? 0 : threadIdx.x); i < end; i += alone ? 1 : blockDim.x)
      m.add(x[channel_element(config, channel, i)]);
    if (!alone) m = block_moments(m);
    if (alone || threadIdx.x == 0) sums[item] = m;
  }
}

/// A thread a channel. statistics is [2, channels]: mean and rstd for the next kernel.
template <class T>
__global__ void batch_norm_statistics_kernel(batch_norm_config config, std::int64_t pieces, T* statistics, T* mean,
                                             T* rstd, T* new_running_mean, T* new_running_var, const moments<T>* sums,
                                             const T* running_mean, const T* running_var) {
  for (std::int64_t c = first_item(); c < config.channels; c += item_stride()) {
    moments<T> m;
    for (std::int64_t piece = 0; piece < pieces; ++piece) m.add(sums[piece * config.channels + c]);
    const T inverse = T(1) / math::sqrt(m.variance() + static_cast<T>(config.eps)),
            momentum = static_cast<T>(config.momentum);
    statistics[c] = m.mean;
    statistics[config.channels + c] = inverse;
    if (mean != nullptr) mean[c] = m.mean;
    if (rstd != nullptr) rstd[c] = inverse;
    if (new_running_mean != nullptr && running_mean != nullptr)
      new_running_mean[c] = (T(1) - momentum) * running_mean[c] + momentum * m.mean;
    if (new_running_var != nullptr && running_var != nullptr)
      new_running_var[c] = (T(1) - momentum) * running_var[c] + momentum * (m.squares / (m.count - T(1)));
  }
}

/// `second` is rstd, or the variance where `has_variance`.
template <class T>
__global__ void batch_norm_apply_kernel(batch_norm_config config, bool has_variance, T* y, const T* x, const T* gamma,
                                        const T* beta, const T* mean, const T* second) {
  const std::int64_t n = config.outer * config.channels * config.inner;
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t c = i / config.inner % config.channels;
    const T rstd = has_variance ? T(1) / math::sqrt(second[c] + static_cast<T>(config.eps)) : second[c];
    y[i] = (x[i] - mean[c]) * (rstd * (gamma != nullptr ? gamma[c] : T(1))) + (beta != nullptr ? beta[c] : T(0));
  }
}

/// As batch_norm_moments_kernel; sums is [2, pieces, channels]: of dy, and of dy * (x - mean) * rstd.
template <class T>
__global__ void batch_norm_gradient_sums_kernel(batch_norm_config config, std::int64_t pieces, T* sums, const T* dy,
                                                const T* x, const T* mean, const T* rstd) {
  const std::int64_t count = config.outer * config.inner, items = pieces * config.channels;
  const bool alone = config.inner == 1;
  const std::int64_t first = alone ? first_item() : blockIdx.x, stride = alone ? item_stride() : gridDim.x;
  for (std::int64_t item = first; item < items; item += stride) {
    const std::int64_t piece = item / config.channels, channel = item % config.channels;
    const std::int64_t begin = count * piece / pieces, end = count * (piece + 1) / pieces;
    T sum = 0, products = 0;
    for (std::int64_t i = begin + (alone ? 0 : threadIdx.x); i < end; i += alone ? 1 : blockDim.x) {
      const std::int64_t at = channel_element(config, channel, i);
      sum += dy[at];
      products += dy[at] * (x[at] - mean[channel]);
    }
    if (!alone) {
      sum = block_reduce<sum_of>(sum);
      products = block_reduce<sum_of>(products);
    }
    if (alone || threadIdx.x == 0) {
      sums[item] = sum;
      sums[items + item] = products * rstd[channel];
    }
  }
}

template <class T>
__global__ void batch_norm_backward_kernel(batch_norm_config config, T* dx, const T* dgamma, const T* dbeta,
                                           const T* dy, const T* x, const T* gamma, const T* mean, const T* rstd) {
  const std::int64_t n = config.outer * config.channels * config.inner;
  const T share = T(1) / static_cast<T>(config.outer * config.inner);
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t c = i / config.inner % config.channels;
    const T scale = rstd[c] * (gamma != nullptr ? gamma[c] : T(1)), h = (x[i] - mean[c]) * rstd[c];
    dx[i] = scale * (dy[i] - (dbeta[c] + h * dgamma[c]) * share);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// Pieces that each channel is cut into, so that there is work for a device: enough threads, or blocks.
constexpr std::int64_t channel_pieces(const batch_norm_config& config) {
  if (config.channels == 0) return 1;
  const bool alone = config.inner == 1;
  const std::int64_t each = config.outer * config.inner / (alone ? 32 : 4096),
                     enough = (alone ? 65536 : 1024) / config.channels;
  const std::int64_t pieces = each < enough ? each : enough;
  return pieces < 1 ? 1 : pieces > 1024 ? 1024 : pieces;
}

inline LaunchShape channel_launch(const batch_norm_config& config, std::int64_t pieces) {
  const std::int64_t items = pieces * config.channels;
  return launch_shape(config.inner == 1 ? items : items * kBlock, kBlock);
}

}  // namespace detail

/// y may be x. mean, rstd and the new running statistics may be nullptr.
template <class T>
void batch_norm(CudaContext& context, const batch_norm_config& config, T* y, plain_t<T>* mean, plain_t<T>* rstd,
                plain_t<T>* new_running_mean, plain_t<T>* new_running_var, const T* x, const plain_t<T>* gamma,
                const plain_t<T>* beta, const plain_t<T>* running_mean, const plain_t<T>* running_var) {
  if (config.outer * config.inner == 1)
    throw std::invalid_argument("batch_norm: expects more than 1 value per channel when training");
  const std::int64_t pieces = detail::channel_pieces(config);
  const auto items = static_cast<std::size_t>(pieces * config.channels);
  auto* sums = static_cast<moments<T>*>(
      context.workspace(items * sizeof(moments<T>) + 2 * static_cast<std::size_t>(config.channels) * sizeof(T)));
  T* statistics = reinterpret_cast<T*>(sums + items);
  launch(context, "batch_norm", &batch_norm_moments_kernel<T>, detail::channel_launch(config, pieces), config, pieces,
         sums, x);
  launch(context, "batch_norm", &batch_norm_statistics_kernel<T>, launch_shape(config.channels), config, pieces,
         statistics, mean, rstd, new_running_mean, new_running_var, static_cast<const moments<T>*>(sums), running_mean,
         running_var);
  launch(context, "batch_norm", &batch_norm_apply_kernel<T>,
         launch_shape(config.outer * config.channels * config.inner), config, false, y, x, gamma, beta,
         static_cast<const T*>(statistics), static_cast<const T*>(statistics + config.channels));
}

template <class T>
void batch_norm_inference(CudaContext& context, const batch_norm_config& config, T* y, const T* x,
                          const plain_t<T>* gamma, const plain_t<T>* beta, const T* mean, const T* var) {
  launch(context, "batch_norm_inference", &batch_norm_apply_kernel<T>,
         launch_shape(config.outer * config.channels * config.inner), config, true, y, x, gamma, beta, mean, var);
}

/// dx may be dy. dgamma and dbeta may be nullptr.
template <class T>
void batch_norm_backward(CudaContext& context, const batch_norm_config& config, T* dx, plain_t<T>* dgamma,
                         plain_t<T>* dbeta, const T* dy, const T* x, const plain_t<T>* gamma, const T* mean,
                         const T* rstd) {
  const std::int64_t pieces = detail::channel_pieces(config);
  const auto items = static_cast<std::size_t>(pieces * config.channels);
  T* sums = static_cast<T*>(context.workspace((2 * items + 2 * static_cast<std::size_t>(config.channels)) * sizeof(T)));
  if (dbeta == nullptr) dbeta = sums + 2 * items;
  if (dgamma == nullptr) dgamma = sums + 2 * items + config.channels;
  launch(context, "batch_norm_backward", &batch_norm_gradient_sums_kernel<T>, detail::channel_launch(config, pieces),
         config, pieces, sums, dy, x, mean, rstd);
  detail::add_pieces(context, "batch_norm_backward", config.channels, pieces, dbeta, dgamma,
                     static_cast<const T*>(sums));
  launch(context, "batch_norm_backward", &batch_norm_backward_kernel<T>,
         launch_shape(config.outer * config.channels * config.inner), config, dx, static_cast<const T*>(dgamma),
         static_cast<const T*>(dbeta), dy, x, gamma, mean, rstd);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
