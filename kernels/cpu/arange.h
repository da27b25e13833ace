// arange: y[i] = start + i * step, computed in double, for any element type.
//
//   arange(threads, arange_config{.n = 4, .start = 1, .step = 0.5}, y);     // 1, 1.5, 2, 2.5
#pragma once

#include <cstdint>

#include "../config/arange.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void arange(Threads& threads, const arange_config& c, T* y) {
  constexpr std::int64_t kPiece = 16384;
  threads.run((c.n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t end = (piece + 1) * kPiece < c.n ? (piece + 1) * kPiece : c.n;
    for (std::int64_t i = piece * kPiece; i < end; ++i)
      y[i] = static_cast<T>(c.start + static_cast<double>(i) * c.step);
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
