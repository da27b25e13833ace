// elementwise, broadcast, fill: a functor over tensors.
//
//   elementwise<relu>(context, elementwise_config{.n = 4096}, y, x);          // y[i] = relu::apply(x[i])
//   broadcast<add>(context, config, y, x0, x1);                               // each input at its own strides
//   fill(context, fill_config{.n = 4096, .value = 0}, y);
//
// A functor has `inputs` and `apply(T x, ...)`. What T is: y's type, or, when y is bool, the type of the first input that is not; inputs are
// converted to it when they are loaded, and the result to y's type when it is stored. y may be any of the inputs.
#pragma once

#include "../config/elementwise.h"
#include "context.cuh"

namespace graven::kernels {

namespace detail {

/// The first of the types that is not bool; bool when there is none.
template <class... Types>
struct first_number {
  using type = bool;
};
template <class First, class... Rest>
struct first_number<First, Rest...> {
  using type = First;
};
template <class... Rest>
struct first_number<bool, Rest...> {
  using type = typename first_number<Rest...>::type;
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

/// What elementwise<F> computes in.
template <class Y, class... X>
using elementwise_type = typename detail::first_number<Y, X...>::type;

template <class F, class Y, class... X>
__global__ void elementwise_kernel(std::int64_t n, Y* y, const X*... x) {
  using T = elementwise_type<Y, X...>;
  for (std::int64_t i = first_item(); i < n; i += item_stride()) y[i] = static_cast<Y>(F::apply(static_cast<T>(x[i])...));
}

/// Four floats a thread: n counts the groups of four.
template <class F, class... X>
__global__ void elementwise_float4_kernel(std::int64_t n, float4* y, const X*... x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    y[i] = [](const auto... v) { return make_float4(F::apply(v.x...), F::apply(v.y...), F::apply(v.z...), F::apply(v.w...)); }(x[i]...);
  }
}

/// Where item i of a row-major shape lies at the strides.
__device__ inline std::int64_t strided_offset(std::int64_t i, int rank, const std::int64_t* shape, const std::int64_t* strides) {
  std::int64_t offset = 0;
  for (int d = rank - 1; d >= 0; --d) {
    const std::int64_t rest = i / shape[d];
    offset += (i - rest * shape[d]) * strides[d];
    i = rest;
  }
  return offset;
}

template <class F, class Y, class... X>
__global__ void broadcast_kernel(std::int64_t n, broadcast_config config, Y* y, const X*... x) {
  using T = elementwise_type<Y, X...>;
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    int input = 0;
    // Braces: the inputs' offsets are taken in their order.
    const T values[] = {static_cast<T>(x[strided_offset(i, static_cast<int>(config.rank), config.shape, config.strides[input++])])...};
    if constexpr (sizeof...(X) == 1)
      y[i] = static_cast<Y>(F::apply(values[0]));
    else if constexpr (sizeof...(X) == 2)
      y[i] = static_cast<Y>(F::apply(values[0], values[1]));
    else if constexpr (sizeof...(X) == 3)
      y[i] = static_cast<Y>(F::apply(values[0], values[1], values[2]));
    else if constexpr (sizeof...(X) == 4)
      y[i] = static_cast<Y>(F::apply(values[0], values[1], values[2], values[3]));
    else if constexpr (sizeof...(X) == 5)
      y[i] = static_cast<Y>(F::apply(values[0], values[1], values[2], values[3], values[4]));
    else if constexpr (sizeof...(X) == 6)
      y[i] = static_cast<Y>(F::apply(values[0], values[1], values[2], values[3], values[4], values[5]));
    else if constexpr (sizeof...(X) == 7)
      y[i] = static_cast<Y>(F::apply(values[0], values[1], values[2], values[3], values[4], values[5], values[6]));
    else
      y[i] = static_cast<Y>(F::apply(values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[7]));
  }
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
      launch(context, "elementwise", &elementwise_float4_kernel<F, std::conditional_t<true, float4, X>...>, launch_shape(config.n / 4), config.n / 4,
             reinterpret_cast<float4*>(y), reinterpret_cast<const float4*>(x)...);
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
  std::int64_t n = 1;
  for (int d = 0; d < config.rank; ++d) n *= config.shape[d];
  launch(context, "broadcast", &broadcast_kernel<F, Y, X...>, launch_shape(n), n, config, y, x...);
}

template <class T>
void fill(CudaContext& context, const fill_config& config, T* y) {
  launch(context, "fill", &fill_kernel<T>, launch_shape(config.n), config.n, y, static_cast<T>(config.value));
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
