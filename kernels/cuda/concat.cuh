// concat: joins tensors [outer, size_i, inner] along the middle dimension into y [outer, sum of size_i, inner].
//
//   // inputs and sizes are the host's arrays
//   concat(context, concat_config{.outer = 4, .inner = 9}, y, 2, inputs, sizes);
//
// Every element is read once and written once, at the speed of memory: an item is 16 bytes of y where all inputs come
// in such, else an element, of which a thread takes up to 4. One launch takes up to 16 inputs.
#pragma once

#include "../config/concat.h"
#include "items.cuh"

namespace graven::kernels {

/// Inputs side by side in a row of y: `count` of them, each from column first[k] on.
template <class Index, class Unit>
struct concat_parts {
  static constexpr int kMost = 16;
  const Unit* data[kMost];
  Index first[kMost + 1];
};

/// Columns [column, column + width) of y, whose rows have `total`.
template <int Items, class Index, class Unit>
__global__ void concat_kernel(Index n, divider<Index> width, Index total, Index column, concat_parts<Index, Unit> parts,
                              Unit* __restrict__ y) {
  for_items<Items, Unit>(
      n,
      [&](Index i) {
        const Index row = width.quotient(i), at = i - row * width.divisor;
        int k = 0;
        while (at >= parts.first[k + 1]) ++k;
        const Index first = parts.first[k];
        return parts.data[k][row * (parts.first[k + 1] - first) + at - first];
      },
      [&](Index i, const Unit& value) {
        const Index row = width.quotient(i);
        y[row * total + column + i - row * width.divisor] = value;
      });
}

#ifndef __CUDACC_RTC__

template <class T>
void concat(CudaContext& context, const concat_config& config, T* y, std::int64_t count, const T* const* xs,
            const std::int64_t* sizes) {
  std::int64_t total = 0;
  bool vectors = aligned_for_vectors<kVectorWidth<T>>(y);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t width = sizes[i] * config.inner;
    total += width;
    vectors = vectors && width % kVectorWidth<T> == 0 && aligned_for_vectors<kVectorWidth<T>>(xs[i]);
  }
  with_unit<T>(vectors, [&]<class Unit>(std::int64_t elements) {
    const std::int64_t columns = total / elements;
    constexpr std::int64_t kMost = concat_parts<std::int32_t, Unit>::kMost;
    std::int64_t column = 0;
    for (std::int64_t begin = 0; begin < count; begin += kMost) {
      const std::int64_t end = begin + kMost < count ? begin + kMost : count;
      std::int64_t width = 0;
      for (std::int64_t i = begin; i < end; ++i) width += sizes[i] * config.inner / elements;
      const std::int64_t n = config.outer * width;
      with_items(n, config.outer * columns, [&]<class Index, int Items>() {
        concat_parts<Index, Unit> parts{};
        Index first = 0;
        for (std::int64_t k = 0; k < kMost; ++k) {
          const bool present = begin + k < end;
          parts.data[k] = present ? reinterpret_cast<const Unit*>(xs[begin + k]) : nullptr;
          parts.first[k] = first;
          first += static_cast<Index>(present ? sizes[begin + k] * config.inner / elements : 0);
        }
        parts.first[kMost] = first;
        launch(context, "concat", &concat_kernel<Items, Index, Unit>, items_shape(n, Items), n,
               divider_of<Index>(width), columns, column, parts, reinterpret_cast<Unit*>(y));
      });
      column += width;
    }
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
