// elementwise, broadcast, fill: a functor over tensors.
//
//   elementwise<relu>(context, elementwise_config{.n = 4096}, y, x);          // y[i] = relu::apply(x[i])
//   broadcast<add>(context, config, y, x0, x1);                               // each input at its own strides
//   fill(context, fill_config{.n = 4096, .value = 0}, y);
//
// A functor has `inputs` and `apply<T>(T x, ...)`. It computes in functor_type of the inputs' types (bool gives way to
// everything, integers to floating types, narrow to wide), to which they are converted when they are loaded; the result
// is converted to y's type. y may be any of the inputs.
#pragma once

#include "../config/elementwise.h"
#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <tuple>
#include <type_traits>
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
struct all_float {
  static constexpr bool value = true;
};
template <class First, class... Rest>
struct all_float<First, Rest...> {
  static constexpr bool value = false;
};
template <class... Rest>
struct all_float<float, Rest...> {
  static constexpr bool value = all_float<Rest...>::value;
};

}  // namespace detail

/// What a functor over inputs of these types computes in.
template <class... X>
using functor_type = typename detail::common_of<X...>::type;

template <class F, class Y, class... X>
__global__ void elementwise_kernel(std::int64_t n, Y* y, const X*... x) {
  using T = functor_type<X...>;
  for (std::int64_t i = first_item(); i < n; i += item_stride())
    y[i] = static_cast<Y>(F::template apply<T>(static_cast<T>(x[i])...));
}

/// Four floats a thread: n counts the groups of four.
template <class F, class... X>
__global__ void elementwise_float4_kernel(std::int64_t n, float4* y, const X*... x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    y[i] = [](const auto... v) {
      return make_float4(F::template apply<float>(v.x...), F::template apply<float>(v.y...),
                         F::template apply<float>(v.z...), F::template apply<float>(v.w...));
    }(x[i]...);
  }
}

/// Where item i of a row-major shape lies at the strides.
__device__ inline std::int64_t strided_offset(std::int64_t i, int rank, const std::int64_t* shape,
                                              const std::int64_t* strides) {
  std::int64_t offset = 0;
  for (int d = rank - 1; d >= 0; --d) {
    const std::int64_t rest = i / shape[d];
    offset += (i - rest * shape[d]) * strides[d];
    i = rest;
  }
  return offset;
}

/// One input of broadcast, with its own strides.
template <class X>
struct broadcast_input {
  const X* data;
  std::int64_t strides[broadcast_config::kMaximumRank];
};
struct broadcast_shape {
  int rank;
  std::int64_t of[broadcast_config::kMaximumRank];
};

template <class F, class Y, class... X>
__global__ void broadcast_kernel(std::int64_t n, broadcast_shape shape, Y* y, broadcast_input<X>... x) {
  using T = functor_type<X...>;
  for (std::int64_t i = first_item(); i < n; i += item_stride())
    y[i] = static_cast<Y>(
        F::template apply<T>(static_cast<T>(x.data[strided_offset(i, shape.rank, shape.of, x.strides)])...));
}

template <class T>
__global__ void fill_kernel(std::int64_t n, T* y, T value) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) y[i] = value;
}

#ifndef __CUDACC_RTC__

namespace detail {
inline bool aligned16(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }
}  // namespace detail

/// y[n] = F(x0[n], x1[n], ...).
template <class F, class Y, class... X>
void elementwise(CudaContext& context, const elementwise_config& config, Y* y, const X*... x) {
  static_assert(sizeof...(X) == F::inputs, "one pointer an input of the functor");
  if constexpr (sizeof...(X) > 0 && detail::all_float<Y, X...>::value) {
    if (config.n % 4 == 0 && detail::aligned16(y) && (detail::aligned16(x) && ...)) {
      launch(context, "elementwise", &elementwise_float4_kernel<F, std::conditional_t<true, float4, X>...>,
             launch_shape(config.n / 4), config.n / 4, reinterpret_cast<float4*>(y),
             reinterpret_cast<const float4*>(x)...);
      return;
    }
  }
  launch(context, "elementwise", &elementwise_kernel<F, Y, X...>, launch_shape(config.n), config.n, y, x...);
}

/// y[shape] = F(x0 at its strides, x1 at its strides, ...).
template <class F, class Y, class... X>
void broadcast(CudaContext& context, const broadcast_config& config, Y* y, const X*... x) {
  static_assert(sizeof...(X) == F::inputs && sizeof...(X) > 0, "one pointer an input of the functor");
  static_assert(sizeof...(X) <= broadcast_config::kMaximumInputs, "up to 8 inputs");
  broadcast_shape shape{static_cast<int>(config.rank), {}};
  std::int64_t n = 1;
  for (int d = 0; d < shape.rank; ++d) n *= shape.of[d] = config.shape[d];
  const std::int64_t(*strides)[broadcast_config::kMaximumRank] = config.strides;
  const auto input = [&]<class E>(const E* data) {
    broadcast_input<E> result{data, {}};
    for (int d = 0; d < shape.rank; ++d) result.strides[d] = (*strides)[d];
    ++strides;
    return result;
  };
  // Braces: the inputs are taken in their order.
  const std::tuple<broadcast_input<X>...> inputs{input(x)...};
  std::apply(
      [&](const auto&... each) {
        launch(context, "broadcast", &broadcast_kernel<F, Y, X...>, launch_shape(n), n, shape, y, each...);
      },
      inputs);
}

template <class T>
void fill(CudaContext& context, const fill_config& config, T* y) {
  launch(context, "fill", &fill_kernel<T>, launch_shape(config.n), config.n, y, static_cast<T>(config.value));
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
