// A list of tensors worked on as if they lay behind each other, in pieces of 2^14 elements whatever the tensors' sizes:
// how optimizers update all parameters in one parallel region.
//
//   for_each_range(threads, count, sizes, [&](std::int64_t tensor, std::int64_t first, std::int64_t n) {
//     ... params[tensor] + first ...
//   });
//
// for_each_piece cuts each tensor for itself and numbers the pieces, for what is added up by tensor.
#pragma once

#include <cstdint>

#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class Range>
inline void for_each_range(Threads& threads, std::int64_t count, const std::int64_t* sizes, const Range& range) {
  constexpr std::int64_t kPiece = 16384;
  std::int64_t total = 0;
  for (std::int64_t t = 0; t < count; ++t) total += sizes[t];
  threads.run((total + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    std::int64_t first = piece * kPiece, left = total - first < kPiece ? total - first : kPiece;
    for (std::int64_t t = 0; t < count && left > 0; ++t) {
      if (first < sizes[t]) {
        const std::int64_t n = sizes[t] - first < left ? sizes[t] - first : left;
        range(t, first, n);
        left -= n;
        first = 0;
      } else {
        first -= sizes[t];
      }
    }
  });
}

/// range(number of the piece, tensor, first element, elements): pieces of at most `size` elements, numbered through all
/// tensors in their order. `sizes[t]` is what tensor t has of them. Neighbouring pieces go to a thread together, so
/// that of many small tensors not every piece looks for its own from the first on.
template <class Sizes, class Range>
inline void for_each_piece(Threads& threads, std::int64_t size, std::int64_t count, const Sizes& sizes,
                           const Range& range) {
  constexpr std::int64_t kTasks = 256;
  std::int64_t pieces = 0;
  for (std::int64_t t = 0; t < count; ++t) pieces += (sizes[t] + size - 1) / size;
  const std::int64_t together = (pieces + kTasks - 1) / kTasks;
  threads.run(together == 0 ? 0 : (pieces + together - 1) / together, [&](std::int64_t task) {
    const std::int64_t end = (task + 1) * together < pieces ? (task + 1) * together : pieces;
    std::int64_t t = 0, within = task * together;
    for (std::int64_t piece = task * together; piece < end; ++piece, ++within) {
      for (; within >= (sizes[t] + size - 1) / size; ++t) within -= (sizes[t] + size - 1) / size;
      const std::int64_t first = within * size;
      range(piece, t, first, sizes[t] - first < size ? sizes[t] - first : size);
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
