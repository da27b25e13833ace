// convert_layout (cpu/convert_layout.h): what a rank has of a tensor becomes what it has in another layout.
//
//   convert_layout(context, convert_layout_config{.n = 8 * 64 * 768, .ranks = 2, .from = -1, .to = 0}, y, x);
//
// Elements are put into rows, one for each rank, and taken out of such rows, 16 bytes a thread where runs come in such,
// and not at all where they lie so already. Rows move by the team's calls, on the context's stream:
//
//   from a split     to all of it       each rank's part for all of them
//   from a split     to another split   each rank a part of its own for each other one
//   from terms       to a split         the same, and each rank adds up what has come
//   from terms       to all of it       the same with pieces of the tensor, and the sums for all of them
//
// Terms are added up in the order of the ranks, those of half types in float: the bits are those of the processor's
// kernel, on all ranks, whatever moves the rows. Beside what is sent (docs/emitted_project.md) each of the steps reads
// and writes the tensor once.
#pragma once

#include "../config/convert_layout.h"
#include "../cpu/dtype.h"
#include "items.cuh"

namespace graven::kernels {

/// Which places of the whole tensor elements have, in a layout: all of them, those of a rank, or, in rows one behind
/// another, those of all ranks from the first on.
template <class Index>
struct layout_places {
  bool whole, rows;
  divider<Index> run, round;  ///< so many elements in a row are one rank's; of all ranks together
  divider<Index> part;        ///< that a rank has
  Index ranks, rank;

  /// Of the i-th element.
  __device__ Index of(Index i) const {
    if (whole) return i;
    const Index row = rows ? part.quotient(i) : Index(0), own = i - row * part.divisor, among = run.quotient(own);
    return (among * ranks + rank + row) * run.divisor + own - among * run.divisor;
  }
  /// The reverse: -1 where the rank has not this one.
  __device__ Index at(Index place) const {
    if (whole) return place;
    const Index among = round.quotient(place), rest = place - among * round.divisor, owner = run.quotient(rest);
    const Index own = among * run.divisor + rest - owner * run.divisor;
    if (rows) return owner * part.divisor + own;
    return owner == rank ? own : Index(-1);
  }
};

/// What stands at the places of y in x; zeros where x has none.
template <int Items, class Index, class Unit>
__global__ void convert_layout_kernel(Index n, layout_places<Index> to, layout_places<Index> from, Unit* __restrict__ y,
                                      const Unit* __restrict__ x) {
  for_items<Items, Unit>(
      n,
      [&](Index i) {
        const Index at = from.at(to.of(i));
        Unit value{};
        if (at >= 0) value = x[at];
        return value;
      },
      [&](Index i, const Unit& value) { y[i] = value; });
}

/// y[i] = the sum of rows[r * stride + i], in the order of the ranks. N of them a thread, which divide n and stride.
template <int N, class Index, class T>
__global__ void add_rows_kernel(Index n, Index stride, int ranks, T* __restrict__ y, const T* __restrict__ rows) {
  for (Index i = static_cast<Index>(first_item()) * N; i < n; i += static_cast<Index>(item_stride()) * N) {
    T values[N];
    compute_t<T> sum[N];
    load_vector(values, rows + i);
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] = static_cast<compute_t<T>>(values[e]);
    for (int r = 1; r < ranks; ++r) {
      load_vector(values, rows + r * stride + i);
#pragma unroll
      for (int e = 0; e < N; ++e) sum[e] += static_cast<compute_t<T>>(values[e]);
    }
#pragma unroll
    for (int e = 0; e < N; ++e) values[e] = static_cast<T>(sum[e]);
    store_vector(y + i, values);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// What a call of convert_layout moves, of elements T.
template <class T>
class LayoutConversion {
 public:
  LayoutConversion(CudaContext& context, const convert_layout_config& config)
      : context_(context),
        config_(config),
        team_(config.ranks > 1 ? context.team() : nullptr),
        part_(config.n / config.ranks) {}

  void run(T* y, const T* x) {
    const convert_layout_config& c = config_;
    if (c.n == 0) return;
    const bool alone = team_ == nullptr;
    const std::int64_t rank = alone ? 0 : team_->rank();
    if (c.from == c.to) return copy(y, x, c.from > 0 ? part_ : c.n);
    if (c.from == 0 && c.to < 0) return rank == 0 ? copy(y, x, c.n) : fill_with_zeros(y, c.n);  // one of them has it
    if (c.from <= 0 && (c.from == 0 || alone))
      return c.to == 0 ? copy(y, x, c.n) : move(part_, {.run = c.to, .rank = rank}, {}, y, x);
    if (c.from > 0 && (c.to < 0 || alone))  // among zeros
      return move(c.to > 0 ? part_ : c.n, {.run = c.to, .rank = rank}, {.run = c.from, .rank = rank}, y, x);
    if (c.from < 0) return c.to > 0 ? add_to_parts(y, x) : add_to_all(y, x);
    if (c.to == 0) return gather(y, x);
    exchange_parts(y, x);
  }

 private:
  /// A layout of elements: of a run of 0 or less all of them.
  struct Places {
    std::int64_t run = 0, rank = 0, part = 0;  ///< part 0: of the tensor
    bool rows = false;
  };

  void copy(T* to, const T* from, std::int64_t count) {
    copy_on_device(context_, to, from, static_cast<std::size_t>(count) * sizeof(T));
  }
  void fill_with_zeros(T* y, std::int64_t count) {
    if (count > 0 && !context_.rehearses())
      GRAVEN_CUDA(cudaMemsetAsync(y, 0, static_cast<std::size_t>(count) * sizeof(T), context_.stream()));
  }
  /// y, of n elements in one layout, of x in another.
  void move(std::int64_t n, const Places& to, const Places& from, T* y, const T* x) {
    constexpr std::int64_t kWidth = kVectorWidth<T>;
    const auto divides = [&](const Places& p) {
      return p.run <= 0 || (p.run % kWidth == 0 && part_of(p) % kWidth == 0);
    };
    const bool vectors = n % kWidth == 0 && divides(to) && divides(from) && aligned_for_vectors<kVectorWidth<T>>(y, x);
    with_unit<T>(vectors, [&]<class Unit>(std::int64_t width) {
      with_items(n / width, config_.n / width, [&]<class Index, int Items>() {
        launch(context_, "convert_layout", &convert_layout_kernel<Items, Index, Unit>, items_shape(n / width, Items),
               n / width, places<Index>(to, width), places<Index>(from, width), reinterpret_cast<Unit*>(y),
               reinterpret_cast<const Unit*>(x));
      });
    });
  }
  std::int64_t part_of(const Places& p) const { return p.part > 0 ? p.part : part_; }
  template <class Index>
  layout_places<Index> places(const Places& p, std::int64_t width) const {
    return {.whole = p.run <= 0,
            .rows = p.rows,
            .run = divider_of<Index>(p.run / width),
            .round = divider_of<Index>(p.run > 0 ? config_.ranks * p.run / width : 1),
            .part = divider_of<Index>(part_of(p) / width),
            .ranks = static_cast<Index>(config_.ranks),
            .rank = static_cast<Index>(p.rank)};
  }
  void add(std::int64_t n, std::int64_t stride, T* y, const T* rows) {
    // There are terms of floating-point numbers alone.
    if constexpr (static_cast<T>(0.5) == 0.5) {
      const auto start = [&]<int N, class Index>() {
        launch(context_, "convert_layout", &add_rows_kernel<N, Index, T>, launch_shape(divide_up(n, N)), n, stride,
               static_cast<int>(config_.ranks), y, rows);
      };
      constexpr int kWidth = kFloatWidth<T>;
      with_index(config_.ranks * stride, [&]<class Index>() {
        if (n % kWidth == 0 && stride % kWidth == 0 && aligned_for_vectors<kWidth>(y, rows))
          start.template operator()<kWidth, Index>();
        else
          start.template operator()<1, Index>();
      });
    }
  }

  /// Room for so many elements, twice, each on a multiple of 256 bytes.
  struct Room {
    T *first, *second;
  };
  Room room(std::int64_t first, std::int64_t second) {
    const std::size_t front = (static_cast<std::size_t>(first) * sizeof(T) + 255) / 256 * 256;
    char* const data = static_cast<char*>(context_.workspace(front + static_cast<std::size_t>(second) * sizeof(T)));
    return {reinterpret_cast<T*>(data), reinterpret_cast<T*>(data + front)};
  }
  void exchange(const T* rows, T* received, std::int64_t each) {
    if (!context_.rehearses()) team_->exchange(rows, received, each * static_cast<std::int64_t>(sizeof(T)));
  }
  void gather_rows(const T* own, T* rows, std::int64_t each) {
    if (!context_.rehearses()) team_->gather(own, rows, each * static_cast<std::int64_t>(sizeof(T)));
  }
  /// Whether each rank's elements are one row of the tensor.
  bool in_rows(std::int64_t run, std::int64_t part) const { return run == part; }

  void gather(T* y, const T* x) {
    if (in_rows(config_.from, part_)) return gather_rows(x, y, part_);
    T* const rows = room(0, config_.n).second;
    gather_rows(x, rows, part_);
    move(config_.n, {}, {.run = config_.from, .rows = true}, y, rows);
  }
  void add_to_parts(T* y, const T* x) {
    const bool lies_so = in_rows(config_.to, part_);
    const Room memory = room(lies_so ? 0 : config_.n, config_.n);
    if (!lies_so) move(config_.n, {.run = config_.to, .rows = true}, {}, memory.first, x);
    exchange(lies_so ? x : memory.first, memory.second, part_);
    add(part_, part_, y, memory.second);
  }
  void add_to_all(T* y, const T* x) {
    const std::int64_t ranks = config_.ranks, n = config_.n, width = divide_up(n, ranks);
    // Of little, one message less is worth more than the bytes.
    if (n * ranks * static_cast<std::int64_t>(sizeof(T)) <= kLittleBytes) {
      T* const rows = room(0, ranks * n).second;
      gather_rows(x, rows, n);
      return add(n, n, y, rows);
    }
    const bool divided = n % ranks == 0;
    const Room memory = room(divided ? 0 : ranks * width, ranks * width);
    if (divided) {
      exchange(x, memory.second, width);
      T* const own = y + team_->rank() * width;
      add(width, width, own, memory.second);
      return gather_rows(own, y, width);
    }
    copy(memory.first, x, n);
    fill_with_zeros(memory.first + n, ranks * width - n);
    exchange(memory.first, memory.second, width);
    add(width, width, memory.first, memory.second);
    gather_rows(memory.first, memory.second, width);
    copy(y, memory.second, n);
  }
  /// Of runs of `small` and of `large`, a multiple of what all ranks have of the small ones in a row, two ranks have
  /// part / ranks elements in common. Among those of the rank with large runs they lie as a rank's lie in a tensor with
  /// runs of `small`; among those of the other as in one with runs of large / ranks.
  void exchange_parts(T* y, const T* x) {
    const std::int64_t ranks = config_.ranks, from = config_.from, to = config_.to;
    const bool narrows = from % (to * ranks) == 0;
    if (!narrows && to % (from * ranks) != 0) {
      T* const rows = room(0, config_.n).second;
      gather_rows(x, rows, part_);
      return move(part_, {.run = to, .rank = team_->rank()}, {.run = from, .rows = true}, y, rows);
    }
    const std::int64_t common = part_ / ranks, out = narrows ? to : to / ranks, in = narrows ? from / ranks : from;
    const bool sent_so = in_rows(out, common), received_so = in_rows(in, common);
    const Room memory = room(sent_so ? 0 : part_, received_so ? 0 : part_);
    if (!sent_so) move(part_, {.run = out, .part = common, .rows = true}, {}, memory.first, x);
    exchange(sent_so ? x : memory.first, received_so ? y : memory.second, common);
    if (!received_so) move(part_, {}, {.run = in, .part = common, .rows = true}, y, memory.second);
  }

  static constexpr std::int64_t kLittleBytes = 64 * 1024;

  CudaContext& context_;
  const convert_layout_config config_;
  Team* const team_;  ///< nullptr: the process is the first rank, and the others have zeros
  const std::int64_t part_;
};

}  // namespace detail

template <class T>
void convert_layout(CudaContext& context, const convert_layout_config& config, T* y, const plain_t<T>* x) {
  detail::LayoutConversion<T>(context, config).run(y, x);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
