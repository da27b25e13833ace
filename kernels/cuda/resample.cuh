// resample: one dimension of x[outer,in,inner] becomes `out` elements: nearest, linear or cubic interpolation, or the
// mean over each element's area. resample_backward: dx, the transpose.
//
//   resample(context, resample_config{.outer = 2, .in = 4, .out = 8, .inner = 80, .mode = kResampleLinear,
//                                     .align_corners = false, .scale = 0.5}, y, x);
//
// y is written once, x read once (what neighbours share comes from the caches), at the speed of memory. An item is 16
// bytes of `inner` where there are such, so that positions and weights are computed once for them, else an element; of
// the nearest a thread takes up to 4. The gradient asks every element of y near enough for what it took: no atomics,
// one order.
#pragma once

#include "../config/resample.h"
#include "items.cuh"

namespace graven::kernels {

/// resample_taps, for indices of one type.
template <class Index>
struct resample_reach {
  Index first, count;
  double weights[4];
};

/// resample_taps_of of config/resample.h, for the device and a mode of `Taps` taps; 0: the
/// area's are as many as they are.
template <int Taps, class Index>
__device__ inline resample_reach<Index> taps_of(const resample_config& c, Index in, Index out, Index j) {
  if constexpr (Taps == 0) {
    const Index first = j * in / out, end = ((j + 1) * in + out - 1) / out;
    return {first, end - first, {1.0 / static_cast<double>(end - first), 0, 0, 0}};
  } else if constexpr (Taps == 1) {
    const float at = (static_cast<float>(j) + (c.mode == kResampleNearest ? 0.0f : 0.5f)) * static_cast<float>(c.scale);
    const Index i = static_cast<Index>(at);
    return {i < in - 1 ? i : in - 1, 1, {1, 0, 0, 0}};
  } else {
    double at = (static_cast<double>(j) + 0.5) * c.scale - 0.5;
    if (c.align_corners)
      at = out > 1 ? static_cast<double>(j) * static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0.0;
    if constexpr (Taps == 2) {
      if (at < 0) at = 0;
      Index first = static_cast<Index>(::floor(at));
      if (first > in - 1) first = in - 1;
      double t = at - static_cast<double>(first);
      if (t > 1) t = 1;
      return {first, 2, {1 - t, t, 0, 0}};
    } else {
      const double below = ::floor(at), t = at - below, a = -0.75;
      const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
      const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
      return {static_cast<Index>(below) - 1, 4, {far(t + 1), near(t), near(1 - t), far(2 - t)}};
    }
  }
}
/// The same for any mode.
template <class Index>
__device__ inline resample_reach<Index> taps_of(const resample_config& c, Index in, Index out, Index j) {
  if (c.mode == kResampleArea) return taps_of<0>(c, in, out, j);
  if (c.mode == kResampleLinear) return taps_of<2>(c, in, out, j);
  if (c.mode == kResampleCubic) return taps_of<4>(c, in, out, j);
  return taps_of<1>(c, in, out, j);
}

/// Items of V elements of `inner`, `size` of them along the dimension.
template <class Index>
struct resample_items {
  divider<Index> inner, size;
  Index in, out;
};
template <int V, class T>
struct resample_values {
  T of[V];
};

template <int Taps, int Items, int V, class Index, class T>
__global__ void resample_kernel(Index n, resample_items<Index> s, resample_config c, T* __restrict__ y,
                                const T* __restrict__ x) {
  for_items<Items, resample_values<V, T>>(
      n,
      [&](Index i) {
        const Index line = s.inner.quotient(i), outer = s.size.quotient(line), step = s.inner.divisor * V;
        const resample_reach<Index> taps = taps_of<Taps>(c, s.in, s.out, line - outer * s.size.divisor);
        const T* from = x + outer * s.in * step + (i - line * s.inner.divisor) * V;
        resample_values<V, T> sum{};
        if constexpr (Taps == 0) {
          const T weight = static_cast<T>(taps.weights[0]);
#pragma unroll 4
          for (Index k = 0; k < taps.count; ++k) {
            T value[V];
            load_vector(value, from + (taps.first + k) * step);
#pragma unroll
            for (int v = 0; v < V; ++v) sum.of[v] += weight * value[v];
          }
        } else {
          T values[Taps > 0 ? Taps : 1][V];
#pragma unroll
          for (int k = 0; k < Taps; ++k) {
            const Index at = taps.first + k;
            load_vector(values[k], from + (at < 0 ? 0 : at >= s.in ? s.in - 1 : at) * step);
          }
#pragma unroll
          for (int v = 0; v < V; ++v)
            sum.of[v] = Taps == 1 ? values[0][v] : static_cast<T>(taps.weights[0]) * values[0][v];
#pragma unroll
          for (int k = 1; k < Taps; ++k)
#pragma unroll
            for (int v = 0; v < V; ++v) sum.of[v] += static_cast<T>(taps.weights[k]) * values[k][v];
        }
        return sum;
      },
      [&](Index i, const resample_values<V, T>& sum) { store_vector(y + i * V, sum.of); });
}

/// The first j whose taps reach `at`, from a guess on: positions grow with j. At the ends taps are clipped, so all of
/// them reach.
template <class Index>
__device__ inline Index resample_first(const resample_config& c, Index in, Index out, Index at) {
  if (at == 0) return 0;
  const auto reaches = [&](Index j) {
    const resample_reach<Index> taps = taps_of(c, in, out, j);
    return taps.first + taps.count > at;
  };
  const bool centred = c.mode == kResampleLinear || c.mode == kResampleCubic;
  // Where the last tap of a position is `at`, but for roundings.
  const double last = static_cast<double>(at - (c.mode == kResampleCubic ? 2 : centred ? 1 : 0));
  const double ratio = static_cast<double>(out) / static_cast<double>(in);
  double guess = last * ratio;
  if (centred)
    guess = c.align_corners ? last * static_cast<double>(out - 1) / static_cast<double>(in - 1)
                            : (last + 0.5) * ratio - 0.5;
  Index j = static_cast<Index>(guess);
  j = j < 0 ? 0 : j < out ? j : out - 1;
  while (j > 0 && reaches(j - 1)) --j;
  while (j < out && !reaches(j)) ++j;
  return j;
}

template <int V, class Index, class T>
__global__ void resample_backward_kernel(Index n, resample_items<Index> s, resample_config c, T* __restrict__ dx,
                                         const T* __restrict__ dy) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < n; i += static_cast<Index>(item_stride())) {
    const Index line = s.inner.quotient(i), outer = s.size.quotient(line), step = s.inner.divisor * V;
    const Index at = line - outer * s.size.divisor;
    const T* from = dy + outer * s.out * step + (i - line * s.inner.divisor) * V;
    T sum[V] = {};
    for (Index j = resample_first(c, s.in, s.out, at); j < s.out; ++j) {
      const resample_reach<Index> taps = taps_of(c, s.in, s.out, j);
      if (taps.first > at && at < s.in - 1) break;
      T value[V];
      load_vector(value, from + j * step);
      const auto add = [&](Index reached, double weight) {
        reached = reached < 0 ? 0 : reached >= s.in ? s.in - 1 : reached;
        if (reached != at) return;
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += static_cast<T>(weight) * value[v];
      };
      if (c.mode == kResampleArea) {
        add(at, taps.weights[0]);  // its taps lie within x, and one of them is here
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if (k < taps.count) add(taps.first + k, taps.weights[k]);
      }
    }
    store_vector(dx + i * V, sum);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// A bound of all indices, of the products of kResampleArea and of where a cubic reaches beyond the ends.
inline std::int64_t resample_largest(const resample_config& c) {
  const std::int64_t length = (c.in > c.out ? c.in : c.out) + 4, items = c.outer * length * c.inner,
                     product = (c.in + 1) * (c.out + 1);
  return items > product ? items : product;
}
template <class Index>
resample_items<Index> resample_items_of(const resample_config& c, std::int64_t size, int width) {
  return {divider_of<Index>(c.inner / width), divider_of<Index>(size), static_cast<Index>(c.in),
          static_cast<Index>(c.out)};
}

template <int V, class T>
void launch_resample(CudaContext& context, const resample_config& config, T* y, const T* x) {
  const std::int64_t n = config.outer * config.out * config.inner / V;
  const auto start = [&]<int Taps, int Items, class Index>() {
    launch(context, "resample", &resample_kernel<Taps, Items, V, Index, T>, items_shape(n, Items), n,
           resample_items_of<Index>(config, config.out, V), config, y, x);
  };
  // With several taps an item has enough under way.
  const std::int64_t mode = config.mode;
  if (mode == kResampleNearest || mode == kResampleNearestExact)
    with_items(n, resample_largest(config),
               [&]<class Index, int Items>() { start.template operator()<1, Items, Index>(); });
  else
    with_index(resample_largest(config), [&]<class Index>() {
      if (mode == kResampleArea)
        start.template operator()<0, 1, Index>();
      else if (mode == kResampleLinear)
        start.template operator()<2, 1, Index>();
      else
        start.template operator()<4, 1, Index>();
    });
}

template <int V, class T>
void launch_resample_backward(CudaContext& context, const resample_config& config, T* dx, const T* dy) {
  const std::int64_t n = config.outer * config.in * config.inner / V;
  with_index(resample_largest(config), [&]<class Index>() {
    launch(context, "resample_backward", &resample_backward_kernel<V, Index, T>, launch_shape(n), n,
           resample_items_of<Index>(config, config.in, V), config, dx, dy);
  });
}

}  // namespace detail

template <class T>
void resample(CudaContext& context, const resample_config& config, T* y, const T* x) {
  if (takes_vectors<T>(config.inner, y, x))
    detail::launch_resample<kFloatWidth<T>>(context, config, y, x);
  else
    detail::launch_resample<1>(context, config, y, x);
}

template <class T>
void resample_backward(CudaContext& context, const resample_config& config, T* dx, const T* dy) {
  if (takes_vectors<T>(config.inner, dx, dy))
    detail::launch_resample_backward<kFloatWidth<T>>(context, config, dx, dy);
  else
    detail::launch_resample_backward<1>(context, config, dx, dy);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
