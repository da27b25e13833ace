// An optimizer's step over all parameters: a launch for about 80 tensors (tensor_list.cuh), or two where it asks for
// norms of whole tensors. What it computes is a rule's (cpu/update.h): a functor that stands in the project.
//
//   // the host's arrays of device pointers
//   update_parameters<sgd>(context, config, count, params, grads, sizes, lr, step, states...);
//   update_parameters<sgd>(context, config, count, params, grads, sizes, lr, step, factor, states...);
//
// The rate and the number of the step lie on the device, so that the same launches do for every step; each block asks
// the rule what follows from them; in step 0 nothing is changed (loss_scale.cuh), nor behind a number out of range
// (call_faults.cuh). The factor, if there is one, which gradients are multiplied by as they are read, lies there, too.
//
// Parameters, gradients and states are read once, and parameters and states written once, 16 bytes at a time: of adam
// 28 bytes a float. With norms they are read twice, and the states written twice. In half types the rule computes in
// floats, and what it gives is rounded.
//
// Squares are added up in double, by piece and then piece after piece: the same bits on every run. Of
// update_parameters_with_norms<over_ranks<lamb>> each rank has its shards of the tensors alone, and their squares are
// added up rank after rank.
#pragma once

#include "../config/update.h"
#include "block.cuh"
#include "call_faults.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"
#include "vector.cuh"

namespace graven::kernels {

/// Pieces that all tensors are cut into; with norms each block adds up those of its tensor.
inline constexpr std::int64_t kUpdatePieces = 4096, kNormPieces = 1024;

/// A rule whose norms are of tensors of which each rank has its shard.
template <class Rule>
struct over_ranks : Rule {
  static constexpr bool is_over_ranks = true;
};

/// Times one is exact.
template <class T>
__device__ inline compute_t<T> factor_of_gradients(const T* factor) {
  return factor == nullptr ? compute_t<T>(1) : static_cast<compute_t<T>>(*factor);
}
/// A T, as if it had been stored.
template <class T>
__device__ inline compute_t<T> clipped(compute_t<T> gradient, compute_t<T> factor) {
  return static_cast<compute_t<T>>(static_cast<T>(gradient * factor));
}

/// What the rule makes of a step's numbers; every thread of the block calls it.
template <class Rule, class T, class Config>
__device__ inline typename Rule::template numbers<T> numbers_of_step(const Config& config, const double* lr,
                                                                     const std::int64_t* step) {
  __shared__ typename Rule::template numbers<T> numbers;
  if (threadIdx.x == 0) numbers = Rule::template at_step<T>(config, *lr, *step);
  __syncthreads();
  return numbers;
}

/// S: 0 up to the number of states.
template <class Rule, class T, int... S>
__device__ inline void update_elements(const tensor_list<T, 2 + sizeof...(S)>& list, const tensor_piece& piece,
                                       const typename Rule::template numbers<compute_t<T>>& k, const T* factor) {
  using C = compute_t<T>;
  constexpr int N = kVectorWidth<T>;
  const C times = factor_of_gradients(factor);
  T* const p = list.data[0][piece.tensor];
  const T* const grad = list.data[1][piece.tensor];
  T* const states[] = {list.data[2 + S][piece.tensor]..., nullptr};
  for (std::int64_t i = piece.first<N>(); i < piece.end; i += kBlock * N) {
    C value[N], gradient[N], state[sizeof...(S) + 1][N];
    piece.load(p, i, value);
    piece.load(grad, i, gradient);
    (piece.load(states[S], i, state[S]), ...);
#pragma unroll
    for (int e = 0; e < N; ++e) Rule::apply(k, value[e], clipped<T>(gradient[e], times), state[S][e]...);
    piece.store(p, i, value);
    (piece.store(states[S], i, state[S]), ...);
  }
  (void)states;
}

template <class Rule, class T, class Config, int... S>
__global__ void __launch_bounds__(kBlock)
    update_kernel(tensor_list<T, 2 + sizeof...(S)> list, Config config, const double* lr, const std::int64_t* step,
                  const T* factor, const call_fault* fault) {
  if (!updates(step, fault)) return;
  update_elements<Rule, T, S...>(list, tensor_piece(list), numbers_of_step<Rule, compute_t<T>>(config, lr, step),
                                 factor);
}

/// Makes the new states. sums [pieces, norms]: a piece's sums of squares.
template <class Rule, class T, class Config, int... S>
__global__ void __launch_bounds__(kBlock)
    measure_kernel(tensor_list<T, 2 + sizeof...(S)> list, Config config, const double* lr, const std::int64_t* step,
                   const T* factor, const call_fault* fault, double* sums) {
  if (!updates(step, fault)) return;
  using C = compute_t<T>;
  constexpr int N = kVectorWidth<T>;
  const auto k = numbers_of_step<Rule, C>(config, lr, step);
  const tensor_piece piece(list);
  const C times = factor_of_gradients(factor);
  const T* const p = list.data[0][piece.tensor];
  const T* const grad = list.data[1][piece.tensor];
  T* const states[] = {list.data[2 + S][piece.tensor]..., nullptr};
  double own[Rule::norms] = {};
  for (std::int64_t i = piece.first<N>(); i < piece.end; i += kBlock * N) {
    C value[N], gradient[N], state[sizeof...(S) + 1][N];
    piece.load(p, i, value);
    piece.load(grad, i, gradient);
    (piece.load(states[S], i, state[S]), ...);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      C measured[Rule::norms];
      Rule::measure(k, value[e], clipped<T>(gradient[e], times), state[S][e]..., measured);
      for (int norm = 0; norm < Rule::norms; ++norm) {
        const double x = i + e < piece.end ? static_cast<double>(measured[norm]) : 0.0;
        own[norm] += x * x;
      }
    }
    (piece.store(states[S], i, state[S]), ...);
  }
  for (int norm = 0; norm < Rule::norms; ++norm) {
    const double sum = block_reduce<sum_of>(own[norm]);
    if (threadIdx.x == 0) sums[Rule::norms * static_cast<std::int64_t>(blockIdx.x) + norm] = sum;
  }
  (void)states;
}

/// A block for each tensor: own [tensors, norms], the sums of its pieces.
template <int Norms, class List>
__global__ void __launch_bounds__(kBlock) join_norms_kernel(List list, const double* sums, double* own) {
  const int tensor = static_cast<int>(blockIdx.x);
  for (int norm = 0; norm < Norms; ++norm) {
    double sum = 0;
    for (std::uint32_t of = list.first_piece[tensor] + threadIdx.x; of < list.end_piece(tensor); of += kBlock)
      sum += sums[Norms * static_cast<std::int64_t>(of) + norm];
    sum = block_reduce<sum_of>(sum);
    if (threadIdx.x == 0) own[Norms * tensor + norm] = sum;
  }
}

/// sums [pieces, norms], or with `ranks` [ranks, tensors, norms].
template <class Rule, class T, class Config, int... S>
__global__ void __launch_bounds__(kBlock)
    update_with_norms_kernel(tensor_list<T, 2 + sizeof...(S)> list, Config config, const double* lr,
                             const std::int64_t* step, const T* factor, const call_fault* fault, const double* sums,
                             int ranks) {
  if (!updates(step, fault)) return;
  const tensor_piece piece(list);
  const std::uint32_t end = list.end_piece(piece.tensor);
  double norms[Rule::norms] = {};
  for (int norm = 0; norm < Rule::norms; ++norm) {
    double sum = 0;
    if (ranks > 0) {
      for (int rank = 0; rank < ranks; ++rank)
        sum += sums[Rule::norms * (static_cast<std::int64_t>(rank) * list.tensors + piece.tensor) + norm];
      norms[norm] = math::sqrt(sum);
      continue;
    }
    for (std::uint32_t of = list.first_piece[piece.tensor] + threadIdx.x; of < end; of += kBlock)
      sum += sums[Rule::norms * static_cast<std::int64_t>(of) + norm];
    norms[norm] = math::sqrt(block_reduce<sum_of>(sum));
  }
  auto k = numbers_of_step<Rule, compute_t<T>>(config, lr, step);
  Rule::at_tensor(k, config, *lr, *step, norms);
  update_elements<Rule, T, S...>(list, piece, k, factor);
}

#ifndef __CUDACC_RTC__

namespace detail {

/// S: 0 up to the number of states.
template <class Rule, class T, class Config, int... S, class... States>
void update_lists(CudaContext& context, const Config& config, std::int64_t count, T* const* params,
                  const T* const* grads, const std::int64_t* sizes, const double* lr, const std::int64_t* step,
                  const T* factor, std::integer_sequence<int, S...>, States* const*... states) {
  using List = tensor_list<T, 2 + sizeof...(S)>;
  // The list holds pointers of one type; the kernels only read the gradients.
  const call_fault* const fault = fault_of_calls(context);
  constexpr bool has_norms = requires { Rule::norms; };
  for_each_list<T, 2 + sizeof...(S)>(
      count, {params, const_cast<T* const*>(grads), states...}, sizes, has_norms ? kNormPieces : kUpdatePieces,
      [&](const List& list, const LaunchShape& shape) {
        if constexpr (has_norms) {
          Collectives* ranks = nullptr;
          if constexpr (requires { Rule::is_over_ranks; }) ranks = context.collectives();
          const int others = ranks != nullptr ? ranks->size() : 0;
          // Of the pieces, and with ranks of this one's tensors and of all ranks'.
          const std::size_t numbers = std::size_t{Rule::norms} * list.tensors,
                            of_ranks = ranks != nullptr ? numbers * (1 + static_cast<std::size_t>(others)) : 0;
          double* sums = static_cast<double*>(
              context.workspace((std::size_t{Rule::norms} * list.pieces + of_ranks) * sizeof(double)));
          launch(context, "measure", &measure_kernel<Rule, T, Config, S...>, shape, list, config, lr, step, factor,
                 fault, sums);
          if (ranks != nullptr) {
            double* const own = sums + std::size_t{Rule::norms} * list.pieces;
            launch(context, "join_norms", &join_norms_kernel<Rule::norms, List>,
                   launch_shape(std::int64_t{list.tensors} * kBlock, kBlock), list, static_cast<const double*>(sums),
                   own);
            if (!context.rehearses()) ranks->gather_numbers(own + numbers, own, static_cast<std::int64_t>(numbers));
            sums = own + numbers;
          }
          launch(context, "update_parameters_with_norms", &update_with_norms_kernel<Rule, T, Config, S...>, shape, list,
                 config, lr, step, factor, fault, sums, others);
        } else {
          launch(context, "update", &update_kernel<Rule, T, Config, S...>, shape, list, config, lr, step, factor,
                 fault);
        }
      });
}

}  // namespace detail

/// `states`: the array of each state. `lr` and `step`, which counts from 1, lie on the device.
template <class Rule, class T, class Config, class... States>
void update_parameters(CudaContext& context, const Config& config, std::int64_t count, T* const* params,
                       const T* const* grads, const std::int64_t* sizes, const double* lr, const std::int64_t* step,
                       const T* factor, States* const*... states) {
  detail::update_lists<Rule>(context, config, count, params, grads, sizes, lr, step, factor,
                             std::make_integer_sequence<int, sizeof...(States)>(), states...);
}
template <class Rule, class T, class Config, class... States>
void update_parameters(CudaContext& context, const Config& config, std::int64_t count, T* const* params,
                       const T* const* grads, const std::int64_t* sizes, const double* lr, const std::int64_t* step,
                       States* const*... states) {
  update_parameters<Rule>(context, config, count, params, grads, sizes, lr, step, static_cast<const T*>(nullptr),
                          states...);
}

template <class Rule, class T, class Config, class... Others>
void update_parameters_with_norms(CudaContext& context, const Config& config, std::int64_t count, T* const* params,
                                  const T* const* grads, const std::int64_t* sizes, const double* lr,
                                  const std::int64_t* step, Others... others) {
  update_parameters<Rule>(context, config, count, params, grads, sizes, lr, step, others...);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
