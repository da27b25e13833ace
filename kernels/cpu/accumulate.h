// accumulate: the sum of a gradient over the parts of a batch, and behind the last one the mean.
//
//   sum = x / scale                  in part 0
//   sum = sum + x / scale            in the others
//   sum = sum / parts                besides, in the last one, parts - 1
//
//   accumulate(threads, {.n = 784 * 256}, sum, x, &part, &parts, nullptr);    // nullptr: no scale
//
// Each element is read once and written once, in part 0 without what was there before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config/accumulate.h"
#include "functor.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// What each term is multiplied by. Times one is exact.
template <class S>
double reciprocal_of_scale(const S* scale) {
  return scale == nullptr ? 1 : static_cast<float>(1 / static_cast<double>(*scale));
}

template <bool First, bool Last, class T>
[[gnu::noinline]] void accumulate_range(std::int64_t n, T* sum, const T* x, T times, T parts) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    T value = x[i] * times;
    if constexpr (!First) value = sum[i] + value;
    sum[i] = Last ? value / parts : value;
  }
}

}  // namespace detail

/// The scale is of f32; to eager mode, where there is none, of any type.
template <class T, class S>
inline void accumulate(Threads& threads, const accumulate_config& c, T* sum, const T* x, const std::int64_t* part,
                       const std::int64_t* parts, const S* scale) {
  constexpr std::int64_t kPiece = 16384;
  const T times = static_cast<T>(detail::reciprocal_of_scale(scale));
  const T count = static_cast<T>(*parts);
  const bool first = *part == 0, last = *part + 1 == *parts;
  const auto range = first ? last ? &detail::accumulate_range<true, true, T> : &detail::accumulate_range<true, false, T>
                     : last ? &detail::accumulate_range<false, true, T>
                            : &detail::accumulate_range<false, false, T>;
  threads.run((c.n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t begin = piece * kPiece;
    range(c.n - begin < kPiece ? c.n - begin : kPiece, sum + begin, x + begin, times, count);
  });
}

template <class T>
inline void accumulate(Threads& threads, const accumulate_config& c, T* sum, const T* x, const std::int64_t* part,
                       const std::int64_t* parts, std::nullptr_t) {
  accumulate(threads, c, sum, x, part, parts, static_cast<const float*>(nullptr));
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
