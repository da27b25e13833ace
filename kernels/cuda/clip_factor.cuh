// clip_factor (cpu/clip_factor.h): every element is read once, 16 bytes at a time, in a launch for about 170 tensors
// (tensor_list.cuh); one more, of one block, joins the sums of about 1024 pieces.
//
//   // the host's arrays of device pointers
//   clip_factor(context, clip_factor_config{.max_norm = 1}, factor, count, xs, sizes);
//
// Terms are added up in double, by piece and then piece after piece, and with `over_ranks` rank after rank, whose sums
// come together first: the same bits on every run, and on all ranks.
#pragma once

#include "../config/clip_factor.h"
#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

/// Pieces that all tensors are cut into: each has a sum.
inline constexpr std::int64_t kClipPieces = 1024;

struct clip_square {
  __device__ double operator()(double x) const { return x * x; }
};
struct clip_magnitude {
  __device__ double operator()(double x) const { return x; }
};
struct clip_power {
  double order;
  __device__ double operator()(double x) const { return math::pow(x, order); }
};

/// sums [pieces]
template <class Op, class Term, class T>
__global__ void __launch_bounds__(kBlock) clip_terms_kernel(tensor_list<const T, 1> list, Term term, double* sums) {
  constexpr int N = kVectorWidth<T>, kAtOnce = 4;
  const tensor_piece piece(list);
  const T* const data = list.data[0][piece.tensor];
  double own = 0;
  for (std::int64_t i = piece.first<N>(); i < piece.end; i += kAtOnce * kBlock * N) {
    T x[kAtOnce][N];
#pragma unroll
    for (int v = 0; v < kAtOnce; ++v) piece.load(data, i + v * kBlock * N, x[v]);
#pragma unroll
    for (int v = 0; v < kAtOnce; ++v)
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (i + v * kBlock * N + e < piece.end) own = Op::join(own, term(math::abs(static_cast<double>(x[v][e]))));
  }
  own = block_reduce<Op>(own);
  if (threadIdx.x == 0) sums[blockIdx.x] = own;
}

/// One block: this rank's.
template <class Op>
__global__ void clip_join_kernel(std::int64_t count, const double* sums, double* own) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum = Op::join(sum, sums[i]);
  sum = block_reduce<Op>(sum);
  if (threadIdx.x == 0) *own = sum;
}

/// One block.
template <class Op, class T>
__global__ void clip_factor_kernel(clip_factor_config config, std::int64_t count, const double* sums, T* factor) {
  double norm = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) norm = Op::join(norm, sums[i]);
  norm = block_reduce<Op>(norm);
  if (config.norm_type == 2)
    norm = math::sqrt(norm);
  else if (config.norm_type != 1 && config.norm_type != largest<double>())
    norm = math::pow(norm, 1 / config.norm_type);
  const double wished = config.max_norm / (norm + 1e-6);
  if (threadIdx.x == 0) *factor = static_cast<T>(wished > 1 ? 1 : wished);
}

#ifndef __CUDACC_RTC__

namespace detail {

template <class Op, class T, class Term>
void clip_factor_of(CudaContext& context, const clip_factor_config& config, T* factor, std::int64_t count,
                    const T* const* xs, const std::int64_t* sizes, Term term) {
  const std::int64_t piece_size = tensor_piece_size(count, sizes, kClipPieces);
  std::int64_t all = 0;
  for (std::int64_t t = 0; t < count; ++t) all += (sizes[t] + piece_size - 1) / piece_size;
  Collectives* const ranks = config.over_ranks ? context.collectives() : nullptr;
  const std::int64_t of_ranks = ranks != nullptr ? 1 + ranks->size() : 0;
  double* const sums =
      static_cast<double*>(context.workspace(static_cast<std::size_t>(all + of_ranks) * sizeof(double)));
  double* next = sums;
  using List = tensor_list<const T, 1>;
  for_each_list<const T, 1>(count, {xs}, sizes, kClipPieces, [&](const List& list, const LaunchShape& shape) {
    launch(context, "clip_terms", &clip_terms_kernel<Op, Term, T>, shape, list, term, next);
    next += list.pieces;
  });
  double* joined = sums;
  if (ranks != nullptr) {
    double* const own = sums + all;
    launch(context, "clip_join", &clip_join_kernel<Op>, launch_shape(1, kBlock), all, sums, own);
    joined = own + 1;
    all = ranks->size();
    if (!context.rehearses()) ranks->gather_numbers(joined, own, 1);
  }
  launch(context, "clip_factor", &clip_factor_kernel<Op, T>, launch_shape(1, kBlock), config, all, joined, factor);
}

}  // namespace detail

template <class T>
void clip_factor(CudaContext& context, const clip_factor_config& config, T* factor, std::int64_t count,
                 const T* const* xs, const std::int64_t* sizes) {
  if (config.norm_type == 2)
    detail::clip_factor_of<sum_of>(context, config, factor, count, xs, sizes, clip_square{});
  else if (config.norm_type == 1)
    detail::clip_factor_of<sum_of>(context, config, factor, count, xs, sizes, clip_magnitude{});
  else if (config.norm_type == __builtin_huge_val())
    detail::clip_factor_of<maximum_of>(context, config, factor, count, xs, sizes, clip_magnitude{});
  else
    detail::clip_factor_of<sum_of>(context, config, factor, count, xs, sizes, clip_power{config.norm_type});
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
