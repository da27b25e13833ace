// clip_factor (cpu/clip_factor.h): every element is read once, in a launch for 24 tensors; one more joins the sums.
//
//   // the host's arrays of device pointers
//   clip_factor(context, clip_factor_config{.max_norm = 1}, factor, count, xs, sizes);
//
// Terms are added up in double, by block and then block after block: the same bits on every run.
#pragma once

#include "../config/clip_factor.h"
#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

/// Blocks that share a tensor: each has a sum.
inline constexpr int kClipBlocks = 256;

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

/// sums [tensors, kClipBlocks]
template <class Op, class Term, class T>
__global__ void clip_terms_kernel(tensor_list<const T, 1> list, Term term, double* sums) {
  const T* const x = list.data[0][blockIdx.y];
  double own = 0;
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride())
    own = Op::join(own, term(math::abs(static_cast<double>(x[i]))));
  own = block_reduce<Op>(own);
  if (threadIdx.x == 0) sums[static_cast<std::int64_t>(blockIdx.y) * kClipBlocks + blockIdx.x] = own;
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
  const std::int64_t each = kClipBlocks, all = count * each;
  double* const sums = static_cast<double*>(context.workspace(static_cast<std::size_t>(all) * sizeof(double)));
  double* next = sums;
  using List = tensor_list<const T, 1>;
  for_each_list<const T, 1>(count, {xs}, sizes, [&](const List& list, LaunchShape shape) {
    shape.blocks.x = kClipBlocks;  // those without an element write 0, of tensors without elements all
    shape.empty = false;
    launch(context, "clip_terms", &clip_terms_kernel<Op, Term, T>, shape, list, term, next);
    next += static_cast<std::int64_t>(shape.blocks.y) * each;
  });
  LaunchShape one = launch_shape(kBlock);
  one.blocks.x = 1;
  launch(context, "clip_factor", &clip_factor_kernel<Op, T>, one, config, all, sums, factor);
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
