// pad_border: y is x with its mirror image, its border or its other end around it. pad_border_backward: dx gathers what
// was taken from each element.
//
//   pad_border(context, pad_border_config{.rank = 3, .shape = {8, 6, 7}, .in_shape = {8, 4, 5}, .before = {0, 1, 1},
//                                         .inner = 16, .mode = kPadReflect}, y, x);
//
// y is written once and x read once, the border twice: the kernel of pad, whose items are 16 bytes of the dimensions
// that are not padded where there are such. In the gradient an item, 16 bytes or an element, of dx adds the positions
// of y that were taken from it, in their order: no atomics. Of each dimension these are at most three, or with
// kPadReplicate all behind an end, and are known without a search.
#pragma once

#include "../config/pad_border.h"
#include "pad.cuh"

namespace graven::kernels {

/// The positions of y along a dimension that are taken from one element of x: `count`, in their order.
template <class Index>
struct border_places {
  Index place[3];
  Index count;
  bool run;  ///< all from place[0] on

  __device__ Index operator[](Index k) const { return run ? place[0] + k : place[k < 2 ? (k < 1 ? 0 : 1) : 2]; }
};

/// Those of element `own` of `size`; y has `shape` positions, of which `before` lie before x.
template <class Index>
__device__ inline border_places<Index> border_places_of(Index own, Index size, Index shape, Index before, int mode) {
  border_places<Index> result{{0, 0, 0}, 0, mode == kPadReplicate};
  if (mode == kPadReplicate) {
    const Index low = own == 0 ? 0 : own + before, high = own == size - 1 ? shape - 1 : own + before;
    const Index first = low < 0 ? 0 : low, last = high < shape ? high : shape - 1;
    result.place[0] = first;
    result.count = last >= first ? last - first + 1 : 0;
    return result;
  }
  const bool circular = mode == kPadCircular;
  // The image before x, x itself and the image behind it.
  const Index left = circular  ? own - size
                     : own > 0 ? -own
                               : size,
              middle = own,
              right = circular         ? own + size
                      : own < size - 1 ? 2 * (size - 1) - own
                                       : Index(-1);
  const auto add = [&](Index i, bool taken) {
    if (!taken || i + before < 0 || i + before >= shape) return;
    if (result.count == 0)
      result.place[0] = i + before;
    else if (result.count == 1)
      result.place[1] = i + before;
    else
      result.place[2] = i + before;
    ++result.count;
  };
  add(left, left < 0);
  add(middle, true);
  add(right, right >= size);
  return result;
}

/// Adds all that was taken from item i of dx.
template <int V, class Index, class T>
__device__ inline void border_sum(const pad_view<Index>& view, const pad_view<Index>& in_view, Index i, const T* dy,
                                  T (&sum)[V]) {
  constexpr int kMost = pad_border_config::kMaximumRank + 1;
  border_places<Index> places[kMost];
  Index turn[kMost];
  bool any = true;
  for (int d = 0; d < view.rank; ++d) {
    const Index outer = in_view.shape[d].quotient(i);
    places[d] = border_places_of(i - outer * in_view.shape[d].divisor, view.in_shape[d], view.shape[d].divisor,
                                 view.before[d], view.mode);
    i = outer;
    turn[d] = 0;
    any = any && places[d].count > 0;
  }
  // An odometer over the positions of all dimensions.
  while (any) {
    Index at = 0;
    for (int d = view.rank - 1; d >= 0; --d) at = at * view.shape[d].divisor + places[d][turn[d]];
    T value[V];
    load_vector(value, dy + at * V);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += value[v];
    int d = 0;
    for (; d < view.rank; ++d) {
      if (++turn[d] < places[d].count) break;
      turn[d] = 0;
    }
    any = d < view.rank;
  }
}

/// `in_view` has the shape of dx. Most items were taken once.
template <int V, class Index, class T>
__global__ void pad_border_backward_kernel(Index n, pad_view<Index> view, pad_view<Index> in_view, T* __restrict__ dx,
                                           const T* __restrict__ dy) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < n; i += static_cast<Index>(item_stride())) {
    Index rest = i, at = 0, stride = 1;
    bool once = true;
    for (int d = 0; d < view.rank; ++d) {
      const Index outer = in_view.shape[d].quotient(rest), shape = view.shape[d].divisor;
      const border_places<Index> places =
          border_places_of(rest - outer * in_view.shape[d].divisor, view.in_shape[d], shape, view.before[d], view.mode);
      rest = outer;
      once = once && places.count == 1;
      at += places.place[0] * stride;
      stride *= shape;
    }
    T sum[V] = {};
    if (once)
      load_vector(sum, dy + at * V);
    else
      border_sum(view, in_view, i, dy, sum);
    store_vector(dx + i * V, sum);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

inline pad_dims pad_dims_of(const pad_border_config& config) {
  pad_dims dims;
  if (config.inner != 1) dims.add(config.inner, config.inner, 0);
  for (int d = static_cast<int>(config.rank) - 1; d >= 0; --d)
    dims.add(config.shape[d], config.in_shape[d], config.before[d]);
  return dims;
}

}  // namespace detail

template <class T>
void pad_border(CudaContext& context, const pad_border_config& config, T* y, const T* x) {
  const detail::pad_dims dims = detail::pad_dims_of(config);
  detail::launch_pad(context, "pad_border", dims, static_cast<int>(config.mode), dims.whole(0), T(0), y, x);
}

template <class T>
void pad_border_backward(CudaContext& context, const pad_border_config& config, T* dx, const T* dy) {
  detail::pad_dims dims = detail::pad_dims_of(config);
  constexpr int kWidth = kFloatWidth<T>;
  const bool vectors = kWidth > 1 && dims.whole(0) && aligned_for_vectors<kWidth>(dx, dy) && dims.in_units(kWidth);
  detail::pad_dims in_dims = dims;
  for (int d = 0; d < dims.rank; ++d) in_dims.shape[d] = dims.in_shape[d];
  const std::int64_t n = dims.in_items();
  with_index(detail::largest_index(dims) * kWidth, [&]<class Index>() {
    const pad_view<Index> view = detail::pad_view_of<Index>(dims, static_cast<int>(config.mode)),
                          in_view = detail::pad_view_of<Index>(in_dims, static_cast<int>(config.mode));
    if (vectors)
      launch(context, "pad_border_backward", &pad_border_backward_kernel<kWidth, Index, T>, launch_shape(n), n, view,
             in_view, dx, dy);
    else
      launch(context, "pad_border_backward", &pad_border_backward_kernel<1, Index, T>, launch_shape(n), n, view,
             in_view, dx, dy);
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
