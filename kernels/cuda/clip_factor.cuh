// clip_factor and gradient_norm (cpu/clip_factor.h): every element is read once, 16 bytes at a time, in a launch for
// about 170 tensors (tensor_list.cuh); one more, of one block, joins the sums of about 1024 pieces.
//
//   // the host's arrays of device pointers
//   clip_factor(context, clip_factor_config{.max_norm = 1}, factor, count, xs, sizes);
//   gradient_norm(context, gradient_norm_config{}, norm, count, xs, sizes);
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

/// The norm that sums, one of all pieces or of all ranks, come to.
template <class Op>
__device__ inline double norm_of_sums(double norm_type, std::int64_t count, const double* sums) {
  double norm = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) norm = Op::join(norm, sums[i]);
  norm = block_reduce<Op>(norm);
  if (norm_type == 2) return math::sqrt(norm);
  return norm_type == 1 || norm_type == largest<double>() ? norm : math::pow(norm, 1 / norm_type);
}

/// One block.
template <class Op, class T>
__global__ void clip_factor_kernel(clip_factor_config config, std::int64_t count, const double* sums, T* factor) {
  const double norm = norm_of_sums<Op>(config.norm_type, count, sums);
  const double wished = config.max_norm / (norm + 1e-6);
  if (threadIdx.x == 0) *factor = static_cast<T>(wished > 1 ? 1 : wished);
}

/// One block.
template <class Op, class T>
__global__ void gradient_norm_kernel(gradient_norm_config config, std::int64_t count, const double* sums, T* to) {
  const double norm = norm_of_sums<Op>(config.norm_type, count, sums);
  if (threadIdx.x == 0) *to = static_cast<T>(norm);
}

#ifndef __CUDACC_RTC__

namespace detail {

/// `last`: the kernel that makes the result out of the sums, of one block.
template <class Op, class T, class Config, class Term>
void norm_of_all(CudaContext& context, const char* name, void (*last)(Config, std::int64_t, const double*, T*),
                 const Config& config, Collectives* ranks, T* to, std::int64_t count, const T* const* xs,
                 const std::int64_t* sizes, Term term) {
  const std::int64_t piece_size = tensor_piece_size(count, sizes, kClipPieces);
  std::int64_t all = 0;
  for (std::int64_t t = 0; t < count; ++t) all += (sizes[t] + piece_size - 1) / piece_size;
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
  launch(context, name, last, launch_shape(1, kBlock), config, all, joined, to);
}

/// of(how terms join, what they are)
template <class Of>
void each_norm(double norm_type, const Of& of) {
  if (norm_type == 2)
    of(sum_of{}, clip_square{});
  else if (norm_type == 1)
    of(sum_of{}, clip_magnitude{});
  else if (norm_type == __builtin_huge_val())
    of(maximum_of{}, clip_magnitude{});
  else
    of(sum_of{}, clip_power{norm_type});
}

}  // namespace detail

template <class T>
void clip_factor(CudaContext& context, const clip_factor_config& config, T* factor, std::int64_t count,
                 const T* const* xs, const std::int64_t* sizes) {
  Collectives* const ranks = config.over_ranks ? context.collectives() : nullptr;
  const auto of = [&]<class Op, class Term>(Op, Term term) {
    detail::norm_of_all<Op>(context, "clip_factor", &clip_factor_kernel<Op, T>, config, ranks, factor, count, xs, sizes,
                            term);
  };
  detail::each_norm(config.norm_type, of);
}

template <class T>
void gradient_norm(CudaContext& context, const gradient_norm_config& config, T* norm, std::int64_t count,
                   const T* const* xs, const std::int64_t* sizes) {
  const auto of = [&]<class Op, class Term>(Op, Term term) {
    detail::norm_of_all<Op>(context, "gradient_norm", &gradient_norm_kernel<Op, T>, config, nullptr, norm, count, xs,
                            sizes, term);
  };
  detail::each_norm(config.norm_type, of);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
