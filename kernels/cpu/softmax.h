// softmax, log_softmax and their gradients over the middle of [outer, size, inner].
//
//   softmax:      y_i = exp(x_i - max) / sum over j of exp(x_j - max)
//   masked_softmax: likewise, but 0 where max is -infinity
//   causal_softmax: softmax of the first elements of each row, as many as the config says; the others become 0
//   log_softmax:  y_i = x_i - max - log(sum over j of exp(x_j - max))
//   softmax_backward:      dx_i = y_i (dy_i - sum over j of dy_j y_j)
//   causal_softmax_backward: likewise of these elements; 0 for the others
//   log_softmax_backward:  dx_i = dy_i - exp(y_i) sum over j of dy_j
//
//   softmax(threads, softmax_config{.outer = 64, .size = 10, .inner = 1}, y, x);
//   causal_softmax(threads, causal_softmax_config{.matrices = 96, .queries = 64, .keys = 64, .offset = 0,
//                                                 .masked_to_zero = false}, weights, scores);
//
// float, double, half and bfloat16 (computed in float). The output may be any of the inputs.
#pragma once

#include <cstdint>

#include "../config/softmax.h"
#include "dtype.h"
#include "level.h"
#include "scalar_math.h"
#include "simd.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Elements that are worked on together: loops of this fixed length become vectors without remainders.
inline constexpr int kGroup = 16;
inline constexpr std::int64_t kSoftmaxPiece = 8192;

/// Up to 16 neighbouring elements; those beyond `count` are `rest`.
template <class T, class C = compute_t<T>>
struct Group {
  C value[kGroup];

  GRAVEN_ALWAYS_INLINE Group(const T* x, std::int64_t count, C rest) {
    if (count >= kGroup) {
      for (int l = 0; l < kGroup; ++l) value[l] = static_cast<C>(x[l]);
    } else {
      for (int l = 0; l < kGroup; ++l) value[l] = l < count ? static_cast<C>(x[l]) : rest;
    }
  }
  GRAVEN_ALWAYS_INLINE void store(T* y, std::int64_t count) const {
    if (count >= kGroup) {
      for (int l = 0; l < kGroup; ++l) y[l] = static_cast<T>(value[l]);
    } else {
      for (int l = 0; l < kGroup; ++l)
        if (l < count) y[l] = static_cast<T>(value[l]);
    }
  }
};

template <class C>
GRAVEN_ALWAYS_INLINE C sum_lanes(C (&lanes)[kGroup]) {
  for (int step = kGroup / 2; step > 0; step /= 2)
    for (int l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  return lanes[0];
}
/// Lane by lane the larger of both, NaN where either is.
template <class V>
GRAVEN_ALWAYS_INLINE V larger(V a, V b) {
  return b > a ? b : (b != b ? b : a);
}

template <class C>
struct LineSum {
  C most;  // the largest element (NaN if one is)
  C sum;   // of exp(x - most)
};

/// Elements of a line that are worked on at a time, in whole groups.
inline constexpr std::int64_t kLineChunk = 512;

/// Copies `count` elements and fills up the last group with -infinity; the number of elements with those.
template <class T, class C>
inline std::int64_t copy_line(const T* x, std::int64_t count, C (&to)[kLineChunk]) {
  const std::int64_t whole = count / kGroup * kGroup, padded = (count + kGroup - 1) / kGroup * kGroup;
  for (std::int64_t k = 0; k < whole; ++k) to[k] = static_cast<C>(x[k]);
  if (whole < count)
    for (int l = 0; l < kGroup; ++l)
      to[whole + l] = whole + l < count ? static_cast<C>(x[whole + l]) : -static_cast<C>(__builtin_inff());
  return padded;
}

/// Largest element of n >= 1 neighbours and the sum of their exponentials, which also go to `exponentials` unless that
/// is nullptr.
template <class T, class C = compute_t<T>>
inline LineSum<C> line_sum(const T* x, std::int64_t n, T* exponentials) {
  C chunk[kLineChunk], lanes[kGroup];
  for (int l = 0; l < kGroup; ++l) lanes[l] = -static_cast<C>(__builtin_inff());
  for (std::int64_t i = 0; i < n; i += kLineChunk) {
    const std::int64_t padded = copy_line(x + i, n - i < kLineChunk ? n - i : kLineChunk, chunk);
    for (int v = 0; v < kGroup; v += lanes_of<C>) {
      vec_of<C> m = load<C>(lanes + v);
      for (std::int64_t k = v; k < padded; k += kGroup) m = larger(m, load<C>(chunk + k));
      store<C>(lanes + v, m);
    }
  }
  for (int step = kGroup / 2; step > 0; step /= 2)
    for (int l = 0; l < step; ++l) lanes[l] = math::max(lanes[l], lanes[l + step]);
  const C top = lanes[0];
  C total[kGroup] = {};
  for (std::int64_t i = 0; i < n; i += kLineChunk) {
    const std::int64_t count = n - i < kLineChunk ? n - i : kLineChunk;
    std::int64_t padded = (count + kGroup - 1) / kGroup * kGroup;
    if (n > kLineChunk) padded = copy_line(x + i, count, chunk);
    for (std::int64_t k = 0; k < padded; k += kGroup)
      for (int l = 0; l < kGroup; ++l) chunk[k + l] = math::exp(chunk[k + l] - top);
    // What fills up the last group is now 0, or NaN where all elements are -infinity and the sum is NaN as well.
    for (int v = 0; v < kGroup; v += lanes_of<C>) {
      vec_of<C> sum = load<C>(total + v);
      for (std::int64_t k = v; k < padded; k += kGroup) sum += load<C>(chunk + k);
      store<C>(total + v, sum);
    }
    if (exponentials != nullptr)
      for (std::int64_t k = 0; k < count; ++k) exponentials[i + k] = static_cast<T>(chunk[k]);
  }
  return {top, sum_lanes(total)};
}

/// line_sum of up to kGroup lines of n <= kGroup elements, one line a lane; their softmax goes to `probabilities`
/// (which may be x) unless that is nullptr. Lanes without a line get a sum of 1.
template <class T, class C = compute_t<T>>
inline void short_line_sums(const T* x, std::int64_t lines, std::int64_t n, T* probabilities, C (&most)[kGroup],
                            C (&sum)[kGroup]) {
  C element[kGroup][kGroup] = {};
  for (std::int64_t l = 0; l < lines; ++l)
    for (std::int64_t k = 0; k < n; ++k) element[k][l] = static_cast<C>(x[l * n + k]);
  for (int l = 0; l < kGroup; ++l) most[l] = element[0][l];
  for (std::int64_t k = 1; k < n; ++k)
    for (int l = 0; l < kGroup; ++l) most[l] = larger(most[l], element[k][l]);
  for (int l = 0; l < kGroup; ++l) sum[l] = C(0);
  for (std::int64_t k = 0; k < n; ++k)
    for (int l = 0; l < kGroup; ++l) sum[l] += element[k][l] = math::exp(element[k][l] - most[l]);
  if (probabilities != nullptr) {
    C scale[kGroup];
    for (int l = 0; l < kGroup; ++l) scale[l] = C(1) / sum[l];
    for (std::int64_t l = 0; l < lines; ++l)
      for (std::int64_t k = 0; k < n; ++k) probabilities[l * n + k] = static_cast<T>(element[k][l] * scale[l]);
  }
  for (std::int64_t l = lines; l < kGroup; ++l) sum[l] = C(1);
}

/// y = x * scale for n neighbours.
template <class T, class C = compute_t<T>>
inline void scale_line(T* y, std::int64_t n, C scale) {
  for (std::int64_t i = 0; i < n; i += kGroup) {
    Group<T> g(y + i, n - i, C(0));
    for (int l = 0; l < kGroup; ++l) g.value[l] *= scale;
    g.store(y + i, n - i);
  }
}

/// Calls lines(first line, last line) for pieces of `count` lines of `size` elements.
template <class Lines>
inline void for_lines(Threads& threads, std::int64_t count, std::int64_t size, const Lines& lines) {
  const std::int64_t each = kSoftmaxPiece / (size + 1) + 1;
  threads.run((count + each - 1) / each, [&](std::int64_t piece) {
    lines(piece * each, (piece + 1) * each < count ? (piece + 1) * each : count);
  });
}

/// Calls columns(first element, width) for groups of at most 16 neighbouring lines whose elements lie `inner` apart.
template <class Columns>
inline void for_columns(Threads& threads, const softmax_config& c, const Columns& columns) {
  const std::int64_t groups = (c.inner + kGroup - 1) / kGroup;
  for_lines(threads, c.outer * groups, c.size * kGroup, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t column = i % groups * kGroup;
      columns(i / groups * c.size * c.inner + column, c.inner - column < kGroup ? c.inner - column : kGroup);
    }
  });
}

/// Largest element and sum of exponentials of up to 16 neighbouring lines.
template <class T, class C = compute_t<T>>
inline void column_sums(const softmax_config& c, const T* x, std::int64_t width, C (&most)[kGroup],
                        C (&total)[kGroup]) {
  for (int l = 0; l < kGroup; ++l) {
    most[l] = -static_cast<C>(__builtin_inff());
    total[l] = 0;
  }
  for (std::int64_t k = 0; k < c.size; ++k) {
    const Group<T> g(x + k * c.inner, width, C(0));
    for (int l = 0; l < kGroup; l += lanes_of<C>) store<C>(most + l, larger(load<C>(most + l), load<C>(g.value + l)));
  }
  for (std::int64_t k = 0; k < c.size; ++k) {
    const Group<T> g(x + k * c.inner, width, C(0));
    for (int l = 0; l < kGroup; ++l) total[l] += math::exp(g.value[l] - most[l]);
  }
}

/// softmax of n >= 1 neighbours. masked_to_zero: zeros where all of them are -infinity.
template <class T>
inline void softmax_line(T* y, const T* x, std::int64_t n, bool masked_to_zero) {
  using C = compute_t<T>;
  // The exponentials are rounded once to float and once more for the quotient; narrower types are not, they are
  // computed again.
  constexpr bool kKept = sizeof(T) >= 4;
  const auto line = line_sum(x, n, kKept ? y : static_cast<T*>(nullptr));
  if (masked_to_zero && line.most == -static_cast<C>(__builtin_inff())) {
    for (std::int64_t k = 0; k < n; ++k) y[k] = static_cast<T>(C(0));
  } else if constexpr (kKept) {
    scale_line(y, n, C(1) / line.sum);
  } else {
    for (std::int64_t k = 0; k < n; k += kGroup) {
      Group<T> g(x + k, n - k, C(0));
      for (int l = 0; l < kGroup; ++l) g.value[l] = math::exp(g.value[l] - line.most) / line.sum;
      g.store(y + k, n - k);
    }
  }
}

/// The gradient of softmax of n neighbours.
template <class T>
inline void softmax_line_backward(T* dx, const T* dy, const T* y, std::int64_t n) {
  using C = compute_t<T>;
  C total[kGroup] = {};
  for (std::int64_t k = 0; k < n; k += kGroup) {
    const Group<T> a(dy + k, n - k, C(0)), b(y + k, n - k, C(0));
    for (int l = 0; l < kGroup; ++l) total[l] = fma(a.value[l], b.value[l], total[l]);
  }
  const C sum = sum_lanes(total);
  for (std::int64_t k = 0; k < n; k += kGroup) {
    Group<T> a(dy + k, n - k, C(0));
    const Group<T> b(y + k, n - k, C(0));
    for (int l = 0; l < kGroup; ++l) a.value[l] = b.value[l] * (a.value[l] - sum);
    a.store(dx + k, n - k);
  }
}

/// Calls row(first element, elements that it sees) for each row of scores.
template <class Row>
inline void for_causal_rows(Threads& threads, const causal_softmax_config& c, const Row& row) {
  for_lines(threads, c.matrices * c.queries, c.keys, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t seen = i % c.queries + 1 + c.offset;
      row(i * c.keys, seen < c.keys ? seen : c.keys);
    }
  });
}

/// Masked: lines of nothing but -infinity become zeros.
template <bool Masked, class T>
inline void softmax_of(Threads& threads, const softmax_config& c, T* y, const T* x) {
  using C = compute_t<T>;
  constexpr C kMasked = -static_cast<C>(__builtin_inff());
  if (c.size == 0) return;
  if (c.inner == 1) {
    for_lines(threads, c.outer, c.size, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) softmax_line(y + i * c.size, x + i * c.size, c.size, Masked);
    });
    return;
  }
  for_columns(threads, c, [&](std::int64_t first, std::int64_t width) {
    C most[kGroup], total[kGroup];
    column_sums(c, x + first, width, most, total);
    // The elements of a masked line become -infinity - 0, whose exponential is 0.
    for (int l = 0; l < kGroup; ++l) {
      const bool masked = Masked && most[l] == kMasked;
      most[l] = masked ? C(0) : most[l];
      total[l] = masked ? C(1) : total[l];
    }
    for (std::int64_t k = 0; k < c.size; ++k) {
      Group<T> g(x + first + k * c.inner, width, C(0));
      for (int l = 0; l < kGroup; ++l) g.value[l] = math::exp(g.value[l] - most[l]) / total[l];
      g.store(y + first + k * c.inner, width);
    }
  });
}

}  // namespace detail

template <class T>
inline void softmax(Threads& threads, const softmax_config& c, T* y, const T* x) {
  detail::softmax_of<false>(threads, c, y, x);
}
template <class T>
inline void masked_softmax(Threads& threads, const softmax_config& c, T* y, const T* x) {
  detail::softmax_of<true>(threads, c, y, x);
}

template <class T>
inline void causal_softmax(Threads& threads, const causal_softmax_config& c, T* y, const T* x) {
  if (c.keys == 0) return;
  detail::for_causal_rows(threads, c, [&](std::int64_t first, std::int64_t seen) {
    detail::softmax_line(y + first, x + first, seen, c.masked_to_zero);
    for (std::int64_t k = seen; k < c.keys; ++k) y[first + k] = static_cast<T>(compute_t<T>(0));
  });
}

template <class T>
inline void log_softmax(Threads& threads, const softmax_config& c, T* y, const T* x) {
  using C = compute_t<T>;
  if (c.size == 0) return;
  if (c.inner == 1) {
    detail::for_lines(threads, c.outer, c.size, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        const auto line = detail::line_sum(x + i * c.size, c.size, static_cast<T*>(nullptr));
        const C log_sum = math::log(line.sum);
        for (std::int64_t k = 0; k < c.size; k += detail::kGroup) {
          detail::Group<T> g(x + i * c.size + k, c.size - k, C(0));
          for (int l = 0; l < detail::kGroup; ++l) g.value[l] = (g.value[l] - line.most) - log_sum;
          g.store(y + i * c.size + k, c.size - k);
        }
      }
    });
    return;
  }
  detail::for_columns(threads, c, [&](std::int64_t first, std::int64_t width) {
    C most[detail::kGroup], total[detail::kGroup];
    detail::column_sums(c, x + first, width, most, total);
    for (int l = 0; l < detail::kGroup; ++l) total[l] = math::log(total[l]);
    for (std::int64_t k = 0; k < c.size; ++k) {
      detail::Group<T> g(x + first + k * c.inner, width, C(0));
      for (int l = 0; l < detail::kGroup; ++l) g.value[l] = (g.value[l] - most[l]) - total[l];
      g.store(y + first + k * c.inner, width);
    }
  });
}

template <class T>
inline void softmax_backward(Threads& threads, const softmax_config& c, T* dx, const T* dy, const T* y) {
  using C = compute_t<T>;
  if (c.inner == 1) {
    detail::for_lines(threads, c.outer, c.size, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t j = first * c.size; j < last * c.size; j += c.size)
        detail::softmax_line_backward(dx + j, dy + j, y + j, c.size);
    });
    return;
  }
  detail::for_columns(threads, c, [&](std::int64_t first, std::int64_t width) {
    C total[detail::kGroup] = {};
    for (std::int64_t k = 0; k < c.size; ++k) {
      const detail::Group<T> a(dy + first + k * c.inner, width, C(0)), b(y + first + k * c.inner, width, C(0));
      for (int l = 0; l < detail::kGroup; ++l) total[l] = fma(a.value[l], b.value[l], total[l]);
    }
    for (std::int64_t k = 0; k < c.size; ++k) {
      detail::Group<T> a(dy + first + k * c.inner, width, C(0));
      const detail::Group<T> b(y + first + k * c.inner, width, C(0));
      for (int l = 0; l < detail::kGroup; ++l) a.value[l] = b.value[l] * (a.value[l] - total[l]);
      a.store(dx + first + k * c.inner, width);
    }
  });
}

template <class T>
inline void causal_softmax_backward(Threads& threads, const causal_softmax_config& c, T* dx, const T* dy, const T* y) {
  detail::for_causal_rows(threads, c, [&](std::int64_t first, std::int64_t seen) {
    detail::softmax_line_backward(dx + first, dy + first, y + first, seen);
    for (std::int64_t k = seen; k < c.keys; ++k) dx[first + k] = static_cast<T>(compute_t<T>(0));
  });
}

template <class T>
inline void log_softmax_backward(Threads& threads, const softmax_config& c, T* dx, const T* dy, const T* y) {
  using C = compute_t<T>;
  if (c.inner == 1) {
    detail::for_lines(threads, c.outer, c.size, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t j = first * c.size; j < last * c.size; j += c.size) {
        C total[detail::kGroup] = {};
        for (std::int64_t k = 0; k < c.size; k += detail::kGroup) {
          const detail::Group<T> a(dy + j + k, c.size - k, C(0));
          for (int l = 0; l < detail::kGroup; ++l) total[l] += a.value[l];
        }
        const C sum = detail::sum_lanes(total);
        for (std::int64_t k = 0; k < c.size; k += detail::kGroup) {
          detail::Group<T> a(dy + j + k, c.size - k, C(0));
          const detail::Group<T> b(y + j + k, c.size - k, C(0));
          for (int l = 0; l < detail::kGroup; ++l) a.value[l] = fma(-math::exp(b.value[l]), sum, a.value[l]);
          a.store(dx + j + k, c.size - k);
        }
      }
    });
    return;
  }
  detail::for_columns(threads, c, [&](std::int64_t first, std::int64_t width) {
    C total[detail::kGroup] = {};
    for (std::int64_t k = 0; k < c.size; ++k) {
      const detail::Group<T> a(dy + first + k * c.inner, width, C(0));
      for (int l = 0; l < detail::kGroup; ++l) total[l] += a.value[l];
    }
    for (std::int64_t k = 0; k < c.size; ++k) {
      detail::Group<T> a(dy + first + k * c.inner, width, C(0));
      const detail::Group<T> b(y + first + k * c.inner, width, C(0));
      for (int l = 0; l < detail::kGroup; ++l) a.value[l] = fma(-math::exp(b.value[l]), total[l], a.value[l]);
      a.store(dx + first + k * c.inner, width);
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
