// Reading and writing at positions that are data; formulas: config/index.h.
//
//   gather(context, gather_config{.rank = 2, .dim = 1, .shape = {3, 2}, .x_shape = {3, 5}}, y, x, index);
//   // scatter likewise
//   scatter_add(context, gather_config{.rank = 2, .dim = 1, .shape = {3, 2}, .x_shape = {3, 5}}, y, x, index, source);
//   index_select(context, index_select_config{.outer = 1, .size = 50257, .inner = 768, .count = 1024}, y, x, index);
//   index_add(context, index_select_config{.outer = 1, .size = 50257, .inner = 768, .count = 1024}, y, x, index, base);
//   one_hot(context, one_hot_config{.rows = 64, .classes = 10}, y, index);
//
// What is read and written moves at the speed of memory, rows 16 bytes a thread where they come in such. index_add
// first sorts its index (key_sort.cuh), so that what is added to one row lies side by side: a thread adds up one item
// of one row, in the order of the index, a block 32 columns where many are added to few rows. The work grows with
// count * inner, beside what fills y. scatter and
// scatter_add give a line along dim to a thread; of few and long lines they sort all places likewise.
//
// Sums are in the order of the index: what may meet in one place is added by one thread; of several written to one
// place the last stays. y may be x in scatter and scatter_add, and base, which may be absent, in index_add. An index
// outside of its dimension reads NaN (0 of integers), writes nothing, and is found when the host next waits for the
// device (call_faults.cuh).
#pragma once

#include "../config/index.h"
#include "../cpu/dtype.h"
#include "call_faults.cuh"
#include "elementwise.cuh"
#include "key_sort.cuh"
#include "strided_copy.cuh"

namespace graven::kernels {

template <class T>
GRAVEN_DEVICE inline T unread() {
  if constexpr (static_cast<T>(0.5) == 0.5)
    return static_cast<T>(__builtin_nan(""));
  else
    return T(0);
}

/// `view`: where an element of the index points to in x, but for `step` times what the index says.
template <int Items, class Index, class T>
__global__ void gather_kernel(Index n, strided_view<Index> view, Index step, index_check check, T* __restrict__ y,
                              const T* __restrict__ x, const std::int64_t* __restrict__ index) {
  for_items<Items, T>(
      n,
      [&](Index i) {
        const std::int64_t from = index[i];
        return check(from, i) ? x[strided_place(view, i) + static_cast<Index>(from) * step] : unread<T>();
      },
      [&](Index i, T value) { y[i] = value; });
}

/// A thread a line along dim: of `length` elements, `index_step` apart in the index, for places `x_step` apart in y.
template <bool Add, class Index, class T>
__global__ void scatter_kernel(Index lines, strided_view<Index> index_view, strided_view<Index> x_view, Index length,
                               Index index_step, Index x_step, index_check check, T* y, const std::int64_t* index,
                               const T* source) {
  for (Index line = static_cast<Index>(first_item()); line < lines; line += static_cast<Index>(item_stride())) {
    const Index first = strided_place(index_view, line);
    T* const to = y + strided_place(x_view, line);
    for (Index k = 0; k < length; ++k) {
      const Index at = first + k * index_step;
      const std::int64_t place = index[at];
      if (!check(place, at)) continue;
      T& target = to[static_cast<Index>(place) * x_step];
      target = Add ? static_cast<T>(wrapping_t<T>(target) + wrapping_t<T>(source[at])) : source[at];
    }
  }
}

/// Places in y as keys: those of an index along dim.
template <class Entry, class Index>
struct scatter_places {
  const std::int64_t* data;
  strided_view<Index> view;
  Index step;
  index_check check;

  __device__ Entry entry(std::int64_t, std::int64_t i) const {
    const std::int64_t to = data[i];
    const std::uint64_t key =
        check(to, i)
            ? static_cast<std::uint64_t>(strided_place(view, static_cast<Index>(i)) + static_cast<Index>(to) * step)
            : sort_last_key<Entry>::value;
    return sort_entry<Entry>(key, static_cast<std::uint64_t>(i));
  }
};
/// Rows of y as keys: an index of them, without what is skipped.
template <class Entry>
struct index_rows {
  const std::int64_t* data;
  index_check check;
  std::int64_t skipped;

  __device__ Entry entry(std::int64_t, std::int64_t k) const {
    const std::int64_t to = data[k];
    const bool counts = check(to, k) && to != skipped;
    return sort_entry<Entry>(counts ? static_cast<std::uint64_t>(to) : sort_last_key<Entry>::value,
                             static_cast<std::uint64_t>(k));
  }
};

/// The sorted entries that have one key, from `first` on, in groups of `Chunk`: load(k, position) of all, then
/// use(k).
template <int Chunk, class Entry, class Index, class Load, class Use>
__device__ inline void for_same_key(const Entry* sorted, Index count, Index first, std::uint64_t key, Load load,
                                    Use use) {
  for (Index from = first; from < count; from += Chunk) {
    bool same[Chunk];
    Index positions[Chunk];
#pragma unroll
    for (int k = 0; k < Chunk; ++k) {
      // Behind the last entry it is loaded again: without a condition all loads are under way at once.
      const Entry entry = sorted[from + k < count ? from + k : count - 1];
      same[k] = from + k < count && sort_key(entry) == key;
      positions[k] = static_cast<Index>(sort_position(entry));
    }
#pragma unroll
    for (int k = 0; k < Chunk; ++k)
      if (same[k]) load(k, positions[k]);
#pragma unroll
    for (int k = 0; k < Chunk; ++k)
      if (same[k]) use(k);
    if (!same[Chunk - 1]) return;
  }
}
/// Whether entry `s` is the first of its key, and that one is to be written.
template <class Entry, class Index>
__device__ inline bool is_first_of_key(const Entry* sorted, Index s) {
  const std::uint64_t key = sort_key(sorted[s]);
  return key != sort_last_key<Entry>::value && (s == 0 || sort_key(sorted[s - 1]) != key);
}

/// One thread a place that is written: the first entry of its key.
template <bool Add, class Entry, class Index, class T>
__global__ void scatter_sorted_kernel(Index count, const Entry* __restrict__ sorted, T* y, const T* source) {
  constexpr int kChunk = 8;
  for (Index s = static_cast<Index>(first_item()); s < count; s += static_cast<Index>(item_stride())) {
    if (!is_first_of_key(sorted, s)) continue;
    const std::uint64_t key = sort_key(sorted[s]);
    T values[kChunk] = {};
    auto sum = static_cast<wrapping_t<T>>(y[key]);
    for_same_key<kChunk>(
        sorted, count, s, key, [&](int k, Index position) { values[k] = source[position]; },
        [&](int k) {
          sum = Add ? static_cast<wrapping_t<T>>(sum + wrapping_t<T>(values[k])) : wrapping_t<T>(values[k]);
        });
    y[key] = static_cast<T>(sum);
  }
}

/// `Unit`: an element of a row or 16 bytes of them; `units` of them are a row, `count` rows are selected of `size`.
template <int Items, class Index, class Unit>
__global__ void index_select_kernel(Index n, divider<Index> units, divider<Index> count, index_check check,
                                    Unit unread_unit, Unit* __restrict__ y, const Unit* __restrict__ x,
                                    const std::int64_t* __restrict__ index) {
  for_items<Items, Unit>(
      n,
      [&](Index i) {
        const Index row = units.quotient(i), outer = count.quotient(row), position = row - outer * count.divisor;
        const std::int64_t from = index[position];
        Unit value = unread_unit;
        if (check(from, position))
          value = x[(outer * static_cast<Index>(check.size) + static_cast<Index>(from)) * units.divisor + i -
                    row * units.divisor];
        return value;
      },
      [&](Index i, const Unit& value) { y[i] = value; });
}

/// An item is V elements of the row of a sorted entry; those of the first entry of a row add up all of the row's.
template <int V, int Chunk, class Entry, class Index, class T>
__global__ void index_add_kernel(Index n, divider<Index> units, divider<Index> outers, Index size, Index count,
                                 const Entry* __restrict__ sorted, T* y, const T* __restrict__ x) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < n; i += static_cast<Index>(item_stride())) {
    const Index line = units.quotient(i), s = outers.quotient(line), outer = line - s * outers.divisor;
    if (!is_first_of_key(sorted, s)) continue;
    const Index inner = units.divisor * V, column = (i - line * units.divisor) * V;
    const std::uint64_t key = sort_key(sorted[s]);
    T* const place = y + (outer * size + static_cast<Index>(key)) * inner + column;
    const T* const from = x + outer * count * inner + column;
    T sum[V], values[Chunk][V] = {};
    load_vector(sum, place);
    for_same_key<Chunk>(
        sorted, count, s, key, [&](int k, Index position) { load_vector(values[k], from + position * inner); },
        [&](int k) {
#pragma unroll
          for (int v = 0; v < V; ++v) sum[v] = strided_sum(sum[v], values[k][v]);
        });
    store_vector(place, sum);
  }
}

inline constexpr int kIndexAddChunk = 64;  ///< rows of x in shared memory

/// The first entry whose key is not below `key`.
template <class Entry, class Index>
__device__ inline Index first_of_key(const Entry* sorted, Index count, std::uint64_t key) {
  Index low = 0, high = count;
  while (low < high) {
    const Index middle = (low + high) / 2;
    if (sort_key(sorted[middle]) < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// Of few rows, to each of which many are added: a block of kBlock for 32 columns of one, whose first warp adds up, in
/// their order, what all have loaded, while they load what comes next.
template <class Entry, class Index, class T>
__global__ void index_add_few_kernel(Index blocks, divider<Index> tiles, divider<Index> outers, Index inner, Index size,
                                     Index count, const Entry* __restrict__ sorted, T* y, const T* __restrict__ x) {
  constexpr int kHands = kBlock / 32, kEach = kIndexAddChunk / kHands;
  __shared__ T rows[2][kIndexAddChunk][32];
  const Index lane = static_cast<Index>(threadIdx.x % 32), hand = static_cast<Index>(threadIdx.x / 32);
  for (Index block = static_cast<Index>(blockIdx.x); block < blocks; block += static_cast<Index>(gridDim.x)) {
    const Index line = tiles.quotient(block), row = outers.quotient(line), outer = line - row * outers.divisor;
    const Index column = (block - line * tiles.divisor) * 32 + lane;
    const Index begin = first_of_key(sorted, count, static_cast<std::uint64_t>(row)),
                end = first_of_key(sorted, count, static_cast<std::uint64_t>(row) + 1);
    const T* const from = x + outer * count * inner + column;
    const auto load_chunk = [&](Index first, int buffer) {
      Index positions[kEach];
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const Index at = first + hand * kEach + k;
        positions[k] = static_cast<Index>(sort_position(sorted[at < end ? at : begin]));
      }
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        if (column < inner) rows[buffer][hand * kEach + k][lane] = from[positions[k] * inner];
    };
    if (begin == end) continue;
    T* const place = y + (outer * size + row) * inner + column;
    T sum = hand == 0 && column < inner ? *place : T(0);
    int buffer = 0;
    load_chunk(begin, buffer);
    __syncthreads();
    for (Index first = begin; first < end; first += kIndexAddChunk, buffer ^= 1) {
      if (first + kIndexAddChunk < end) load_chunk(first + kIndexAddChunk, buffer ^ 1);
      if (hand == 0 && column < inner) {
        const Index some = end - first < kIndexAddChunk ? end - first : Index(kIndexAddChunk);
#pragma unroll 8
        for (Index k = 0; k < some; ++k) sum = strided_sum(sum, rows[buffer][k][lane]);
      }
      __syncthreads();
    }
    if (hand == 0 && column < inner) *place = sum;
  }
}

template <int Items, class Index, class T>
__global__ void one_hot_kernel(Index n, divider<Index> classes, index_check check, T* __restrict__ y,
                               const std::int64_t* __restrict__ index) {
  for_items<Items, std::int64_t>(
      n,
      [&](Index i) {
        const std::int64_t label = index[classes.quotient(i)];
        check(label, classes.quotient(i));
        return label;
      },
      [&](Index i, std::int64_t label) { y[i] = static_cast<T>(label == classes.remainder(i) ? 1 : 0); });
}

#ifndef __CUDACC_RTC__

namespace detail {

/// The dimensions of an index but dim, innermost first, merged where x is whole: strides in the index and in x.
struct gather_layout {
  strided_dims others;  ///< contiguous: strides in the index; strided: those in x
  std::int64_t length, index_step = 1, size, x_step = 1, items = 1, x_items = 1;
};
inline gather_layout layout_of(const gather_config& config) {
  gather_layout layout;
  layout.length = config.shape[config.dim];
  layout.size = config.x_shape[config.dim];
  for (std::int64_t d = config.rank - 1; d >= 0; --d) {
    if (d == config.dim) {
      layout.index_step = layout.items;
      layout.x_step = layout.x_items;
    } else if (config.shape[d] != 1) {
      strided_dims& to = layout.others;
      const int last = to.rank - 1;
      if (last >= 0 && to.contiguous[last] * to.shape[last] == layout.items &&
          to.strided[last] * to.shape[last] == layout.x_items)
        to.shape[last] *= config.shape[d];
      else
        to.add(config.shape[d], layout.x_items, layout.items);
    }
    layout.items *= config.shape[d];
    layout.x_items *= config.x_shape[d];
  }
  return layout;
}
/// All dimensions in the index's order, dim with a stride of 0 in x.
inline strided_dims with_dim(const gather_layout& layout) {
  strided_dims all;
  bool added = layout.length == 1;
  const auto add_dim = [&] {
    all.add(layout.length, 0, layout.index_step);
    added = true;
  };
  for (int d = 0; d < layout.others.rank; ++d) {
    if (!added && layout.others.contiguous[d] >= layout.index_step * layout.length) add_dim();
    all.add(layout.others.shape[d], layout.others.strided[d], layout.others.contiguous[d]);
  }
  if (!added) add_dim();
  return all;
}
inline std::int64_t largest_of(const gather_layout& layout) {
  return layout.items > layout.x_items ? layout.items : layout.x_items;
}

/// Scratch for sorted entries and for their sorting.
template <class Entry>
struct sort_scratch {
  Entry* sorted;
  void* rest;
};
template <class Entry>
sort_scratch<Entry> scratch_for(CudaContext& context, const sort_lines_config& lines) {
  const std::int64_t own = lines.size * static_cast<std::int64_t>(sizeof(Entry));
  char* const scratch =
      static_cast<char*>(context.workspace(static_cast<std::size_t>(own + sort_lines_bytes<Entry>(lines))));
  return {reinterpret_cast<Entry*>(scratch), scratch + own};
}

/// Lines along dim that are few and long are not left to a thread each.
inline bool scatters_sorted(const gather_layout& layout) {
  const std::int64_t lines = layout.others.items();
  return layout.length > 64 && lines < 16384;
}

template <bool Add, class T>
void scatter(CudaContext& context, const char* name, const gather_config& config, T* y, const T* x,
             const std::int64_t* index, const T* source, const char* where) {
  const gather_layout layout = layout_of(config);
  if (y != x) strided_copy(context, strided_copy_config{.rank = 1, .shape = {layout.x_items}, .strides = {1}}, y, x);
  if (layout.items == 0) return;
  const index_check check = check_index(context, name, layout.size, where);
  with_index(largest_of(layout), [&]<class Index>() {
    if (scatters_sorted(layout)) {
      using Entry = std::conditional_t<sizeof(Index) == 8, wide_sort_entry, std::uint64_t>;
      const sort_lines_config lines{1, layout.items, layout.items};
      const sort_scratch<Entry> scratch = scratch_for<Entry>(context, lines);
      const strided_dims all = with_dim(layout);
      const scatter_places<Entry, Index> places{index, view_of<Index>(all, all.strided, 0),
                                                static_cast<Index>(layout.x_step), check};
      sort_lines<Entry>(context, name, lines, scratch.rest, places, sort_runs<Entry>{scratch.sorted, 1, layout.items});
      launch(context, name, &scatter_sorted_kernel<Add, Entry, Index, T>, launch_shape(layout.items), layout.items,
             scratch.sorted, y, source);
      return;
    }
    const strided_dims& others = layout.others;
    launch(context, name, &scatter_kernel<Add, Index, T>, launch_shape(others.items()), others.items(),
           view_of<Index>(others, others.contiguous, 0), view_of<Index>(others, others.strided, 0), layout.length,
           layout.index_step, layout.x_step, check, y, index, source);
  });
}

}  // namespace detail

template <class T>
void gather(CudaContext& context, const gather_config& config, T* y, const T* x, const std::int64_t* index,
            const char* where = "") {
  const detail::gather_layout layout = detail::layout_of(config);
  const detail::strided_dims all = detail::with_dim(layout);
  const index_check check = check_index(context, "gather", layout.size, where);
  with_items(layout.items, detail::largest_of(layout), [&]<class Index, int Items>() {
    launch(context, "gather", &gather_kernel<Items, Index, T>, items_shape(layout.items, Items), layout.items,
           detail::view_of<Index>(all, all.strided, 0), layout.x_step, check, y, x, index);
  });
}

template <class T>
void scatter(CudaContext& context, const gather_config& config, T* y, const T* x, const std::int64_t* index,
             const T* source, const char* where = "") {
  detail::scatter<false>(context, "scatter", config, y, x, index, source, where);
}
template <class T>
void scatter_add(CudaContext& context, const gather_config& config, T* y, const T* x, const std::int64_t* index,
                 const T* source, const char* where = "") {
  detail::scatter<true>(context, "scatter_add", config, y, x, index, source, where);
}

template <class T>
void index_select(CudaContext& context, const index_select_config& config, T* y, const T* x, const std::int64_t* index,
                  const char* where = "") {
  const index_check check = check_index(context, "index_select", config.size, where);
  const bool vectors = config.inner % kVectorWidth<T> == 0 && aligned_for_vectors<kVectorWidth<T>>(y, x);
  with_unit<T>(vectors, [&]<class Unit>(std::int64_t elements) {
    const std::int64_t units = config.inner / elements, n = config.outer * config.count * units,
                       from = config.outer * config.size * units;
    with_items(n, n > from ? n : from, [&]<class Index, int Items>() {
      launch(context, "index_select", &index_select_kernel<Items, Index, Unit>, items_shape(n, Items), n,
             divider_of<Index>(units), divider_of<Index>(config.count), check, unit_filled_with<Unit>(unread<T>()),
             reinterpret_cast<Unit*>(y), reinterpret_cast<const Unit*>(x), index);
    });
  });
}

template <class T>
void index_add(CudaContext& context, const index_select_config& config, T* y, const T* x, const std::int64_t* index,
               const plain_t<T>* base, const char* where = "") {
  const std::int64_t n = config.outer * config.size * config.inner;
  if (base == nullptr)
    fill(context, fill_config{.n = n, .value = 0}, y);
  else if (base != y)
    strided_copy(context, strided_copy_config{.rank = 1, .shape = {n}, .strides = {1}}, y, base);
  const std::int64_t added = config.outer * config.count * config.inner;
  if (n == 0 || added == 0) return;
  const bool few_rows = config.count >= kIndexAddChunk * config.size;
  const bool vectors = takes_vectors<T>(config.inner, y, x);
  const index_check check = check_index(context, "index_add", config.size, where);
  with_index(n > added ? n : added, [&]<class Index>() {
    using Entry = std::conditional_t<sizeof(Index) == 8, wide_sort_entry, std::uint64_t>;
    const sort_lines_config lines{1, config.count, config.count};
    const detail::sort_scratch<Entry> scratch = detail::scratch_for<Entry>(context, lines);
    sort_lines<Entry>(context, "index_add", lines, scratch.rest, index_rows<Entry>{index, check, config.skipped},
                      sort_runs<Entry>{scratch.sorted, 1, config.count});
    if (few_rows) {
      const std::int64_t tiles = (config.inner + 31) / 32, blocks = config.size * config.outer * tiles;
      launch(context, "index_add", &index_add_few_kernel<Entry, Index, T>, launch_shape(blocks * kBlock, kBlock),
             blocks, divider_of<Index>(tiles), divider_of<Index>(config.outer), config.inner, config.size, config.count,
             scratch.sorted, y, x);
      return;
    }
    const auto start = [&]<int V>() {
      launch(context, "index_add", &index_add_kernel<V, 4, Entry, Index, T>, launch_shape(added / V), added / V,
             divider_of<Index>(config.inner / V), divider_of<Index>(config.outer), config.size, config.count,
             scratch.sorted, y, x);
    };
    if (vectors)
      start.template operator()<kFloatWidth<T>>();
    else
      start.template operator()<1>();
  });
}

template <class T>
void one_hot(CudaContext& context, const one_hot_config& config, T* y, const std::int64_t* index,
             const char* where = "") {
  const std::int64_t n = config.rows * config.classes;
  const index_check check = check_index(context, "one_hot", config.classes, where, "class");
  with_items(n, n, [&]<class Index, int Items>() {
    launch(context, "one_hot", &one_hot_kernel<Items, Index, T>, items_shape(n, Items), n,
           divider_of<Index>(config.classes), check, y, index);
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
