// GRAVEN_DEVICE stands before every function of a generated functor: what CUDA needs when nvcc or NVRTC compiles it; on
// the CPU, that it is inlined, without which no loop over it becomes vectors.
//
//   template <class T>
//   GRAVEN_DEVICE static T apply(T x) { return x < T(0) ? T(0) : x; }
#pragma once

#ifndef GRAVEN_DEVICE
#if defined(__CUDACC_RTC__)
#define GRAVEN_DEVICE __device__
#elif defined(__CUDACC__)
#define GRAVEN_DEVICE __host__ __device__
#else
#define GRAVEN_DEVICE [[gnu::always_inline]]
#endif
#endif
