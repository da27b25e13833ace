// sync_batch_norm and its gradient (cpu/sync_batch_norm.h): batch_norm over the batches of all ranks.
//
//   sync_batch_norm(context, bn, y, mean, rstd, new_running_mean, new_running_var, x, gamma, beta, running_mean,
//                   running_var);
//   sync_batch_norm_backward(context, bn, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
//
// Beside what batch_norm moves, each rank sends the others a count, and two numbers in double for each channel, once a
// call, and each merges them in the order of the ranks: all have the same bits. With one rank it is batch_norm.
#pragma once

#include "../config/sync_batch_norm.h"
#include "batch_norm.cuh"

namespace graven::kernels {

/// own [1 + 2 * channels]: this rank's count, the channels' means, and sums of squared differences from these.
template <class T>
__global__ void __launch_bounds__(kColumnBlock)
    sync_moments_kernel(column_cut cut, T piece, T last, double count, double* own, const T* sums) {
  const column_place at = place_in_columns<1>(cut, 0);
  const moments<T> m = joined_moments(cut, at, piece, last, sums);
  if (!at.stores()) return;
  if (at.column == 0) own[0] = count;
  own[1 + at.column] = static_cast<double>(m.mean());
  own[1 + cut.columns + at.column] = static_cast<double>(m.squares());
}

/// A thread for each channel; all [ranks, 1 + 2 * channels]. `statistics` as batch_norm_statistics_kernel leaves them.
template <class T>
__global__ void sync_statistics_kernel(batch_norm_config config, int ranks, T* statistics, T* mean, T* rstd,
                                       T* new_running_mean, T* new_running_var, const double* all,
                                       const T* running_mean, const T* running_var, const call_fault* fault) {
  for (std::int64_t c = first_item(); c < config.channels; c += item_stride()) {
    moments<double> m;
    for (int rank = 0; rank < ranks; ++rank) {
      const double* const theirs = all + rank * (1 + 2 * config.channels);
      const double other[3] = {theirs[0], theirs[1 + c], theirs[1 + config.channels + c]};
      m.add(other);
    }
    const T average = static_cast<T>(m.mean());
    statistics[config.channels + c] =
        store_statistics(config, c, static_cast<T>(m.count()), average, static_cast<T>(m.squares()), mean, rstd,
                         new_running_mean, new_running_var, running_mean, running_var, fault);
    statistics[c] = average;
  }
}

/// own [1 + 2 * channels]: this rank's count and sums.
template <class T>
__global__ void sync_own_sums_kernel(std::int64_t channels, double count, double* own, const T* dbeta,
                                     const T* dgamma) {
  for (std::int64_t c = first_item(); c < channels; c += item_stride()) {
    if (c == 0) own[0] = count;
    own[1 + c] = static_cast<double>(dbeta[c]);
    own[1 + channels + c] = static_cast<double>(dgamma[c]);
  }
}

/// means [2, channels]: the sums of all ranks over the count of all.
template <class T>
__global__ void sync_means_kernel(std::int64_t channels, int ranks, T* means, const double* all) {
  for (std::int64_t c = first_item(); c < channels; c += item_stride()) {
    double count = 0, first = 0, second = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const double* const theirs = all + rank * (1 + 2 * channels);
      count += theirs[0];
      first += theirs[1 + c];
      second += theirs[1 + channels + c];
    }
    means[c] = static_cast<T>(first / count);
    means[channels + c] = static_cast<T>(second / count);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// Scratch: T's, and behind them, on a multiple of 8 bytes, what ranks give each other.
template <class T>
struct sync_memory {
  T* values;
  double *own, *all;

  sync_memory(CudaContext& context, std::int64_t count, std::int64_t channels, int ranks) {
    const std::size_t front = (static_cast<std::size_t>(count) * sizeof(T) + 7) / 8 * 8,
                      numbers = static_cast<std::size_t>(1 + 2 * channels);
    char* const data =
        static_cast<char*>(context.workspace(front + numbers * (1 + static_cast<std::size_t>(ranks)) * sizeof(double)));
    values = reinterpret_cast<T*>(data);
    own = reinterpret_cast<double*>(data + front);
    all = own + numbers;
  }
};

}  // namespace detail

/// y may be x. mean, rstd and the new running statistics may be nullptr.
template <class T>
void sync_batch_norm(CudaContext& context, const sync_batch_norm_config& of, T* y, plain_t<T>* mean, plain_t<T>* rstd,
                     plain_t<T>* new_running_mean, plain_t<T>* new_running_var, const T* x, const plain_t<T>* gamma,
                     const plain_t<T>* beta, const plain_t<T>* running_mean, const plain_t<T>* running_var) {
  const batch_norm_config config = of.of_rank();
  Collectives* const ranks = context.collectives();
  if (ranks == nullptr)
    return batch_norm(context, config, y, mean, rstd, new_running_mean, new_running_var, x, gamma, beta, running_mean,
                      running_var);
  const char* name = "sync_batch_norm";
  const detail::batch_norm_pieces<T> all(config);
  if (config.channels == 0) return;
  const detail::sync_memory<T> memory(context, all.sums() + 2 * config.channels, config.channels, ranks->size());
  T* const statistics = memory.values + all.sums();
  all.moments_of(context, name, takes_vectors<T>(config.channels, y, x), memory.values, x);
  const column_cut joined = all.joined();
  launch(context, name, &sync_moments_kernel<T>, column_shape(joined, 1), joined, all.piece, all.last(), all.count,
         memory.own, static_cast<const T*>(memory.values));
  if (!context.rehearses()) ranks->gather_numbers(memory.all, memory.own, 1 + 2 * config.channels);
  launch(context, name, &sync_statistics_kernel<T>, launch_shape(config.channels), config, ranks->size(), statistics,
         mean, rstd, new_running_mean, new_running_var, memory.all, running_mean, running_var, fault_of_calls(context));
  detail::batch_norm_apply<T>(context, name, config, false, y, x, gamma, beta, statistics,
                              statistics + config.channels);
}

/// dx may be dy. dgamma and dbeta, which are of this rank's batch, may be nullptr.
template <class T>
void sync_batch_norm_backward(CudaContext& context, const sync_batch_norm_config& of, T* dx, plain_t<T>* dgamma,
                              plain_t<T>* dbeta, const T* dy, const T* x, const plain_t<T>* gamma, const T* mean,
                              const T* rstd) {
  const batch_norm_config config = of.of_rank();
  Collectives* const ranks = context.collectives();
  if (ranks == nullptr) return batch_norm_backward(context, config, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
  const char* name = "sync_batch_norm_backward";
  const detail::batch_norm_pieces<T> all(config);
  if (config.channels == 0) return;
  const detail::sync_memory<T> memory(context, all.sums() + 4 * config.channels, config.channels, ranks->size());
  T* const means = memory.values + all.sums();
  if (dbeta == nullptr) dbeta = means + 2 * config.channels;
  if (dgamma == nullptr) dgamma = means + 3 * config.channels;
  const bool vectors = takes_vectors<T>(all.planes ? config.inner : config.channels, dx, dy, x);
  all.gradient_sums_of(context, name, vectors, memory.values, dy, x, mean, rstd);
  detail::add_pieces(context, name, config.channels, all.pieces, dbeta, dgamma, static_cast<const T*>(memory.values));
  launch(context, name, &sync_own_sums_kernel<T>, launch_shape(config.channels), config.channels, all.count, memory.own,
         dbeta, dgamma);
  if (!context.rehearses()) ranks->gather_numbers(memory.all, memory.own, 1 + 2 * config.channels);
  launch(context, name, &sync_means_kernel<T>, launch_shape(config.channels), config.channels, ranks->size(), means,
         memory.all);
  detail::batch_norm_gradient<T>(context, name, config, T(1), dx, means + config.channels, means, dy, x, gamma, mean,
                                 rstd);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
