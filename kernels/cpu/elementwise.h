// elementwise, broadcast, fill: a functor over tensors of any element types.
//
//   y[i] = F(x0[i], x1[i], ...)
//
//   elementwise<relu>(threads, elementwise_config{.n = 4096}, y, x);                          // all of one shape
//   broadcast<add>(threads, broadcast_config{.rank = 2, .shape = {64, 256}, .strides = {{256, 1}, {0, 1}}}, y, x,
//                  bias);
//   fill(threads, fill_config{.n = 4096, .value = 0}, y);
//
// The functor computes in functor_type of the inputs' element types (float for half and bfloat16); its result is
// converted to y's. y is row-major and contiguous and may be any input of the same shape; otherwise it must not overlap
// an input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "../config/elementwise.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "strides.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Elements that one piece of a parallel region handles.
inline constexpr std::int64_t kElementwisePiece = 16384;
/// Elements for which broadcast inputs are laid out at a time.
inline constexpr std::int64_t kBroadcastChunk = 512;

template <class F, class Y, class... X>
GRAVEN_ALWAYS_INLINE void apply_range(std::int64_t n, Y* y, const X*... x) {
  using T = functor_type<X...>;
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<Y>(F::template apply<T>(static_cast<T>(x[i])...));
}

/// The elements of one input that belong to a range of the output: the tensor itself where they lie together, else a
/// copy.
template <class X>
struct BroadcastInput {
  const X* x;
  const Strides<1>& s;
  X buffer[kBroadcastChunk];

  BroadcastInput(const X* tensor, const Strides<1>& strides) : x(tensor), s(strides) {
    if (is_scalar())
      for (X& b : buffer) b = x[0];
  }
  bool is_scalar() const { return s.rank == 1 && s.stride[0][0] == 0; }

  const X* range(std::int64_t first, std::int64_t count) {
    if (is_scalar()) return buffer;
    StrideWalker<1> at(s, first);
    const std::int64_t stride = s.stride[0][s.rank - 1];
    if (stride == 1 && at.left >= count) return x + at.offset[0];
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t run = at.left < count - i ? at.left : count - i;
      const X* from = x + at.offset[0];
      if (stride == 0) {
        for (std::int64_t j = 0; j < run; ++j) buffer[i + j] = *from;
      } else {
        for (std::int64_t j = 0; j < run; ++j) buffer[i + j] = from[j * stride];
      }
      i += run;
      at.advance(run);
    }
    return buffer;
  }
};

template <class F, class Y, class... X>
inline void broadcast_piece(std::int64_t first, std::int64_t last, Y* y, BroadcastInput<X>... inputs) {
  for (std::int64_t i = first; i < last; i += kBroadcastChunk) {
    const std::int64_t count = last - i < kBroadcastChunk ? last - i : kBroadcastChunk;
    apply_range<F>(count, y + i, inputs.range(i, count)...);
  }
}

template <class F, std::size_t... I, class Y, class... X>
inline void broadcast_all(Threads& threads, const broadcast_config& config, std::index_sequence<I...>, Y* y,
                          const X*... x) {
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < config.rank; ++d) n *= config.shape[d];
  if (n == 0) return;
  const Strides<1> strides[] = {merge_dimensions<1>(config.rank, config.shape, {config.strides[I]})...};
  threads.run((n + kElementwisePiece - 1) / kElementwisePiece, [&](std::int64_t piece) {
    const std::int64_t first = piece * kElementwisePiece,
                       last = n - first < kElementwisePiece ? n : first + kElementwisePiece;
    broadcast_piece<F>(first, last, y, BroadcastInput<X>(x, strides[I])...);
  });
}

}  // namespace detail

// None of these is inlined: a network has hundreds of such calls, and a compiler that writes out the choice between one
// thread and several at each of them takes half as long again for all that calls them.

template <class F, class Y, class... X>
[[gnu::noinline]] inline void elementwise(Threads& threads, const elementwise_config& config, Y* y, const X*... x) {
  static_assert(sizeof...(X) == F::inputs, "one tensor for each input of the functor");
  const std::int64_t n = config.n, piece_size = detail::kElementwisePiece;
  threads.run((n + piece_size - 1) / piece_size, [&](std::int64_t piece) {
    const std::int64_t first = piece * piece_size, count = n - first < piece_size ? n - first : piece_size;
    detail::apply_range<F>(count, y + first, (x + first)...);
  });
}

template <class F, class Y, class... X>
[[gnu::noinline]] inline void broadcast(Threads& threads, const broadcast_config& config, Y* y, const X*... x) {
  static_assert(sizeof...(X) == F::inputs, "one tensor for each input of the functor");
  static_assert(sizeof...(X) <= broadcast_config::kMaximumInputs, "too many inputs");
  detail::broadcast_all<F>(threads, config, std::make_index_sequence<sizeof...(X)>{}, y, x...);
}

template <class T>
[[gnu::noinline]] inline void fill(Threads& threads, const fill_config& config, T* y) {
  const std::int64_t n = config.n, piece_size = 4 * detail::kElementwisePiece;
  const T value = static_cast<T>(config.value);
  threads.run((n + piece_size - 1) / piece_size, [&](std::int64_t piece) {
    const std::int64_t first = piece * piece_size, last = n - first < piece_size ? n : first + piece_size;
    for (std::int64_t i = first; i < last; ++i) y[i] = value;
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
