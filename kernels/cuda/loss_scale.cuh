// finite_step and update_loss_scale (cpu/loss_scale.h): all gradients are read once, 16 bytes at a time, in a launch
// for about 170 tensors (tensor_list.cuh); one more, of one thread, joins what about 1024 pieces found.
//
//   // the host's arrays of device pointers; everything else lies on the device
//   finite_step(context, finite_step_config{}, number, count, grads, sizes, step, skipped);
//   update_loss_scale(context, update_loss_scale_config{}, count, steps, sizes, scale, tracker);
#pragma once

#include "../config/loss_scale.h"
#include "block.cuh"
#include "call_faults.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

/// Pieces that all tensors are cut into.
inline constexpr std::int64_t kFinitePieces = 1024;

/// others [pieces]: 1 where a piece has an element that is not finite: x - x is 0 for finite numbers alone.
template <class T>
__global__ void __launch_bounds__(kBlock) find_others_kernel(tensor_list<const T, 1> list, int* others) {
  constexpr int N = kVectorWidth<T>;
  const tensor_piece piece(list);
  const T* const data = list.data[0][piece.tensor];
  int own = 0;
  for (std::int64_t i = piece.first<N>(); i < piece.end; i += kBlock * N) {
    T x[N];
    piece.load(data, i, x);
#pragma unroll
    for (int e = 0; e < N; ++e) own |= x[e] - x[e] == T(0) ? 0 : 1;
  }
  own = block_reduce<maximum_of>(own);
  if (threadIdx.x == 0) others[blockIdx.x] = own;
}

/// One block. A step behind a number out of range (call_faults.cuh) is none, and not one of those that are skipped.
template <class T>
__global__ void finite_step_kernel(std::int64_t count, const T* others, const std::int64_t* step, std::int64_t* number,
                                   std::int64_t* skipped, const call_fault* fault) {
  T any = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) any = any > others[i] ? any : others[i];
  any = block_reduce<maximum_of>(any);
  if (threadIdx.x != 0) return;
  if (has_fault(fault)) {
    *number = 0;
    return;
  }
  *number = any == 0 ? *step - *skipped : 0;
  *skipped += any == 0 ? 0 : 1;
}

/// One block: 1 where this rank has found one.
template <class T>
__global__ void join_others_kernel(std::int64_t count, const int* others, T* own) {
  int any = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) any |= others[i];
  any = block_reduce<maximum_of>(any);
  if (threadIdx.x == 0) *own = static_cast<T>(any);
}

/// One thread. A launch for each step: `last` says whether all of them were looked at.
template <class T>
__global__ void update_loss_scale_kernel(update_loss_scale_config config, bool first, bool last,
                                         const std::int64_t* step, T* scale, std::int64_t* tracker,
                                         const call_fault* fault) {
  if (has_fault(fault)) return;
  // A step 0 leaves -1 until the last one is looked at.
  if (*step == 0) *tracker = -1;
  if (first && *step != 0) *tracker += 1;
  if (!last) return;
  if (*tracker < 0) {
    *tracker = 0;
    *scale = static_cast<T>(static_cast<double>(*scale) * config.backoff_factor);
  }
  if (*tracker != config.growth_interval) return;
  *tracker = 0;
  const T grown = static_cast<T>(static_cast<double>(*scale) * config.growth_factor);
  if (grown - grown == 0) *scale = grown;
}

#ifndef __CUDACC_RTC__

template <class T>
void finite_step(CudaContext& context, const finite_step_config& config, std::int64_t* number, std::int64_t count,
                 const T* const* xs, const std::int64_t* sizes, const std::int64_t* step, std::int64_t* skipped) {
  const std::int64_t piece_size = tensor_piece_size(count, sizes, kFinitePieces);
  std::int64_t all = 0;
  for (std::int64_t t = 0; t < count; ++t) all += (sizes[t] + piece_size - 1) / piece_size;
  Collectives* const ranks = config.over_ranks ? context.collectives() : nullptr;
  const std::size_t of_ranks = ranks != nullptr ? 1 + static_cast<std::size_t>(ranks->size()) : 0;
  // What ranks give each other stands in front.
  double* const numbers =
      static_cast<double*>(context.workspace(of_ranks * sizeof(double) + static_cast<std::size_t>(all) * sizeof(int)));
  int* const others = reinterpret_cast<int*>(numbers + of_ranks);
  int* next = others;
  using List = tensor_list<const T, 1>;
  for_each_list<const T, 1>(count, {xs}, sizes, kFinitePieces, [&](const List& list, const LaunchShape& shape) {
    launch(context, "find_others", &find_others_kernel<T>, shape, list, next);
    next += list.pieces;
  });
  if (ranks == nullptr) {
    launch(context, "finite_step", &finite_step_kernel<int>, launch_shape(1, kBlock), all, others, step, number,
           skipped, fault_of_calls(context));
    return;
  }
  launch(context, "join_others", &join_others_kernel<double>, launch_shape(1, kBlock), all, others, numbers);
  if (!context.rehearses()) ranks->gather_numbers(numbers + 1, numbers, 1);
  launch(context, "finite_step", &finite_step_kernel<double>, launch_shape(1, kBlock),
         static_cast<std::int64_t>(ranks->size()), numbers + 1, step, number, skipped, fault_of_calls(context));
}

inline void update_loss_scale(CudaContext& context, const update_loss_scale_config& config, std::int64_t count,
                              const std::int64_t* const* steps, const std::int64_t*, float* scale,
                              std::int64_t* tracker) {
  for (std::int64_t t = 0; t < count; ++t)
    launch(context, "update_loss_scale", &update_loss_scale_kernel<float>, launch_shape(1, 1), config, t == 0,
           t + 1 == count, steps[t], scale, tracker, fault_of_calls(context));
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
