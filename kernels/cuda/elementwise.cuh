// elementwise, broadcast, fill: a functor over tensors.
//
//   elementwise<relu>(context, elementwise_config{.n = 4096}, y, x);          // y[i] = relu::apply(x[i])
//   broadcast<add>(context, config, y, x0, x1);                               // each input at its own strides
//   fill(context, fill_config{.n = 4096, .value = 0}, y);
//
// A functor has `inputs` and `apply<T>(T x, ...)`. It computes in functor_type of the inputs' types (bool gives way to
// everything, integers to floating types, narrow to wide; half types count as float), to which they are converted when
// they are loaded; the result is converted to y's type. y may be any of the inputs, in a broadcast any that has its
// shape.
//
// Every tensor is read or written once, 16 bytes of the widest type at a time where all lie at multiples of them, a
// thread for as many elements. A broadcast first joins dimensions that lie alike in all inputs. Where the innermost of
// what is left lies side by side or is one element in every input, and is a multiple of 16 bytes, a thread has those
// together; else one element. Coordinates are 32-bit numbers and found without a division; a larger broadcast is cut
// into several launches.
#pragma once

#include "../config/elementwise.h"
#include "../cpu/dtype.h"
#include "context.cuh"
#include "vector.cuh"

#ifndef __CUDACC_RTC__
#include <cstddef>
#include <utility>
#endif

namespace graven::kernels {

namespace detail {

template <class T>
inline constexpr bool is_floating = T(0.5) != T(0);
template <>
inline constexpr bool is_floating<bool> = false;
template <class A, class B>
inline constexpr bool is_same = false;
template <class A>
inline constexpr bool is_same<A, A> = true;

/// bool gives way to everything, integers to floating types, narrow to wide.
template <class A, class B>
struct common {
  static constexpr bool first =
      is_same<B, bool> || (!is_same<A, bool> && ((is_floating<A> && !is_floating<B>) ||
                                                 (is_floating<A> == is_floating<B> && sizeof(A) >= sizeof(B))));
};
template <class A, class B, bool First = common<A, B>::first>
struct common_type {
  using type = A;
};
template <class A, class B>
struct common_type<A, B, false> {
  using type = B;
};
template <class A, class... More>
struct common_of {
  using type = A;
};
template <class A, class B, class... More>
struct common_of<A, B, More...> {
  using type = typename common_of<typename common_type<A, B>::type, More...>::type;
};

template <class... Types>
struct widest {
  static constexpr int bytes = 1;
};
template <class First, class... Rest>
struct widest<First, Rest...> {
  static constexpr int bytes = static_cast<int>(sizeof(First)) > widest<Rest...>::bytes
                                   ? static_cast<int>(sizeof(First))
                                   : widest<Rest...>::bytes;
};

}  // namespace detail

/// What a functor over inputs of these types computes in.
template <class... X>
using functor_type = typename detail::common_of<compute_t<X>...>::type;

/// Elements of a thread: 16 bytes of the widest of these types.
template <class... Types>
inline constexpr int kTogether = 16 / detail::widest<Types...>::bytes;

/// N elements of an input.
template <int N, class X>
struct several {
  X at[N];
};
template <int N, class X>
__device__ inline several<N, X> load_several(const X* from) {
  several<N, X> result;
  load_vector(result.at, from);
  return result;
}
template <int N, class X>
__device__ inline several<N, X> repeat(X value) {
  several<N, X> result;
#pragma unroll
  for (int e = 0; e < N; ++e) result.at[e] = value;
  return result;
}
template <class F, class Y, int N, class... X>
__device__ inline void apply_to_several(Y* y, const several<N, X>&... x) {
  using T = functor_type<X...>;
  Y result[N];
#pragma unroll
  for (int e = 0; e < N; ++e) result[e] = static_cast<Y>(F::template apply<T>(static_cast<T>(x.at[e])...));
  store_vector(y, result);
}

template <class F, class Y, class... X>
__global__ void elementwise_kernel(std::int64_t n, bool aligned, Y* y, const X*... x) {
  using T = functor_type<X...>;
  constexpr int N = kTogether<Y, X...>;
  for (std::int64_t i = N * first_item(); i < n; i += N * item_stride()) {
    if (aligned && i + N <= n) {
      apply_to_several<F>(y + i, load_several<N>(x + i)...);
    } else {
#pragma unroll 1
      for (std::int64_t at = i; at < i + N && at < n; ++at)
        y[at] = static_cast<Y>(F::template apply<T>(static_cast<T>(x[at])...));
    }
  }
}

/// The output's dimensions, outermost first.
struct broadcast_shape {
  int rank;  ///< 1 or more
  divider<std::int32_t> of[broadcast_config::kMaximumRank];
};
struct broadcast_coordinates {
  std::int32_t of[broadcast_config::kMaximumRank];

  __device__ broadcast_coordinates(const broadcast_shape& shape, std::int32_t item) {
#pragma unroll
    for (int d = broadcast_config::kMaximumRank - 1; d > 0; --d) {
      of[d] = 0;
      if (d < shape.rank) {
        const std::int32_t rest = shape.of[d].quotient(item);
        of[d] = item - rest * shape.of[d].divisor;
        item = rest;
      }
    }
    of[0] = item;
  }
};

/// One input of broadcast, with its own strides in elements.
template <class X>
struct broadcast_input {
  const X* data;
  std::int32_t strides[broadcast_config::kMaximumRank];
  bool repeats;  ///< a thread's elements are one

  __device__ const X* at(const broadcast_shape& shape, const broadcast_coordinates& coordinates) const {
    std::uint32_t offset = coordinates.of[0] * static_cast<std::uint32_t>(strides[0]);
#pragma unroll
    for (int d = 1; d < broadcast_config::kMaximumRank; ++d)
      if (d < shape.rank) offset += coordinates.of[d] * static_cast<std::uint32_t>(strides[d]);
    return data + static_cast<std::int32_t>(offset);
  }
  template <int N>
  __device__ several<N, X> load(const broadcast_shape& shape, const broadcast_coordinates& coordinates) const {
    const X* const from = at(shape, coordinates);
    return repeats ? repeat<N>(*from) : load_several<N>(from);
  }
};

/// An element a thread.
template <class F, class Y, class... X>
__global__ void broadcast_kernel(std::int64_t n, broadcast_shape shape, Y* y, broadcast_input<X>... x) {
  using T = functor_type<X...>;
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const broadcast_coordinates coordinates(shape, static_cast<std::int32_t>(i));
    y[i] = static_cast<Y>(F::template apply<T>(static_cast<T>(*x.at(shape, coordinates))...));
  }
}

/// 16 bytes of the widest type a thread: n, shape and strides are those of threads.
template <class F, class Y, class... X>
__global__ void broadcast_vector_kernel(std::int64_t n, broadcast_shape shape, Y* y, broadcast_input<X>... x) {
  constexpr int N = kTogether<Y, X...>;
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const broadcast_coordinates coordinates(shape, static_cast<std::int32_t>(i));
    apply_to_several<F>(y + i * N, x.template load<N>(shape, coordinates)...);
  }
}

template <class T>
__global__ void fill_kernel(std::int64_t n, T* y, T value) {
  constexpr int N = kVectorWidth<T>;
  const several<N, T> values = repeat<N>(value);
  for (std::int64_t i = N * first_item(); i < n; i += N * item_stride()) {
    if (aligned_for_vectors<N>(y) && i + N <= n) {
      store_vector(y + i, values.at);
    } else {
      for (std::int64_t at = i; at < i + N && at < n; ++at) y[at] = value;
    }
  }
}

#ifndef __CUDACC_RTC__

/// y[n] = F(x0[n], x1[n], ...).
template <class F, class Y, class... X>
void elementwise(CudaContext& context, const elementwise_config& config, Y* y, const X*... x) {
  static_assert(sizeof...(X) == F::inputs, "one pointer an input of the functor");
  constexpr int N = kTogether<Y, X...>;
  const bool aligned = aligned_for_vectors<N>(y, x...);
  launch(context, "elementwise", &elementwise_kernel<F, Y, X...>, launch_shape(divide_up(config.n, N)), config.n,
         aligned, y, x...);
}

namespace detail {

/// The same with as few dimensions as can be, at least one: those of size 1 are left out, and neighbours are joined
/// that lie behind one another in every input.
inline broadcast_config joined_dimensions(const broadcast_config& config, int inputs) {
  broadcast_config result{};
  for (int d = 0; d < config.rank; ++d) {
    if (config.shape[d] == 1) continue;
    const auto last = result.rank - 1;
    bool joins = last >= 0;
    for (int i = 0; i < inputs && joins; ++i) joins = result.strides[i][last] == config.strides[i][d] * config.shape[d];
    const auto to = joins ? last : result.rank++;
    result.shape[to] = (joins ? result.shape[to] : 1) * config.shape[d];
    for (int i = 0; i < inputs; ++i) result.strides[i][to] = config.strides[i][d];
  }
  if (result.rank == 0) result.shape[result.rank++] = 1;
  return result;
}

/// Whether the output's items and each input's offsets fit 32 bits.
inline bool broadcast_fits_32_bits(const broadcast_config& config, int inputs) {
  std::int64_t n = 1;
  for (int d = 0; d < config.rank; ++d) n *= config.shape[d];
  bool fits = fits_32_bits(n);
  for (int i = 0; i < inputs; ++i) {
    std::int64_t farthest = 0;
    for (int d = 0; d < config.rank; ++d) {
      const std::int64_t stride = config.strides[i][d];
      farthest += (stride < 0 ? -stride : stride) * (config.shape[d] - 1);
    }
    fits = fits && fits_32_bits(farthest);
  }
  return fits;
}

/// Whether `count` neighbours of the innermost dimension are `count` neighbours, or one element, of input i.
inline bool innermost_together(const broadcast_config& config, int i, int count, bool aligned) {
  const auto innermost = config.rank - 1;
  if (config.strides[i][innermost] == 0) return true;
  bool together = config.strides[i][innermost] == 1 && aligned;
  for (int d = 0; d < innermost; ++d) together = together && config.strides[i][d] % count == 0;
  return together;
}

/// `config` has joined dimensions and no empty one.
template <class F, class Y, std::size_t... I, class... X>
void broadcast_joined(CudaContext& context, const broadcast_config& config, std::index_sequence<I...> inputs, Y* y,
                      const X*... x) {
  if (!broadcast_fits_32_bits(config, sizeof...(X))) {
    // Half of the outermost dimension, and the other half.
    broadcast_config half = config;
    if (config.shape[0] == 1) {
      --half.rank;
      for (int d = 0; d < half.rank; ++d) {
        half.shape[d] = config.shape[d + 1];
        for (std::size_t i = 0; i < sizeof...(X); ++i) half.strides[i][d] = config.strides[i][d + 1];
      }
      return broadcast_joined<F>(context, half, inputs, y, x...);
    }
    std::int64_t step = half.shape[0] = config.shape[0] / 2;
    broadcast_joined<F>(context, half, inputs, y, x...);
    half.shape[0] = config.shape[0] - step;
    const std::int64_t outer = step;
    for (int d = 1; d < config.rank; ++d) step *= config.shape[d];
    return broadcast_joined<F>(context, half, inputs, y + step, (x + outer * config.strides[I][0])...);
  }
  constexpr int N = kTogether<Y, X...>;
  const auto rank = static_cast<int>(config.rank), innermost = rank - 1;
  const bool vectors = config.shape[innermost] % N == 0 && aligned_for_vectors<N>(y) &&
                       (innermost_together(config, I, N, aligned_for_vectors<N>(x)) && ...);
  broadcast_shape shape{rank, {}};
  std::int64_t n = 1;
  for (int d = 0; d < rank; ++d) {
    const std::int64_t size = vectors && d == innermost ? config.shape[d] / N : config.shape[d];
    shape.of[d] = divider_of<std::int32_t>(size);
    n *= size;
  }
  const auto input = [&]<class E>(std::size_t i, const E* data) {
    broadcast_input<E> result{data, {}, config.strides[i][innermost] == 0};
    for (int d = 0; d < rank; ++d)
      result.strides[d] = static_cast<std::int32_t>(config.strides[i][d] * (vectors && d == innermost ? N : 1));
    return result;
  };
  launch(context, "broadcast", vectors ? &broadcast_vector_kernel<F, Y, X...> : &broadcast_kernel<F, Y, X...>,
         launch_shape(n), n, shape, y, input(I, x)...);
}

}  // namespace detail

/// y[shape] = F(x0 at its strides, x1 at its strides, ...).
template <class F, class Y, class... X>
void broadcast(CudaContext& context, const broadcast_config& config, Y* y, const X*... x) {
  static_assert(sizeof...(X) == F::inputs && sizeof...(X) > 0, "one pointer an input of the functor");
  static_assert(sizeof...(X) <= broadcast_config::kMaximumInputs, "up to 8 inputs");
  for (int d = 0; d < config.rank; ++d)
    if (config.shape[d] == 0) return;
  detail::broadcast_joined<F>(context, detail::joined_dimensions(config, sizeof...(X)),
                              std::make_index_sequence<sizeof...(X)>(), y, x...);
}

template <class T>
void fill(CudaContext& context, const fill_config& config, T* y) {
  constexpr int N = kVectorWidth<T>;
  launch(context, "fill", &fill_kernel<T>, launch_shape(divide_up(config.n, N)), config.n, y,
         static_cast<T>(config.value));
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
