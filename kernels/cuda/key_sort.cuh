// Sorting what sort and index_add make of their data: entries of a key and a position, no two alike, so that any order
// of work gives the one result, and equal keys stay in their order.
//
//   // Source: entry(line, position);  Sink: put(line, run, place, entry), where run is 0
//   sort_lines<Entry>(context, "sort", sort_lines_config{.lines = 3, .size = 100000, .count = 5}, source, sink);
//
// Lines of up to 2048 entries are sorted in shared memory by a bitonic network, several short ones a block; longer ones
// in runs of as many, which are then merged two and two. In a merge a thread places one entry: where it stands in its
// own run, plus how many of the other come before it, found by halving. Of each run the first `count` are kept, so few
// of many cost little more than their reading. Bytes: the data once, and in each of the log2(size / 2048) merges what
// is kept, read and written.
#pragma once

#include "block.cuh"
#include "items.cuh"

namespace graven::kernels {

inline constexpr std::uint32_t kSortTile = 2048;  ///< entries in shared memory

/// An entry is a std::uint64_t, the key above, the position below; or this, where either has more than 32 bits.
struct wide_sort_entry {
  std::uint64_t key, position;
};

__device__ inline bool sorts_before(std::uint64_t a, std::uint64_t b) { return a < b; }
__device__ inline bool sorts_before(const wide_sort_entry& a, const wide_sort_entry& b) {
  return a.key < b.key || (a.key == b.key && a.position < b.position);
}
__device__ inline std::uint64_t sort_key(std::uint64_t entry) { return entry >> 32; }
__device__ inline std::uint64_t sort_key(const wide_sort_entry& entry) { return entry.key; }
__device__ inline std::uint64_t sort_position(std::uint64_t entry) { return entry & 0xffffffffu; }
__device__ inline std::uint64_t sort_position(const wide_sort_entry& entry) { return entry.position; }

/// The key behind all others.
template <class Entry>
struct sort_last_key {
  static constexpr std::uint64_t value = 0xffffffffu;
};
template <>
struct sort_last_key<wide_sort_entry> {
  static constexpr std::uint64_t value = ~std::uint64_t{0};
};

template <class Entry>
__device__ inline Entry sort_entry(std::uint64_t key, std::uint64_t position);
template <>
__device__ inline std::uint64_t sort_entry<std::uint64_t>(std::uint64_t key, std::uint64_t position) {
  return (key << 32) | position;
}
template <>
__device__ inline wide_sort_entry sort_entry<wide_sort_entry>(std::uint64_t key, std::uint64_t position) {
  return {key, position};
}

/// Runs in memory: those of a line one behind the other.
template <class Entry>
struct sort_runs {
  Entry* data;
  std::int64_t runs, stride;

  __device__ Entry* of(std::int64_t line, std::int64_t run) const { return data + (line * runs + run) * stride; }
  __device__ void put(std::int64_t line, std::int64_t run, std::int64_t place, const Entry& entry) const {
    of(line, run)[place] = entry;
  }
};

/// Sorts `slots`, a power of two, entries at a time: a whole line, of which a block has `lines_a_block`, or a run of
/// one. Of each the first `count` go to the sink.
template <class Entry, class Source, class Sink>
__global__ void sort_tiles_kernel(std::int64_t lines, std::int64_t size, std::int64_t count, std::uint32_t slots,
                                  std::uint32_t lines_a_block, std::int64_t runs, Source source, Sink sink) {
  __shared__ Entry entries[kSortTile];
  const std::int64_t blocks = (lines + lines_a_block - 1) / lines_a_block * runs;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first_line = block / runs * lines_a_block, run = block % runs;
    const std::int64_t lines_left = lines - first_line;
    const std::uint32_t used =
        slots * (lines_left < lines_a_block ? static_cast<std::uint32_t>(lines_left) : lines_a_block);
    for (std::uint32_t i = threadIdx.x; i < used; i += blockDim.x) {
      const std::uint32_t line = i / slots;  // slots is a power of two; few entries a thread
      const std::int64_t position = run * kSortTile + (i - line * slots);
      entries[i] = position < size ? source.entry(first_line + line, position)
                                   : sort_entry<Entry>(sort_last_key<Entry>::value, sort_last_key<Entry>::value);
    }
    __syncthreads();
    for (std::uint32_t sorted = 2; sorted <= slots; sorted *= 2)
      for (std::uint32_t apart = sorted / 2; apart > 0; apart /= 2) {
        for (std::uint32_t pair = threadIdx.x; pair < used / 2; pair += blockDim.x) {
          const std::uint32_t low = 2 * pair - (pair & (apart - 1)), high = low + apart;
          const bool upwards = sorted == slots || (low & sorted) == 0;
          const Entry a = entries[low], b = entries[high];
          if (sorts_before(b, a) == upwards) {
            entries[low] = b;
            entries[high] = a;
          }
        }
        __syncthreads();
      }
    const std::int64_t left = size - run * kSortTile, length = left < slots ? left : slots;
    const std::int64_t kept = length < count ? length : count;
    for (std::uint32_t i = threadIdx.x; i < used; i += blockDim.x) {
      const std::uint32_t line = i / slots, place = i - line * slots;
      if (place < kept) sink.put(first_line + line, run, place, entries[i]);
    }
    // No barrier: the entries that a thread reads here are those that it writes next.
  }
}

/// Merges runs 2 k and 2 k + 1, that cover `span` elements each, to run k of the sink; an item is a place in a run.
template <class Entry, class Sink>
__global__ void sort_merge_kernel(std::int64_t items, std::int64_t size, std::int64_t count, std::int64_t span,
                                  sort_runs<Entry> from, Sink sink) {
  const auto length_of = [&](std::int64_t run) {
    std::int64_t length = size - run * span;
    length = length < span ? length : span;
    length = length < count ? length : count;
    return length > 0 ? length : std::int64_t{0};
  };
  for (std::int64_t item = first_item(); item < items; item += item_stride()) {
    const std::int64_t row = item / from.stride, place = item - row * from.stride, line = row / from.runs,
                       run = row - line * from.runs;
    if (place >= length_of(run)) continue;
    const Entry own = from.of(line, run)[place];
    const std::int64_t other = run ^ 1;
    std::int64_t low = 0, high = other < from.runs ? length_of(other) : 0;
    const Entry* others = from.of(line, other);
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (sorts_before(others[middle], own))
        low = middle + 1;
      else
        high = middle;
    }
    if (place + low < count) sink.put(line, run / 2, place + low, own);
  }
}

#ifndef __CUDACC_RTC__

struct sort_lines_config {
  std::int64_t lines, size, count;  ///< how many of a line's `size` entries are wanted: the first `count`
};

namespace detail {

inline std::int64_t sort_run_count(const sort_lines_config& c) { return (c.size + kSortTile - 1) / kSortTile; }
/// Entries of each of the two buffers that merges go between.
inline std::int64_t sort_buffer_entries(const sort_lines_config& c) {
  if (c.size <= kSortTile) return 0;
  return c.lines * (sort_run_count(c) + 1) * (c.count < kSortTile ? c.count : kSortTile);
}

}  // namespace detail

/// Bytes of scratch that sort_lines works in.
template <class Entry>
std::int64_t sort_lines_bytes(const sort_lines_config& config) {
  return 2 * detail::sort_buffer_entries(config) * static_cast<std::int64_t>(sizeof(Entry));
}

template <class Entry, class Source, class Sink>
void sort_lines(CudaContext& context, const char* name, const sort_lines_config& config, void* scratch,
                const Source& source, const Sink& sink) {
  const auto& [lines, size, count] = config;
  if (lines == 0 || size == 0 || count == 0) return;
  std::uint32_t slots = 2;
  while (slots < size && slots < kSortTile) slots *= 2;
  std::int64_t runs = detail::sort_run_count(config);
  // A block has a pair a thread to compare, or one line.
  const std::uint32_t lines_a_block = slots < 2 * kBlock ? 2 * kBlock / slots : 1;
  const LaunchShape tiles = launch_shape((lines + lines_a_block - 1) / lines_a_block * runs * kBlock, kBlock);
  if (runs == 1) {
    launch(context, name, &sort_tiles_kernel<Entry, Source, Sink>, tiles, lines, size, count, slots, lines_a_block,
           runs, source, sink);
    return;
  }
  Entry* const first = static_cast<Entry*>(scratch);
  sort_runs<Entry> from{first, runs, count < kSortTile ? count : std::int64_t{kSortTile}};
  launch(context, name, &sort_tiles_kernel<Entry, Source, sort_runs<Entry>>, tiles, lines, size, count, slots,
         lines_a_block, runs, source, from);
  for (std::int64_t span = kSortTile; from.runs > 1; span *= 2) {
    const std::int64_t items = lines * from.runs * from.stride;
    const sort_runs<Entry> to{from.data == first ? first + detail::sort_buffer_entries(config) : first,
                              (from.runs + 1) / 2, count < 2 * span ? count : 2 * span};
    if (to.runs == 1)
      launch(context, name, &sort_merge_kernel<Entry, Sink>, launch_shape(items), items, size, count, span, from, sink);
    else
      launch(context, name, &sort_merge_kernel<Entry, sort_runs<Entry>>, launch_shape(items), items, size, count, span,
             from, to);
    from = to;
  }
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
