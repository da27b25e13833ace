// Reductions over the middle of [outer, size, inner]; the result is [outer, inner].
//
//   reduce_sum, reduce_mean, reduce_prod, reduce_max, reduce_min (y; x);  argmax, argmin (y i64; x)
//
//   reduce_mean(threads, reduce_config{.outer = 64, .size = 49, .inner = 128}, y, x);   // y[64,128] from x[64,49,128]
//   // of a functor's results
//   reduce_sum<squared_distance>(threads, reduce_config{.outer = 1, .size = 2000, .inner = 1}, y, x, target);
//
// Any element type. Sums and products of half and bfloat16 are formed in float; integers (and bool) wrap in y's type,
// which may be wider than x's. Of no elements the sum is 0, the product 1, the mean NaN; max, min, argmax and argmin
// need at least one. NaN counts as the extreme; the position is that of the first extreme. Long sums are formed in
// blocks, so that their error grows with the blocks' length and not with size.
#pragma once

#include <cstdint>

#include "../config/reduce.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "scalar_math.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

// A value that changes nothing, and how two values become one.
struct add_values {
  template <class A>
  static constexpr A start = A(0);
  template <class A>
  GRAVEN_ALWAYS_INLINE static A combine(A a, A b) {
    return static_cast<A>(a + b);
  }
};
struct multiply_values {
  template <class A>
  static constexpr A start = A(1);
  template <class A>
  GRAVEN_ALWAYS_INLINE static A combine(A a, A b) {
    return static_cast<A>(a * b);
  }
};
// These start from the first element instead.
struct larger_value {
  template <class A>
  GRAVEN_ALWAYS_INLINE static A combine(A a, A b) {
    return math::max(a, b);
  }
};
struct smaller_value {
  template <class A>
  GRAVEN_ALWAYS_INLINE static A combine(A a, A b) {
    return math::min(a, b);
  }
};
template <class Op>
inline constexpr bool starts_from_element = same_type<Op, larger_value> || same_type<Op, smaller_value>;
template <class Op, class A>
inline constexpr A start_of(A first) {
  if constexpr (starts_from_element<Op>) {
    return first;
  } else {
    (void)first;
    return Op::template start<A>;
  }
}

/// What is reduced instead of a tensor: a functor's results over one or two.
template <class F, class T>
struct Terms {
  const T* x;
  const T* other;  // of a functor of two inputs

  GRAVEN_ALWAYS_INLINE T operator[](std::int64_t i) const { return apply_epilogue<F>(x[i], other, i); }
  GRAVEN_ALWAYS_INLINE Terms operator+(std::int64_t offset) const {
    return {x + offset, F::inputs == 2 ? other + offset : other};
  }
};

// What adding one number after the other leaves of the processor's width, made up for.
inline constexpr int kReduceLanes = 64;
inline constexpr std::int64_t kReduceColumns = 128, kReduceBlock = 128, kReducePiece = 16384;

/// n >= 1 neighbouring elements. Lane l combines elements l, l + 64, ... of a block of 64 * 128; blocks are combined in
/// order, lanes in halves.
template <class Op, class A, class X>
inline A reduce_run(const X& x, std::int64_t n) {
  A result = start_of<Op, A>(static_cast<A>(x[0]));
  std::int64_t i = 0;
  if (n >= kReduceLanes) {
    A total[kReduceLanes];
    for (int l = 0; l < kReduceLanes; ++l) total[l] = start_of<Op, A>(static_cast<A>(x[l]));
    while (i + kReduceLanes <= n) {
      A part[kReduceLanes];
      for (int l = 0; l < kReduceLanes; ++l) part[l] = start_of<Op, A>(static_cast<A>(x[i + l]));
      const std::int64_t end = n - i < kReduceLanes * kReduceBlock ? n : i + kReduceLanes * kReduceBlock;
      for (; i + kReduceLanes <= end; i += kReduceLanes)
        for (int l = 0; l < kReduceLanes; ++l) part[l] = Op::combine(part[l], static_cast<A>(x[i + l]));
      for (int l = 0; l < kReduceLanes; ++l) total[l] = Op::combine(total[l], part[l]);
    }
    for (int step = kReduceLanes / 2; step > 0; step /= 2)
      for (int l = 0; l < step; ++l) total[l] = Op::combine(total[l], total[l + step]);
    result = total[0];
  }
  for (; i < n; ++i) result = Op::combine(result, static_cast<A>(x[i]));
  return result;
}

/// At most kReduceColumns columns of size >= 1 rows that lie `stride` apart, into total.
template <class Op, class A, class X>
inline void reduce_columns(const X& x, std::int64_t stride, std::int64_t size, std::int64_t columns, A* total) {
  for (std::int64_t j = 0; j < columns; ++j) total[j] = start_of<Op, A>(static_cast<A>(x[j]));
  for (std::int64_t k = 0; k < size;) {
    A part[kReduceColumns];
    for (std::int64_t j = 0; j < columns; ++j) part[j] = start_of<Op, A>(static_cast<A>(x[k * stride + j]));
    const std::int64_t end = size - k < kReduceBlock ? size : k + kReduceBlock;
    for (; k < end; ++k)
      for (std::int64_t j = 0; j < columns; ++j) part[j] = Op::combine(part[j], static_cast<A>(x[k * stride + j]));
    for (std::int64_t j = 0; j < columns; ++j) total[j] = Op::combine(total[j], part[j]);
  }
}

/// y = finish(Op over the middle of x), accumulated in A; size >= 1.
template <class Op, class A, class Y, class X, class Finish>
inline void reduce(Threads& threads, const reduce_config& c, Y* y, const X& x, const Finish& finish) {
  const std::int64_t outputs = c.outer * c.inner;
  if (outputs == 0) return;
  const auto column_range = [&](std::int64_t outer, std::int64_t column, std::int64_t columns, std::int64_t first,
                                std::int64_t size, A* to) {
    const X from = x + (outer * c.size + first) * c.inner + column;
    if (c.inner == 1) {
      *to = reduce_run<Op, A>(from, size);
    } else {
      reduce_columns<Op>(from, c.inner, size, columns, to);
    }
  };
  const std::int64_t groups = (c.inner + kReduceColumns - 1) / kReduceColumns;
  if (outputs <= 32 && c.size * outputs >= 4 * kReducePiece) {
    // Few results of many elements: the elements are divided, in at most 64 chunks.
    constexpr std::int64_t kChunks = 64;
    const std::int64_t least = kReducePiece / outputs + 1,
                       rows = (c.size + kChunks - 1) / kChunks > least ? (c.size + kChunks - 1) / kChunks : least;
    const std::int64_t chunks = (c.size + rows - 1) / rows;
    A parts[kChunks][32];
    threads.run(chunks, [&](std::int64_t chunk) {
      const std::int64_t first = chunk * rows, size = c.size - first < rows ? c.size - first : rows;
      for (std::int64_t o = 0; o < c.outer; ++o) column_range(o, 0, c.inner, first, size, parts[chunk] + o * c.inner);
    });
    for (std::int64_t i = 0; i < outputs; ++i) {
      A result = parts[0][i];
      for (std::int64_t chunk = 1; chunk < chunks; ++chunk) result = Op::combine(result, parts[chunk][i]);
      y[i] = finish(result);
    }
    return;
  }
  const std::int64_t width = c.inner < kReduceColumns ? c.inner : kReduceColumns,
                     each = kReducePiece / (c.size * width + 1) + 1, total = c.outer * groups;
  threads.run((total + each - 1) / each, [&](std::int64_t piece) {
    A results[kReduceColumns];
    for (std::int64_t i = piece * each; i < total && i < (piece + 1) * each; ++i) {
      const std::int64_t outer = i / groups, column = i % groups * kReduceColumns;
      const std::int64_t columns = c.inner - column < kReduceColumns ? c.inner - column : kReduceColumns;
      column_range(outer, column, columns, 0, c.size, results);
      for (std::int64_t j = 0; j < columns; ++j) y[outer * c.inner + column + j] = finish(results[j]);
    }
  });
}

template <class Op, class T>
inline void reduce_position(Threads& threads, const reduce_config& c, std::int64_t* y, const T* x) {
  using A = compute_t<T>;
  const std::int64_t outputs = c.outer * c.inner, each = kReducePiece / (c.size + 1) + 1;
  threads.run((outputs + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t i = piece * each; i < outputs && i < (piece + 1) * each; ++i) {
      const T* const line = x + i / c.inner * c.size * c.inner + i % c.inner;
      std::int64_t k = 0;
      if (c.inner == 1) {
        const A extreme = reduce_run<Op, A>(line, c.size);
        while (k + 1 < c.size && !(static_cast<A>(line[k]) == extreme ||
                                   (extreme != extreme && static_cast<A>(line[k]) != static_cast<A>(line[k]))))
          ++k;
      } else {
        A extreme = static_cast<A>(line[0]);
        for (std::int64_t j = 1; j < c.size && extreme == extreme; ++j) {
          const A value = static_cast<A>(line[j * c.inner]), combined = Op::combine(extreme, value);
          if (combined == extreme) continue;
          extreme = combined;
          k = j;
        }
      }
      y[i] = k;
    }
  });
}

template <class Y>
inline void fill_outputs(const reduce_config& c, Y* y, Y value) {
  for (std::int64_t i = 0; i < c.outer * c.inner; ++i) y[i] = value;
}

}  // namespace detail

template <class Y, class T>
inline void reduce_sum(Threads& threads, const reduce_config& c, Y* y, const T* x) {
  using A = wrapping_t<compute_t<Y>>;
  if (c.size == 0) return detail::fill_outputs(c, y, static_cast<Y>(0));
  detail::reduce<detail::add_values, A>(threads, c, y, x, [](A s) { return static_cast<Y>(s); });
}

template <class Y, class T>
inline void reduce_prod(Threads& threads, const reduce_config& c, Y* y, const T* x) {
  using A = wrapping_t<compute_t<Y>>;
  if (c.size == 0) return detail::fill_outputs(c, y, static_cast<Y>(1));
  detail::reduce<detail::multiply_values, A>(threads, c, y, x, [](A s) { return static_cast<Y>(s); });
}

template <class T>
inline void reduce_mean(Threads& threads, const reduce_config& c, T* y, const T* x) {
  using A = compute_t<T>;
  if (c.size == 0) return detail::fill_outputs(c, y, static_cast<T>(__builtin_nanf("")));
  const A size = static_cast<A>(c.size);
  detail::reduce<detail::add_values, A>(threads, c, y, x, [size](A s) { return static_cast<T>(s / size); });
}

/// The sum and the mean of F(x) or F(x, other), elements of one position.
template <class F, class T>
inline void reduce_sum(Threads& threads, const reduce_config& c, T* y, const T* x, const T* other = nullptr) {
  if (c.size == 0) return detail::fill_outputs(c, y, static_cast<T>(0));
  detail::reduce<detail::add_values, T>(threads, c, y, detail::Terms<F, T>{x, other}, [](T s) { return s; });
}
template <class F, class T>
inline void reduce_mean(Threads& threads, const reduce_config& c, T* y, const T* x, const T* other = nullptr) {
  if (c.size == 0) return detail::fill_outputs(c, y, static_cast<T>(__builtin_nanf("")));
  const T size = static_cast<T>(c.size);
  detail::reduce<detail::add_values, T>(threads, c, y, detail::Terms<F, T>{x, other}, [size](T s) { return s / size; });
}

template <class T>
inline void reduce_max(Threads& threads, const reduce_config& c, T* y, const T* x) {
  if (c.size == 0) return;
  detail::reduce<detail::larger_value, compute_t<T>>(threads, c, y, x,
                                                     [](compute_t<T> v) { return static_cast<T>(v); });
}

template <class T>
inline void reduce_min(Threads& threads, const reduce_config& c, T* y, const T* x) {
  if (c.size == 0) return;
  detail::reduce<detail::smaller_value, compute_t<T>>(threads, c, y, x,
                                                      [](compute_t<T> v) { return static_cast<T>(v); });
}

template <class T>
inline void argmax(Threads& threads, const reduce_config& c, std::int64_t* y, const T* x) {
  if (c.size > 0) detail::reduce_position<detail::larger_value>(threads, c, y, x);
}

template <class T>
inline void argmin(Threads& threads, const reduce_config& c, std::int64_t* y, const T* x) {
  if (c.size > 0) detail::reduce_position<detail::smaller_value>(threads, c, y, x);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
