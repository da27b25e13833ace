// strided_copy: y[i] = x[offset + sum of i_d strides_d]: transpose, slice, expand, flip. strided_add is its gradient: y
// at those strides += x.
//
//   // y[3,2] = x[2,3] transposed
//   strided_copy(context, strided_copy_config{.rank = 2, .shape = {3, 2}, .strides = {1, 3}}, y, x);
//
// Every element of y is written once and what it is read from once, at the speed of memory: 2 n sizeof(T) bytes
// (strided_add: 3). The host merges dimensions that lie one behind the other on both sides. Then
//
// - where the innermost one is contiguous on both sides, an item is 16 bytes;
// - where another one is contiguous on the strided side, a block turns tiles of 32 x 32 elements in shared memory, so
//   that both sides are read and written in whole sectors;
// - else an item is an element. A thread takes up to 4 items, a block apart.
//
// Sums of strided_add are in a fixed order: elements that meet in one place (stride 0) are added by one thread.
#pragma once

#include "../config/strided_copy.h"
#include "../cpu/dtype.h"
#include "items.cuh"

namespace graven::kernels {

/// Dimensions, innermost first, and how far their elements lie apart; at least one dimension.
template <class Index>
struct strided_view {
  int rank;
  divider<Index> shape[strided_copy_config::kMaximumRank];
  Index strides[strided_copy_config::kMaximumRank];
  Index offset;
};

/// Where item i of the view's shape lies.
template <class Index>
__device__ inline Index strided_place(const strided_view<Index>& view, Index i) {
  Index place = view.offset;
  int d = 0;
  for (; d < view.rank - 1; ++d) {
    const Index rest = view.shape[d].quotient(i);
    place += (i - rest * view.shape[d].divisor) * view.strides[d];
    i = rest;
  }
  return place + i * view.strides[d];
}

template <class T>
__device__ inline T strided_sum(T a, T b) {
  return static_cast<T>(wrapping_t<T>(a) + wrapping_t<T>(b));
}

/// `Unit`: an element or 16 bytes of them, of which the view counts the strides.
template <int Items, class Index, class Unit>
__global__ void strided_copy_kernel(Index n, strided_view<Index> view, Unit* __restrict__ y,
                                    const Unit* __restrict__ x) {
  for_items<Items, Unit>(
      n, [&](Index i) { return x[strided_place(view, i)]; }, [&](Index i, const Unit& value) { y[i] = value; });
}

/// y at the places of the view += x, V elements an item.
template <int V, class Index, class T>
__global__ void strided_add_kernel(Index n, strided_view<Index> view, T* y, const T* x) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < n; i += static_cast<Index>(item_stride())) {
    T* place = y + strided_place(view, i) * V;
    T sum[V], value[V];
    load_vector(sum, place);
    load_vector(value, x + i * V);
#pragma unroll
    for (int k = 0; k < V; ++k) sum[k] = strided_sum(sum[k], value[k]);
    store_vector(place, sum);
  }
}

/// Two dimensions that change places, in tiles: `row`, contiguous on the strided side, and `column`, contiguous on the
/// other one. The dimensions around them number the matrices.
template <class Index>
struct strided_tiles {
  Index rows, columns;  ///< elements
  divider<Index> row_tiles, column_tiles;
  Index row_step;                           ///< from row to row on the contiguous side
  Index column_step;                        ///< from column to column on the strided side
  strided_view<Index> contiguous, strided;  ///< of the matrices
};

inline constexpr int kStridedTile = 32;

/// 256 threads a tile. `Add`: strided side += contiguous side; else contiguous side = strided side.
template <bool Add, class Index, class T>
__global__ void strided_tiles_kernel(Index tiles, strided_tiles<Index> s, T* __restrict__ y, const T* __restrict__ x) {
  __shared__ T tile[kStridedTile][kStridedTile + 1];
  const Index lane = static_cast<Index>(threadIdx.x % kStridedTile), warp = static_cast<Index>(threadIdx.x / 32);
  for (Index t = static_cast<Index>(blockIdx.x); t < tiles; t += static_cast<Index>(gridDim.x)) {
    const Index pair = s.row_tiles.quotient(t), matrix = s.column_tiles.quotient(pair);
    const Index row = (t - pair * s.row_tiles.divisor) * kStridedTile,
                column = (pair - matrix * s.column_tiles.divisor) * kStridedTile;
    const Index contiguous = strided_place(s.contiguous, matrix), strided = strided_place(s.strided, matrix);
#pragma unroll
    for (Index k = 0; k < kStridedTile; k += 8) {
      const Index line = warp + k;
      if constexpr (Add) {
        if (row + line < s.rows && column + lane < s.columns)
          tile[lane][line] = x[contiguous + (row + line) * s.row_step + column + lane];
      } else {
        if (column + line < s.columns && row + lane < s.rows)
          tile[line][lane] = x[strided + (column + line) * s.column_step + row + lane];
      }
    }
    __syncthreads();
#pragma unroll
    for (Index k = 0; k < kStridedTile; k += 8) {
      const Index line = warp + k;
      if constexpr (Add) {
        if (column + line < s.columns && row + lane < s.rows) {
          T& place = y[strided + (column + line) * s.column_step + row + lane];
          place = strided_sum(place, tile[line][lane]);
        }
      } else {
        if (row + line < s.rows && column + lane < s.columns)
          y[contiguous + (row + line) * s.row_step + column + lane] = tile[lane][line];
      }
    }
    __syncthreads();
  }
}

/// One thread an item of `kept` (the dimensions that move y's address), which adds the items of `summed` (those that
/// don't). Each lists its dimensions with the strides of x.
template <class Index, class T>
__global__ void strided_add_sums_kernel(Index n, strided_view<Index> kept_y, strided_view<Index> kept_x, Index repeats,
                                        strided_view<Index> summed_x, T* y, const T* x) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < n; i += static_cast<Index>(item_stride())) {
    T& target = y[strided_place(kept_y, i)];
    const T* from = x + strided_place(kept_x, i);
    using Sum = wrapping_t<compute_t<T>>;
    auto sum = static_cast<Sum>(target);
#pragma unroll 4
    for (Index r = 0; r < repeats; ++r) sum += static_cast<Sum>(from[strided_place(summed_x, r)]);
    target = static_cast<T>(sum);
  }
}

/// Where places of y overlap in another way than by strides of 0: one thread.
template <class T>
__global__ void strided_add_in_order_kernel(std::int64_t n, strided_view<std::int64_t> view, T* y, const T* x) {
  for (std::int64_t i = 0; i < n; ++i) {
    T& target = y[strided_place(view, i)];
    target = strided_sum(target, x[i]);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// Dimensions, innermost first, with their strides on both sides.
struct strided_dims {
  static constexpr int kMost = strided_copy_config::kMaximumRank;
  int rank = 0;
  std::int64_t shape[kMost] = {}, strided[kMost] = {}, contiguous[kMost] = {};

  void add(std::int64_t size, std::int64_t strided_step, std::int64_t contiguous_step) {
    shape[rank] = size;
    strided[rank] = strided_step;
    contiguous[rank++] = contiguous_step;
  }
  std::int64_t items() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= shape[d];
    return n;
  }
};

/// Those of a config, without dimensions of 1, those merged that lie one behind the other on both sides.
inline strided_dims merged(const strided_copy_config& config) {
  strided_dims dims;
  std::int64_t contiguous = 1;
  for (int d = static_cast<int>(config.rank) - 1; d >= 0; --d) {
    const std::int64_t size = config.shape[d];
    const int before = dims.rank - 1;
    if (size != 1) {
      if (before >= 0 && config.strides[d] == dims.strided[before] * dims.shape[before])
        dims.shape[before] *= size;
      else
        dims.add(size, config.strides[d], contiguous);
    }
    contiguous *= size;
  }
  return dims;
}

/// The largest index into either side.
inline std::int64_t largest_place(const strided_dims& dims, std::int64_t offset) {
  std::int64_t reach = offset < 0 ? -offset : offset, n = 1;
  for (int d = 0; d < dims.rank; ++d) {
    reach += (dims.shape[d] > 0 ? dims.shape[d] - 1 : 0) * (dims.strided[d] < 0 ? -dims.strided[d] : dims.strided[d]);
    n *= dims.shape[d];
  }
  return reach > n ? reach : n;
}

/// The view of the dimensions at one side's strides.
template <class Index>
strided_view<Index> view_of(const strided_dims& dims, const std::int64_t* strides, std::int64_t offset) {
  strided_view<Index> view{};
  view.rank = dims.rank > 0 ? dims.rank : 1;
  view.offset = static_cast<Index>(offset);
  for (int d = 0; d < view.rank; ++d) {
    view.shape[d] = divider_of<Index>(d < dims.rank ? dims.shape[d] : 1);
    view.strides[d] = static_cast<Index>(d < dims.rank ? strides[d] : 0);
  }
  return view;
}

/// Makes the dimensions count units of `width` elements where both sides can be moved so.
inline bool in_units(strided_dims& dims, std::int64_t& offset, std::int64_t width) {
  if (dims.rank == 0 || dims.strided[0] != 1 || dims.shape[0] % width != 0 || offset % width != 0) return false;
  for (int d = 1; d < dims.rank; ++d)
    if (dims.strided[d] % width != 0) return false;
  dims.shape[0] /= width;
  offset /= width;
  for (int d = 1; d < dims.rank; ++d) dims.strided[d] /= width, dims.contiguous[d] /= width;
  return true;
}

/// The dimension whose turn with the innermost one is done in tiles, or 0.
inline int turned_dimension(const strided_dims& dims) {
  constexpr std::int64_t kLeast = 8;  // of smaller ones a tile would be mostly empty
  if (dims.rank < 2 || dims.strided[0] == 1 || dims.strided[0] == 0 || dims.shape[0] < kLeast) return 0;
  for (int d = 1; d < dims.rank; ++d)
    if (dims.strided[d] == 1 && dims.shape[d] >= kLeast) return d;
  return 0;
}

template <bool Add, class Unit>
void launch_strided_tiles(CudaContext& context, const char* name, const strided_dims& dims, int turned,
                          std::int64_t offset, Unit* y, const Unit* x) {
  strided_dims around;
  for (int d = 1; d < dims.rank; ++d)
    if (d != turned) around.add(dims.shape[d], dims.strided[d], dims.contiguous[d]);
  const std::int64_t row_tiles = (dims.shape[turned] + kStridedTile - 1) / kStridedTile,
                     column_tiles = (dims.shape[0] + kStridedTile - 1) / kStridedTile,
                     tiles = row_tiles * column_tiles * around.items();
  // A tile at the end counts beyond it.
  const std::int64_t margin = (dims.strided[0] < 0 ? -dims.strided[0] : dims.strided[0]) + dims.contiguous[turned];
  with_index(largest_place(dims, offset) + kStridedTile * margin, [&]<class Index>() {
    const strided_tiles<Index> s{static_cast<Index>(dims.shape[turned]),
                                 static_cast<Index>(dims.shape[0]),
                                 divider_of<Index>(row_tiles),
                                 divider_of<Index>(column_tiles),
                                 static_cast<Index>(dims.contiguous[turned]),
                                 static_cast<Index>(dims.strided[0]),
                                 view_of<Index>(around, around.contiguous, 0),
                                 view_of<Index>(around, around.strided, offset)};
    launch(context, name, &strided_tiles_kernel<Add, Index, Unit>, launch_shape(tiles * 256), tiles, s, y, x);
  });
}

/// Whether different items have different places, strides of 0 aside.
inline bool places_are_distinct(const strided_dims& dims) {
  std::int64_t reach = 0;
  bool used[strided_dims::kMost] = {};
  const auto magnitude = [&](int d) { return dims.strided[d] < 0 ? -dims.strided[d] : dims.strided[d]; };
  for (int round = 0; round < dims.rank; ++round) {
    int smallest = -1;
    for (int d = 0; d < dims.rank; ++d)
      if (!used[d] && (smallest < 0 || magnitude(d) < magnitude(smallest))) smallest = d;
    used[smallest] = true;
    if (dims.strided[smallest] == 0) continue;
    if (magnitude(smallest) <= reach) return false;
    reach += (dims.shape[smallest] - 1) * magnitude(smallest);
  }
  return true;
}

}  // namespace detail

/// y[shape], contiguous, from x at the strides.
template <class T>
void strided_copy(CudaContext& context, const strided_copy_config& config, T* y, const T* x) {
  detail::strided_dims dims = detail::merged(config);
  if (dims.items() == 0) return;
  std::int64_t offset = config.offset;
  if (const int turned = detail::turned_dimension(dims); turned != 0) {
    using Unit = typename unit_of_bytes<sizeof(T)>::type;
    detail::launch_strided_tiles<false>(context, "strided_copy", dims, turned, offset, reinterpret_cast<Unit*>(y),
                                        reinterpret_cast<const Unit*>(x));
    return;
  }
  const bool vectors = aligned_for_vectors<kVectorWidth<T>>(y, x) && detail::in_units(dims, offset, kVectorWidth<T>);
  with_unit<T>(vectors, [&]<class Unit>(std::int64_t) {
    const std::int64_t n = dims.items();
    with_items(n, detail::largest_place(dims, offset), [&]<class Index, int Items>() {
      launch(context, "strided_copy", &strided_copy_kernel<Items, Index, Unit>, items_shape(n, Items), n,
             detail::view_of<Index>(dims, dims.strided, offset), reinterpret_cast<Unit*>(y),
             reinterpret_cast<const Unit*>(x));
    });
  });
}

/// y at the strides += x[shape], contiguous.
template <class T>
void strided_add(CudaContext& context, const strided_copy_config& config, T* y, const T* x) {
  detail::strided_dims dims = detail::merged(config);
  const std::int64_t n = dims.items();
  if (n == 0) return;
  std::int64_t offset = config.offset;
  if (!detail::places_are_distinct(dims)) {
    launch(context, "strided_add", &strided_add_in_order_kernel<T>, launch_shape(1, 1), n,
           detail::view_of<std::int64_t>(dims, dims.strided, offset), y, x);
    return;
  }
  detail::strided_dims kept, summed;
  for (int d = 0; d < dims.rank; ++d)
    (dims.strided[d] == 0 ? summed : kept).add(dims.shape[d], dims.strided[d], dims.contiguous[d]);
  if (summed.rank > 0) {
    with_index(detail::largest_place(dims, offset), [&]<class Index>() {
      launch(context, "strided_add", &strided_add_sums_kernel<Index, T>, launch_shape(kept.items()), kept.items(),
             detail::view_of<Index>(kept, kept.strided, offset), detail::view_of<Index>(kept, kept.contiguous, 0),
             summed.items(), detail::view_of<Index>(summed, summed.contiguous, 0), y, x);
    });
    return;
  }
  if (const int turned = detail::turned_dimension(dims); turned != 0) {
    detail::launch_strided_tiles<true>(context, "strided_add", dims, turned, offset, y, x);
    return;
  }
  constexpr int kWidth = kFloatWidth<T>;
  const bool vectors = kWidth > 1 && aligned_for_vectors<kWidth>(y, x) && detail::in_units(dims, offset, kWidth);
  with_index(detail::largest_place(dims, offset) * kWidth, [&]<class Index>() {
    const std::int64_t items = dims.items();
    const strided_view<Index> view = detail::view_of<Index>(dims, dims.strided, offset);
    if (vectors)
      launch(context, "strided_add", &strided_add_kernel<kWidth, Index, T>, launch_shape(items), items, view, y, x);
    else
      launch(context, "strided_add", &strided_add_kernel<1, Index, T>, launch_shape(items), items, view, y, x);
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
