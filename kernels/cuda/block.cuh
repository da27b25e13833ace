// Reductions over the threads of a warp and of a block, in a fixed order, and the limits of the number types.
//
//   sum = block_reduce<sum_of>(sum);   // every thread of a block of kBlock gets the result
#pragma once

#include <cstdint>

#include "../config/device.h"
#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace graven::kernels {

/// Threads of a block that works together.
inline constexpr int kBlock = 256;

/// Where a maximum starts: -infinity, or the least integer.
template <class T>
__device__ inline T smallest() {
  if constexpr (T(0.5) != T(0))
    return static_cast<T>(-__builtin_huge_val());
  else if constexpr (T(-1) < T(0))
    return static_cast<T>(static_cast<T>(1) << (sizeof(T) * 8 - 1));
  else
    return T(0);
}
template <class T>
__device__ inline T largest() {
  if constexpr (T(0.5) != T(0))
    return static_cast<T>(__builtin_huge_val());
  else
    return static_cast<T>(~smallest<T>());
}

/// Every lane of a full warp gets the reduction of all 32.
template <class Op, class T>
__device__ inline T warp_reduce(T value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value = Op::join(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  return value;
}

/// Every thread gets the reduction of the whole block of kBlock threads.
template <class Op, class T>
__device__ inline T block_reduce(T value) {
  __shared__ T partial[kBlock / 32];
  value = warp_reduce<Op>(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = partial[0];
  for (int warp = 1; warp < kBlock / 32; ++warp) value = Op::join(value, partial[warp]);
  __syncthreads();  // before the next use of `partial`
  return value;
}

}  // namespace graven::kernels
