// pad: y is x with a constant around it, or with borders cut off: y[i] = x[i - before] where that lies inside x, else
// value.
//
//   // y[4,7], x[3,4]
//   pad(context, pad_config{.rank = 2, .shape = {4, 7}, .in_shape = {3, 4}, .before = {1, 2}, .value = 0}, y, x);
//
// y is written once, x read once, at the speed of memory. The host merges neighbouring dimensions that are not padded
// into one, and an item is 16 bytes where the innermost dimension comes in such, before and behind x too; else an
// element, of which a thread takes up to 4. pad_border runs the same kernel.
#pragma once

#include "../config/pad.h"
#include "../config/pad_border.h"
#include "items.cuh"

namespace graven::kernels {

inline constexpr int kPadConstant = -1;  ///< beside kPadReflect, kPadReplicate and kPadCircular

/// Dimensions, innermost first.
template <class Index>
struct pad_view {
  int rank, mode;
  divider<Index> shape[pad_border_config::kMaximumRank + 1];  ///< of y
  Index in_shape[pad_border_config::kMaximumRank + 1], before[pad_border_config::kMaximumRank + 1];
  /// Before x and behind it position i is taken from factor * i + low or high.
  Index factor, low[pad_border_config::kMaximumRank + 1], high[pad_border_config::kMaximumRank + 1];
};

/// `Unit`: an element or 16 bytes of them.
template <int Items, class Index, class Unit>
__global__ void pad_kernel(Index n, pad_view<Index> view, Unit value, Unit* __restrict__ y,
                           const Unit* __restrict__ x) {
  for_items<Items, Unit>(
      n,
      [&](Index i) {
        Index at = 0, stride = 1;
        bool inside = true;
        for (int d = 0; d < view.rank; ++d) {
          const Index rest = d < view.rank - 1 ? view.shape[d].quotient(i) : 0, size = view.in_shape[d];
          const Index place = i - rest * view.shape[d].divisor - view.before[d];
          const Index low = view.low[d], high = view.high[d], image = place * view.factor + (place < 0 ? low : high);
          const Index source = place < 0 || place >= size ? image : place;
          inside = inside && source >= 0 && source < size;
          at += source * stride;
          stride *= size;
          i = rest;
        }
        Unit result = value;
        if (inside) result = x[at];
        return result;
      },
      [&](Index i, const Unit& result) { y[i] = result; });
}

#ifndef __CUDACC_RTC__

namespace detail {

/// Dimensions, innermost first, those merged that are not padded.
struct pad_dims {
  static constexpr int kMost = pad_border_config::kMaximumRank + 1;
  int rank = 0;
  std::int64_t shape[kMost] = {}, in_shape[kMost] = {}, before[kMost] = {};

  bool whole(int d) const { return before[d] == 0 && shape[d] == in_shape[d]; }
  /// The next dimension outwards.
  void add(std::int64_t size, std::int64_t in_size, std::int64_t new_before) {
    shape[rank] = size;
    in_shape[rank] = in_size;
    before[rank++] = new_before;
    if (rank < 2 || !whole(rank - 1) || !whole(rank - 2)) return;
    --rank;
    shape[rank - 1] *= size;
    in_shape[rank - 1] *= size;
  }
  std::int64_t items() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= shape[d];
    return n;
  }
  std::int64_t in_items() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= in_shape[d];
    return n;
  }
  /// Makes the innermost dimension count units of `width` elements where that can be.
  bool in_units(std::int64_t width) {
    if (rank == 0 || shape[0] % width != 0 || in_shape[0] % width != 0 || before[0] % width != 0) return false;
    shape[0] /= width;
    in_shape[0] /= width;
    before[0] /= width;
    return true;
  }
};

template <class Index>
pad_view<Index> pad_view_of(const pad_dims& dims, int mode) {
  pad_view<Index> view{};
  view.rank = dims.rank;
  view.mode = mode;
  view.factor = mode == kPadReflect ? -1 : mode == kPadReplicate ? 0 : 1;
  for (int d = 0; d < dims.rank; ++d) {
    view.shape[d] = divider_of<Index>(dims.shape[d]);
    view.in_shape[d] = static_cast<Index>(dims.in_shape[d]);
    view.before[d] = static_cast<Index>(dims.before[d]);
    const Index size = view.in_shape[d];
    view.low[d] = mode == kPadCircular ? size : 0;
    view.high[d] = mode == kPadReflect     ? 2 * (size - 1)
                   : mode == kPadReplicate ? size - 1
                   : mode == kPadCircular  ? -size
                                           : 0;
  }
  return view;
}

/// A bound of all indices, those outside of x included.
inline std::int64_t largest_index(const pad_dims& dims) {
  std::int64_t n = 1;
  for (int d = 0; d < dims.rank; ++d) {
    const std::int64_t cut = dims.before[d] < 0 ? -dims.before[d] : dims.before[d];
    n *= dims.shape[d] + dims.in_shape[d] + cut;
    if (!fits_32_bits(n)) return n;
  }
  return n;
}

template <class T>
void launch_pad(CudaContext& context, const char* name, pad_dims dims, int mode, bool in_units, T value, T* y,
                const T* x) {
  const bool vectors = in_units && aligned_for_vectors<kVectorWidth<T>>(y, x) && dims.in_units(kVectorWidth<T>);
  with_unit<T>(vectors, [&]<class Unit>(std::int64_t) {
    const std::int64_t n = dims.items();
    with_items(n, largest_index(dims), [&]<class Index, int Items>() {
      launch(context, name, &pad_kernel<Items, Index, Unit>, items_shape(n, Items), n, pad_view_of<Index>(dims, mode),
             unit_filled_with<Unit>(value), reinterpret_cast<Unit*>(y), reinterpret_cast<const Unit*>(x));
    });
  });
}

}  // namespace detail

template <class T>
void pad(CudaContext& context, const pad_config& config, T* y, const T* x) {
  detail::pad_dims dims;
  for (int d = static_cast<int>(config.rank) - 1; d >= 0; --d)
    dims.add(config.shape[d], config.in_shape[d], config.before[d]);
  detail::launch_pad(context, "pad", dims, kPadConstant, true, static_cast<T>(config.value), y, x);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
