// The thunks of elementwise operators. What differs between operators and element types is one loop over elements that
// lie together; the strides, the pieces and the threads around it are the same for all, and compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "frontend/eager/table.h"
#include "kernels/cpu/elementwise.h"

namespace graven::eager {

/// Computes `n` elements; each input's lie together.
using ApplyRange = void (*)(std::int64_t n, void* y, const void* const* x);

/// What kernels::broadcast computes, from a.tensors. `element_bytes`: of the output, then of each input; 1, 2, 4 or 8.
void broadcast(const Arguments& a, ApplyRange apply, std::span<const std::size_t> element_bytes);

template <class F, class Y, class... X, std::size_t... I>
void apply_range(std::int64_t n, void* y, const void* const* x, std::index_sequence<I...>) {
  kernels::detail::apply_range<F>(n, static_cast<Y*>(y), static_cast<const X*>(x[I])...);
}

template <class F, class Y, class... X>
void broadcast_thunk(const Arguments& a) {
  static_assert(sizeof...(X) == F::inputs, "one tensor for each input of the functor");
  static_assert(sizeof...(X) <= kernels::broadcast_config::kMaximumInputs, "too many inputs");
  static constexpr std::size_t kElementBytes[] = {sizeof(Y), sizeof(X)...};
  broadcast(
      a,
      [](std::int64_t n, void* y, const void* const* x) {
        apply_range<F, Y, X...>(n, y, x, std::index_sequence_for<X...>{});
      },
      kElementBytes);
}

}  // namespace graven::eager
