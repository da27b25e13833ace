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
// and its row's gradient NaN, and is found when the host next waits for the device (call_faults.cuh). weight may be
// nullptr. probabilities may be the logits, or nullptr when nobody needs the gradient; dlogits may be the
// probabilities.
//
// Rows are shared as rows.cuh says. Up to 8192 floats of a row stay in registers: logits are read once, probabilities
// written once. Longer rows, a block of 1024 threads each, are read twice, backwards the second time: of a row of
// 50257 floats, 200 KB, most is then in the multiprocessor's own cache. The gradient is a thread for 16 bytes that
// reads probabilities and writes dlogits once.
#pragma once

#include "../config/cross_entropy.h"
#include "block.cuh"
#include "call_faults.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "scalar_math.cuh"
#include "vector.cuh"

namespace graven::kernels {

/// What a row's loss is weighted with: 0 for an ignored label, NaN for one that is no class.
template <class T>
__device__ inline T row_weight(const cross_entropy_config& config, std::int64_t label, const T* weight) {
  if (label == config.ignore_index) return T(0);
  if (label < 0 || label >= config.classes) return static_cast<T>(__builtin_nan(""));
  return weight != nullptr ? weight[label] : T(1);
}

/// What a row's loss needs of its label. It is read before the probabilities are written, which may lie in its place.
template <class T>
struct labelled_row {
  std::int64_t label;
  T weight, logit;

  __device__ labelled_row(const cross_entropy_config& config, std::int64_t row, const T* logits,
                          const std::int64_t* labels, const T* weights)
      : label(row < config.rows ? labels[row] : config.ignore_index),
        weight(row_weight(config, label, weights)),
        logit(row < config.rows && label >= 0 && label < config.classes ? logits[row * config.classes + label] : T(0)) {
  }
  /// shift: the logarithm of the sum of exp. spread: the weighted sum of all logarithms.
  __device__ T loss(const cross_entropy_config& config, T shift, T spread) const {
    if (label == config.ignore_index) return T(0);
    const T smoothing = static_cast<T>(config.label_smoothing);
    return (T(1) - smoothing) * weight * (shift - logit) + smoothing * (spread / static_cast<T>(config.classes));
  }
};

/// The part of a row's spread that vector i has.
template <class T, class Index, int N>
__device__ inline T spread_of(const row_cut<T, Index>& cut, Index i, const T (&x)[N], T shift, const T* weight) {
  T spread = 0;
#pragma unroll
  for (int n = 0; n < N; ++n)
    if (cut.has(i, n)) spread += (weight != nullptr ? weight[cut.at(i) + n] : T(1)) * (shift - x[n]);
  return spread;
}

/// The row is held in registers: `Held` vectors in each of its `Threads` threads.
template <int Threads, int Held, class T>
__global__ void __launch_bounds__(kRowBlockOf<Threads>)
    cross_entropy_kernel(cross_entropy_config config, index_check check, bool aligned, T* losses, T* probabilities,
                         const T* logits, const std::int64_t* labels, const T* weight) {
  constexpr int N = kVectorWidth<T>;
  for_each_row<Threads>(config.rows, [&](std::int64_t row, int lane) {
    const row_cut<T> cut(row, config.rows, config.classes, aligned);
    T x[Held][N], top = smallest<T>();
#pragma unroll
    for (int v = 0; v < Held; ++v) cut.load(logits, lane + v * Threads, cut.size, smallest<T>(), x[v]);
    const labelled_row<T> own(config, row, logits, labels, weight);
#pragma unroll
    for (int v = 0; v < Held; ++v)
#pragma unroll
      for (int n = 0; n < N; ++n) top = maximum_of::join(top, x[v][n]);
    top = row_reduce<maximum_of, Threads>(top);
    T sum = 0;
#pragma unroll
    for (int v = 0; v < Held; ++v)
#pragma unroll
      for (int n = 0; n < N; ++n) sum += math::exp(x[v][n] - top);
    sum = row_reduce<sum_of, Threads>(sum);
    const T shift = math::log(sum) + top, scale = T(1) / sum;
    T spread = 0;
    if (config.label_smoothing > 0) {
#pragma unroll
      for (int v = 0; v < Held; ++v) spread += spread_of(cut, lane + v * Threads, x[v], shift, weight);
      spread = row_reduce<sum_of, Threads>(spread);
    }
    if (probabilities != nullptr) {
#pragma unroll
      for (int v = 0; v < Held; ++v) {
#pragma unroll
        for (int n = 0; n < N; ++n) x[v][n] = math::exp(x[v][n] - top) * scale;
        cut.store(probabilities, lane + v * Threads, x[v]);
      }
    }
    if (lane == 0 && row < config.rows) {
      if (own.label != config.ignore_index) check(own.label, row);
      losses[row] = own.loss(config, shift, spread);
    }
  });
}

/// A block a row, which is read twice.
template <class T>
__global__ void __launch_bounds__(kLongRowBlock)
    cross_entropy_long_kernel(cross_entropy_config config, index_check check, bool aligned, T* losses, T* probabilities,
                              const T* logits, const std::int64_t* labels, const T* weight) {
  constexpr int N = kVectorWidth<T>, kAtOnce = 16 / static_cast<int>(sizeof(T));
  for_each_row<kLongRowBlock>(config.rows, [&](std::int64_t row, int lane) {
    const row_cut<T, std::int64_t> cut(row, config.rows, config.classes, aligned);
    const labelled_row<T> own(config, row, logits, labels, weight);
    const std::int64_t vectors = cut.vectors(), step = kAtOnce * kLongRowBlock;
    running_exp_sum<T> all;
    for (std::int64_t i = lane; i < vectors; i += step) {
      T x[kAtOnce][N];
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) cut.load(logits, i + v * kLongRowBlock, cut.size, smallest<T>(), x[v]);
      all.add(x);
    }
    all.template join<kLongRowBlock>();
    const T shift = math::log(all.sum) + all.top, scale = T(1) / all.sum;
    T spread = 0;
    if (probabilities != nullptr || config.label_smoothing > 0) {
      for (std::int64_t i = lane + (vectors - 1) / step * step; i >= 0; i -= step) {
        T x[kAtOnce][N];
#pragma unroll
        for (int v = 0; v < kAtOnce; ++v) cut.load(logits, i + v * kLongRowBlock, cut.size, smallest<T>(), x[v]);
        if (config.label_smoothing > 0) {
#pragma unroll
          for (int v = 0; v < kAtOnce; ++v) spread += spread_of(cut, i + v * kLongRowBlock, x[v], shift, weight);
        }
        if (probabilities != nullptr) {
#pragma unroll
          for (int v = 0; v < kAtOnce; ++v) {
#pragma unroll
            for (int n = 0; n < N; ++n) x[v][n] = math::exp(x[v][n] - all.top) * scale;
            cut.store(probabilities, i + v * kLongRowBlock, x[v]);
          }
        }
      }
      if (config.label_smoothing > 0) spread = row_reduce<sum_of, kLongRowBlock>(spread);
    }
    if (lane == 0) {
      if (own.label != config.ignore_index) check(own.label, row);
      losses[row] = own.loss(config, shift, spread);
    }
  });
}

/// One block: the sum of the rows' weights, and of the classes' where their labels are smoothed.
template <class T>
__global__ void __launch_bounds__(kLongRowBlock)
    cross_entropy_weights_kernel(cross_entropy_config config, index_check check, T* sums, const std::int64_t* labels,
                                 const T* weight) {
  T rows = 0, classes = 0;
#pragma unroll 4
  for (std::int64_t r = threadIdx.x; r < config.rows; r += kLongRowBlock) {
    if (labels[r] != config.ignore_index) check(labels[r], r);
    rows += row_weight(config, labels[r], weight);
  }
  if (weight != nullptr) {
#pragma unroll 4
    for (std::int64_t c = threadIdx.x; c < config.classes; c += kLongRowBlock) classes += weight[c];
  }
  rows = row_reduce<sum_of, kLongRowBlock>(rows);
  classes = row_reduce<sum_of, kLongRowBlock>(classes);
  if (threadIdx.x == 0) {
    sums[0] = rows;
    sums[1] = weight != nullptr ? classes : static_cast<T>(config.classes);
  }
}

/// One block: the sum of the rows' losses, over the sum of their weights for the mean.
template <class T>
__global__ void __launch_bounds__(kLongRowBlock)
    cross_entropy_total_kernel(cross_entropy_config config, T* loss, const T* losses, const std::int64_t* labels,
                               const T* weight) {
  T total = 0, weights = 0;
#pragma unroll 4
  for (std::int64_t r = threadIdx.x; r < config.rows; r += kLongRowBlock) {
    total += losses[r];
    if (config.reduction == 1) weights += row_weight(config, labels[r], weight);
  }
  total = row_reduce<sum_of, kLongRowBlock>(total);
  weights = row_reduce<sum_of, kLongRowBlock>(weights);
  if (threadIdx.x == 0) *loss = config.reduction == 1 ? total / weights : total;
}

/// What the gradients of a row have in common.
template <class T>
struct gradient_row {
  std::int64_t label;
  T own, scale;

  __device__ gradient_row(const cross_entropy_config& config, std::int64_t row, const T* dloss,
                          const std::int64_t* labels, const T* weight, const T* sums)
      : label(labels[row]),
        own((T(1) - static_cast<T>(config.label_smoothing)) * row_weight(config, label, weight)),
        scale(dloss[config.reduction == 0 ? row : 0]) {
    if (config.reduction == 1) scale /= sums[0];
  }
};

/// A thread for the elements of 16 bytes, of one row or several. Index: of an element. sums: as
/// cross_entropy_weights_kernel leaves them.
template <class Index, class T>
__global__ void cross_entropy_backward_kernel(cross_entropy_config config, divider<Index> classes, bool aligned,
                                              T* dlogits, const T* dloss, const T* probabilities,
                                              const std::int64_t* labels, const T* weight, const T* sums) {
  constexpr int N = kVectorWidth<T>;
  const std::int64_t n = config.rows * config.classes;
  const T spread = static_cast<T>(config.label_smoothing) / static_cast<T>(config.classes);
  const T spread_sum = spread * sums[1];
  for (std::int64_t i = first_item(); i * N < n; i += item_stride()) {
    const std::int64_t at = i * N;
    const bool whole = aligned && at + N <= n;
    T d[N];
    if (whole) {
      load_vector(d, probabilities + at);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e) d[e] = at + e < n ? probabilities[at + e] : T(0);
    }
    std::int64_t row = classes.quotient(static_cast<Index>(at));
    std::int64_t c = at - row * config.classes;
    gradient_row<T> of_row(config, row, dloss, labels, weight, sums);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if (c == config.classes && at + e < n) {
        c = 0;
        of_row = gradient_row<T>(config, ++row, dloss, labels, weight, sums);
      }
      const T w = weight != nullptr && c < config.classes ? weight[c] : T(1);
      d[e] = d[e] * (of_row.own + spread_sum) - (c == of_row.label ? of_row.own : T(0)) - spread * w;
      d[e] = of_row.label == config.ignore_index ? T(0) : d[e] * of_row.scale;
      ++c;
    }
    if (whole) {
      store_vector(dlogits + at, d);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (at + e < n) dlogits[at + e] = d[e];
    }
  }
}

#ifndef __CUDACC_RTC__

/// loss: [rows] for reduction 0, else one value.
template <class T>
void cross_entropy(CudaContext& context, const cross_entropy_config& config, T* loss, plain_t<T>* probabilities,
                   const T* logits, const std::int64_t* labels, const plain_t<T>* weight = nullptr,
                   const char* where = "") {
  constexpr int N = kVectorWidth<T>;
  T* losses = loss;
  if (config.reduction != 0)
    losses = static_cast<T*>(context.workspace(static_cast<std::size_t>(config.rows) * sizeof(T)));
  const bool aligned = aligned_for_vectors<N>(logits, probabilities);
  const index_check check = check_index(context, "cross_entropy", config.classes, where, "label");
  for_row_size<T>(
      config.classes,
      [&]<int Threads, int Held>(std::integral_constant<int, Threads>, std::integral_constant<int, Held>) {
        launch(context, "cross_entropy", &cross_entropy_kernel<Threads, Held, T>,
               row_launch_shape<Threads>(config.rows), config, check, aligned, losses, probabilities, logits, labels,
               weight);
      },
      [&] {
        launch(context, "cross_entropy", &cross_entropy_long_kernel<T>, row_launch_shape<kLongRowBlock>(config.rows),
               config, check, aligned, losses, probabilities, logits, labels, weight);
      });
  if (config.reduction == 0) return;
  launch(context, "cross_entropy", &cross_entropy_total_kernel<T>, launch_shape(1, kLongRowBlock), config, loss,
         static_cast<const T*>(losses), labels, weight);
}

template <class T>
void cross_entropy_backward(CudaContext& context, const cross_entropy_config& config, T* dlogits, const T* dloss,
                            const T* probabilities, const std::int64_t* labels, const plain_t<T>* weight = nullptr,
                            const char* where = "") {
  constexpr int N = kVectorWidth<T>;
  const std::int64_t n = config.rows * config.classes;
  T* sums = static_cast<T*>(context.workspace(2 * sizeof(T)));
  if (n == 0) return;
  launch(context, "cross_entropy_backward", &cross_entropy_weights_kernel<T>, launch_shape(1, kLongRowBlock), config,
         check_index(context, "cross_entropy", config.classes, where, "label"), sums, labels, weight);
  const bool aligned = aligned_for_vectors<N>(dlogits, probabilities);
  const auto backward = [&]<class Index>() {
    launch(context, "cross_entropy_backward", &cross_entropy_backward_kernel<Index, T>, launch_shape(divide_up(n, N)),
           config, divider_of<Index>(config.classes), aligned, dlogits, dloss, probabilities, labels, weight,
           static_cast<const T*>(sums));
  };
  if (fits_32_bits(n))
    backward.template operator()<std::int32_t>();
  else
    backward.template operator()<std::int64_t>();
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
