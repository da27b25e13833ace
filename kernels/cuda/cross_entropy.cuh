// cross_entropy of logits[rows,classes] with labels[rows], and its gradient. With p = softmax(logits), e =
// label_smoothing, w = weight[classes] (or 1), y = labels[r]:
//
//   loss_r = -(1 - e) w_y log p_y - e / classes sum over c of w_c log p_c
//   loss = loss[rows] (reduction 0), their mean: the sum over the sum of w_y (1), or sum (2)
//   dlogits[r,c] = scale (p_c ((1 - e) w_y + e / classes sum of w) - (c == y) (1 - e) w_y - e / classes w_c)
//                  scale = dloss[r], or dloss / sum of w_y, or dloss
//
//   cross_entropy(context, cross_entropy_config{.rows = 64, .classes = 10, .reduction = 1}, loss, probabilities,
//                 logits, labels, weight);
//
// A row whose label is ignore_index has no loss and no gradient. Any other label outside [0, classes) makes the loss
// and its row's gradient NaN: a device cannot throw. weight may be nullptr. probabilities may be the logits, or nullptr
// when nobody needs the gradient; dlogits may be the probabilities.
#pragma once

#include "../config/cross_entropy.h"
#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// What a row's loss is weighted with: 0 for an ignored label, NaN for one that is no class.
template <class T>
__device__ inline T row_weight(const cross_entropy_config& config, std::int64_t label, const T* weight) {
  if (label == config.ignore_index) return T(0);
  if (label < 0 || label >= config.classes) return static_cast<T>(__builtin_nan(""));
  return weight != nullptr ? weight[label] : T(1);
}

/// One warp a row.
template <class T>
__global__ void cross_entropy_kernel(cross_entropy_config config, T* losses, T* probabilities, const T* logits,
                                     const std::int64_t* labels, const T* weight) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T smoothing = static_cast<T>(config.label_smoothing);
  for (std::int64_t row = first_item() / 32; row < config.rows; row += item_stride() / 32) {
    const T* x = logits + row * config.classes;
    T top = smallest<T>();
    for (std::int64_t i = lane; i < config.classes; i += 32) top = maximum_of::join(top, x[i]);
    top = warp_reduce<maximum_of>(top);
    T sum = 0;
    for (std::int64_t i = lane; i < config.classes; i += 32) sum += math::exp(x[i] - top);
    sum = warp_reduce<sum_of>(sum);
    const T shift = math::log(sum) + top;
    T spread = 0;
    if (smoothing > T(0)) {
      for (std::int64_t i = lane; i < config.classes; i += 32)
        spread += (weight != nullptr ? weight[i] : T(1)) * (shift - x[i]);
      spread = warp_reduce<sum_of>(spread) / static_cast<T>(config.classes);
    }
    // The label's logit is read before the probabilities, which may lie in its place.
    const std::int64_t label = labels[row];
    const T own = row_weight(config, label, weight);
    const T chosen = label >= 0 && label < config.classes ? x[label] : T(0);
    __syncwarp();
    if (probabilities != nullptr)
      for (std::int64_t i = lane; i < config.classes; i += 32)
        probabilities[row * config.classes + i] = math::exp(x[i] - top) / sum;
    if (lane == 0)
      losses[row] =
          label == config.ignore_index ? T(0) : (T(1) - smoothing) * own * (shift - chosen) + smoothing * spread;
  }
}

/// One block: the sum of the rows' weights, and of the classes'.
template <class T>
__global__ void cross_entropy_weights_kernel(cross_entropy_config config, T* sums, const std::int64_t* labels,
                                             const T* weight) {
  T rows = 0, classes = 0;
  for (std::int64_t r = threadIdx.x; r < config.rows; r += blockDim.x) rows += row_weight(config, labels[r], weight);
  for (std::int64_t c = threadIdx.x; c < config.classes; c += blockDim.x)
    classes += weight != nullptr ? weight[c] : T(1);
  rows = block_reduce<sum_of>(rows);
  classes = block_reduce<sum_of>(classes);
  if (threadIdx.x == 0) {
    sums[0] = rows;
    sums[1] = classes;
  }
}

/// One block: the sum of the rows' losses, over the sum of their weights for the mean.
template <class T>
__global__ void cross_entropy_total_kernel(cross_entropy_config config, T* loss, const T* losses, const T* sums) {
  T total = 0;
  for (std::int64_t r = threadIdx.x; r < config.rows; r += blockDim.x) total += losses[r];
  total = block_reduce<sum_of>(total);
  if (threadIdx.x == 0) *loss = config.reduction == 1 ? total / sums[0] : total;
}

/// sums: as cross_entropy_weights_kernel leaves them.
template <class T>
__global__ void cross_entropy_backward_kernel(cross_entropy_config config, T* dlogits, const T* dloss,
                                              const T* probabilities, const std::int64_t* labels, const T* weight,
                                              const T* sums) {
  const std::int64_t n = config.rows * config.classes;
  const T smoothing = static_cast<T>(config.label_smoothing), spread = smoothing / static_cast<T>(config.classes);
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t row = i / config.classes, c = i - row * config.classes, label = labels[row];
    T scale = dloss[config.reduction == 0 ? row : 0];
    if (config.reduction == 1) scale /= sums[0];
    const T own = (T(1) - smoothing) * row_weight(config, label, weight), w = weight != nullptr ? weight[c] : T(1);
    const T d = probabilities[i] * (own + spread * sums[1]) - (c == label ? own : T(0)) - spread * w;
    dlogits[i] = label == config.ignore_index ? T(0) : d * scale;
  }
}

#ifndef __CUDACC_RTC__

/// loss: [rows] for reduction 0, else one value.
template <class T>
void cross_entropy(CudaContext& context, const cross_entropy_config& config, T* loss, plain_t<T>* probabilities,
                   const T* logits, const std::int64_t* labels, const plain_t<T>* weight = nullptr) {
  T* losses = loss;
  T* sums = nullptr;
  if (config.reduction != 0) {
    sums = static_cast<T*>(context.workspace((2 + static_cast<std::size_t>(config.rows)) * sizeof(T)));
    losses = sums + 2;
  }
  launch(context, "cross_entropy", &cross_entropy_kernel<T>, launch_shape(config.rows * 32), config, losses,
         probabilities, logits, labels, weight);
  if (config.reduction == 0) return;
  launch(context, "cross_entropy", &cross_entropy_weights_kernel<T>, launch_shape(1, kBlock), config, sums, labels,
         weight);
  launch(context, "cross_entropy", &cross_entropy_total_kernel<T>, launch_shape(1, kBlock), config, loss,
         static_cast<const T*>(losses), static_cast<const T*>(sums));
}

template <class T>
void cross_entropy_backward(CudaContext& context, const cross_entropy_config& config, T* dlogits, const T* dloss,
                            const T* probabilities, const std::int64_t* labels, const plain_t<T>* weight = nullptr) {
  T* sums = static_cast<T*>(context.workspace(2 * sizeof(T)));
  launch(context, "cross_entropy_backward", &cross_entropy_weights_kernel<T>, launch_shape(1, kBlock), config, sums,
         labels, weight);
  launch(context, "cross_entropy_backward", &cross_entropy_backward_kernel<T>,
         launch_shape(config.rows * config.classes), config, dlogits, dloss, probabilities, labels, weight,
         static_cast<const T*>(sums));
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
