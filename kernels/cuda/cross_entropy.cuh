// cross_entropy: -log softmax(logits)[row, labels[row]], its mean (reduction 1), sum (2) or list (0) over the rows; probabilities are kept for
//
//   cross_entropy_backward: dlogits = (probabilities - onehot(labels)) * dloss (/ rows for the mean), in place of the probabilities or not.
//
//   cross_entropy(context, cross_entropy_config{.rows = 64, .classes = 10, .reduction = 1}, loss, probabilities, logits, labels);
//
// A label outside [0, classes), an ignored one too, makes the loss NaN: a device cannot throw. Weights of classes and label smoothing are the CPU's.
#pragma once

#include "../config/cross_entropy.h"
#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// One warp a row.
template <class T>
__global__ void cross_entropy_kernel(std::int64_t rows, std::int64_t classes, T* losses, T* probabilities, const T* logits,
                                     const std::int64_t* labels) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (std::int64_t row = first_item() / 32; row < rows; row += item_stride() / 32) {
    const T* x = logits + row * classes;
    T top = smallest<T>();
    for (std::int64_t i = lane; i < classes; i += 32) top = maximum_of::join(top, x[i]);
    top = warp_reduce<maximum_of>(top);
    T sum = 0;
    for (std::int64_t i = lane; i < classes; i += 32) sum += math::exp(x[i] - top);
    sum = warp_reduce<sum_of>(sum);
    // The label's logit is read before the probabilities, which may lie in its place.
    const std::int64_t label = labels[row];
    const bool valid = label >= 0 && label < classes;
    const T chosen = valid ? x[label] : static_cast<T>(__builtin_nan(""));
    __syncwarp();
    if (probabilities != nullptr)
      for (std::int64_t i = lane; i < classes; i += 32) probabilities[row * classes + i] = math::exp(x[i] - top) / sum;
    if (lane == 0) losses[row] = math::log(sum) + top - chosen;
  }
}

template <class T>
__global__ void cross_entropy_backward_kernel(cross_entropy_config config, T* dlogits, const T* dloss, const T* probabilities,
                                              const std::int64_t* labels) {
  const std::int64_t n = config.rows * config.classes;
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t row = i / config.classes;
    T scale = dloss[config.reduction == 0 ? row : 0];
    if (config.reduction == 1) scale /= static_cast<T>(config.rows);
    dlogits[i] = (probabilities[i] - (labels[row] == i - row * config.classes ? T(1) : T(0))) * scale;
  }
}

#ifndef __CUDACC_RTC__

/// loss: [rows] for reduction 0, else one value; probabilities [rows,classes] or nullptr.
template <class T>
void cross_entropy(CudaContext& context, const cross_entropy_config& config, T* loss, plain_t<T>* probabilities, const T* logits,
                   const std::int64_t* labels, decltype(nullptr) = nullptr) {
  if (config.reduction == 0) {
    launch(context, "cross_entropy", &cross_entropy_kernel<T>, launch_shape(config.rows * 32), config.rows, config.classes, loss, probabilities,
           logits, labels);
    return;
  }
  // The losses of the rows lie after what the reduction itself uses of the workspace.
  const reduce_config rows{.outer = 1, .size = config.rows, .inner = 1};
  constexpr std::size_t kReduce = 256 * sizeof(double);
  auto* losses = reinterpret_cast<T*>(static_cast<char*>(context.workspace(kReduce + static_cast<std::size_t>(config.rows) * sizeof(T))) + kReduce);
  launch(context, "cross_entropy", &cross_entropy_kernel<T>, launch_shape(config.rows * 32), config.rows, config.classes, losses, probabilities,
         logits, labels);
  if (config.reduction == 1)
    reduce_mean(context, rows, loss, static_cast<const T*>(losses));
  else
    reduce_sum(context, rows, loss, static_cast<const T*>(losses));
}

template <class T>
void cross_entropy_backward(CudaContext& context, const cross_entropy_config& config, T* dlogits, const T* dloss, const T* probabilities,
                            const std::int64_t* labels, decltype(nullptr) = nullptr) {
  launch(context, "cross_entropy_backward", &cross_entropy_backward_kernel<T>, launch_shape(config.rows * config.classes), config, dlogits, dloss,
         probabilities, labels);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
