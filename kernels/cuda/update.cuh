// An optimizer's step over all parameters in one launch, or two where it asks for norms of whole tensors. What it
// computes is a rule's (cpu/update.h): a functor that stands in the project.
//
//   // the host's arrays of device pointers
//   update_parameters<sgd>(context, config, count, params, grads, sizes, lr, step, states...);
//   update_parameters<sgd>(context, config, count, params, grads, sizes, lr, step, &factor, states...);
//
// With a factor, which lies on the device, gradients are multiplied by it as they are read.
//
// Squares are added up in double, by block and then block after block: the same bits on every run.
#pragma once

#include "../config/update.h"
#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

/// Times one is exact.
template <class T>
__device__ inline T factor_of_gradients(const T* factor) {
  return factor == nullptr ? T(1) : *factor;
}

/// S: 0 up to the number of states.
template <class Rule, class T, int... S>
__device__ inline void update_elements(const tensor_list<T, 2 + sizeof...(S)>& list,
                                       const typename Rule::template numbers<T>& k, const T* factor) {
  const T times = factor_of_gradients(factor);
  T* const p = list.data[0][blockIdx.y];
  const T* const grad = list.data[1][blockIdx.y];
  T* const states[] = {list.data[2 + S][blockIdx.y]..., nullptr};
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride()) {
    T value = p[i];
    T state[] = {states[S][i]..., T(0)};
    Rule::apply(k, value, grad[i] * times, state[S]...);
    p[i] = value;
    ((states[S][i] = state[S]), ...);
  }
  (void)states;
}

template <class Rule, class T, int... S>
__global__ void update_kernel(tensor_list<T, 2 + sizeof...(S)> list, typename Rule::template numbers<T> k,
                              const T* factor) {
  update_elements<Rule, T, S...>(list, k, factor);
}

/// Makes the new states. sums [tensors, blocks, norms]: a block's sums of squares.
template <class Rule, class T, int... S>
__global__ void measure_kernel(tensor_list<T, 2 + sizeof...(S)> list, typename Rule::template numbers<T> k,
                               const T* factor, double* sums) {
  const T times = factor_of_gradients(factor);
  const T* const p = list.data[0][blockIdx.y];
  const T* const grad = list.data[1][blockIdx.y];
  T* const states[] = {list.data[2 + S][blockIdx.y]..., nullptr};
  double own[Rule::norms] = {};
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride()) {
    T state[] = {states[S][i]..., T(0)};
    T measured[Rule::norms];
    Rule::measure(k, p[i], grad[i] * times, state[S]..., measured);
    ((states[S][i] = state[S]), ...);
    for (int norm = 0; norm < Rule::norms; ++norm)
      own[norm] += static_cast<double>(measured[norm]) * static_cast<double>(measured[norm]);
  }
  for (int norm = 0; norm < Rule::norms; ++norm) {
    const double sum = block_reduce<sum_of>(own[norm]);
    if (threadIdx.x == 0)
      sums[Rule::norms * (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) + norm] = sum;
  }
  (void)states;
}

template <class Rule, class T, class Config, int... S>
__global__ void update_with_norms_kernel(tensor_list<T, 2 + sizeof...(S)> list, typename Rule::template numbers<T> k,
                                         Config config, double lr, std::int64_t step, const T* factor,
                                         const double* sums) {
  const double* const own = sums + Rule::norms * static_cast<std::int64_t>(blockIdx.y) * gridDim.x;
  double norms[Rule::norms] = {};
  for (int norm = 0; norm < Rule::norms; ++norm) {
    double sum = 0;
    for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) sum += own[Rule::norms * block + norm];
    norms[norm] = math::sqrt(block_reduce<sum_of>(sum));
  }
  Rule::at_tensor(k, config, lr, step, norms);
  update_elements<Rule, T, S...>(list, k, factor);
}

#ifndef __CUDACC_RTC__

namespace detail {

/// S: 0 up to the number of states.
template <class Rule, class T, class Config, int... S, class... States>
void update_lists(CudaContext& context, const Config& config, std::int64_t count, T* const* params,
                  const T* const* grads, const std::int64_t* sizes, double lr, std::int64_t step, const T* factor,
                  std::integer_sequence<int, S...>, States* const*... states) {
  const auto k = Rule::template at_step<T>(config, lr, step);
  using List = tensor_list<T, 2 + sizeof...(S)>;
  // The list holds pointers of one type; the kernels only read the gradients.
  for_each_list<T, 2 + sizeof...(S)>(
      count, {params, const_cast<T* const*>(grads), states...}, sizes, [&](const List& list, const LaunchShape& shape) {
        if constexpr (requires { Rule::norms; }) {
          double* sums = static_cast<double*>(
              context.workspace(std::size_t{Rule::norms} * shape.blocks.x * shape.blocks.y * sizeof(double)));
          launch(context, "measure", &measure_kernel<Rule, T, S...>, shape, list, k, factor, sums);
          launch(context, "update_parameters_with_norms", &update_with_norms_kernel<Rule, T, Config, S...>, shape, list,
                 k, config, lr, step, factor, sums);
        } else {
          launch(context, "update", &update_kernel<Rule, T, S...>, shape, list, k, factor);
        }
      });
}

}  // namespace detail

/// `states`: the array of each state. `step` counts from 1.
template <class Rule, class T, class Config, class... States>
void update_parameters(CudaContext& context, const Config& config, std::int64_t count, T* const* params,
                       const T* const* grads, const std::int64_t* sizes, double lr, std::int64_t step, const T* factor,
                       States* const*... states) {
  detail::update_lists<Rule>(context, config, count, params, grads, sizes, lr, step, factor,
                             std::make_integer_sequence<int, sizeof...(States)>(), states...);
}
template <class Rule, class T, class Config, class... States>
void update_parameters(CudaContext& context, const Config& config, std::int64_t count, T* const* params,
                       const T* const* grads, const std::int64_t* sizes, double lr, std::int64_t step,
                       States* const*... states) {
  update_parameters<Rule>(context, config, count, params, grads, sizes, lr, step, static_cast<const T*>(nullptr),
                          states...);
}

template <class Rule, class T, class Config, class... Others>
void update_parameters_with_norms(CudaContext& context, const Config& config, std::int64_t count, T* const* params,
                                  const T* const* grads, const std::int64_t* sizes, double lr, std::int64_t step,
                                  Others... others) {
  update_parameters<Rule>(context, config, count, params, grads, sizes, lr, step, others...);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
