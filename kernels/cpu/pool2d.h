// pool2d: max and average pooling of x [batch,in_height,in_width,channels] (NCHW where config.channels_last is false)
// into y [batch,out_height,out_width,channels], and their gradients, f32. Formulas: config/pool2d.h.
//
//   inline constexpr pool2d_config pool{.batch = 64, .channels = 6, .in_height = 28, ...};
//   max_pool2d(threads, pool, y, index, x);             // index: the winner's kh * kernel_width + kw, u8, y's shape;
//                                                       // nullptr where nobody needs it
//   max_pool2d_backward(threads, pool, dx, dy, index);
//   avg_pool2d(threads, pool, y, x);
//   avg_pool2d_backward(threads, pool, dx, dy);
//
// Maximum: the first of equals wins, NaN wins over everything. Vectors run over the channels. A pixel's last,
// incomplete vector reaches into the next pixel of the row, which is computed after it and so overwrites what it
// spoilt; the last pixels of a row are stored exactly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config/pool2d.h"
#include "simd.h"
#include "threads.h"
#include "window.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace pool2d_detail {

using namespace window;

/// Width elements of type T.
template <class T, int Width>
struct vector_of {
  typedef T type __attribute__((vector_size(Width * sizeof(T))));
};

/// Vectors of `Width` channels: floats, and their comparisons. Indices are bytes in memory.
template <int Width>
struct lanes {
  using real = typename vector_of<float, Width>::type;
  using integer = typename vector_of<std::int32_t, Width>::type;
  using shorts = typename vector_of<std::uint16_t, Width>::type;
  using bytes = typename vector_of<std::uint8_t, Width>::type;

  // Not through a vector type of less alignment: of a width that is a parameter, g++ 11.2 forgets the alignment.
  GRAVEN_ALWAYS_INLINE static real load(const float* p) {
    real v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  GRAVEN_ALWAYS_INLINE static void store(float* p, const real& v) { __builtin_memcpy(p, &v, sizeof(v)); }
  GRAVEN_ALWAYS_INLINE static integer load_index(const std::uint8_t* p) {
    // Four bytes of one integer, shifted apart: as few instructions at any level of optimisation.
    if constexpr (Width == 8) {
      std::int32_t four[2];
      __builtin_memcpy(four, p, sizeof(four));
      const integer both = {four[0], four[0], four[0], four[0], four[1], four[1], four[1], four[1]};
      return (both >> integer{0, 8, 16, 24, 0, 8, 16, 24}) & 255;
    } else if constexpr (Width == 4) {
      std::int32_t four;
      __builtin_memcpy(&four, p, sizeof(four));
      return (integer{four, four, four, four} >> integer{0, 8, 16, 24}) & 255;
    } else {
      // One step at a time is an instruction; both at once, g++ takes each element by itself.
      bytes narrow;
      __builtin_memcpy(&narrow, p, sizeof(narrow));
      return __builtin_convertvector(__builtin_convertvector(narrow, shorts), integer);
    }
  }
  GRAVEN_ALWAYS_INLINE static void store_index(std::uint8_t* p, const integer& v) {
    const bytes narrow = __builtin_convertvector(v, bytes);
    __builtin_memcpy(p, &narrow, sizeof(narrow));
  }
};

/// A run of windows in one row of the output: how they lie in x, and the taps that all of them have.
struct window_row {
  std::int64_t windows;
  range h, w;                              ///< taps inside the image
  std::int64_t x_row, x_column, x_window;  ///< from one tap to the next, from one window to the next
  std::int64_t y_window;
  std::int64_t kernel_width;
};

/// `Width` channels of every window in the run; x points at tap (h.begin, w.begin) of the first. Square: two by two
/// taps.
template <int Width, bool Index, bool Square>
[[gnu::noinline]] void max_windows(float* y, std::uint8_t* index, const float* x, const window_row& row) {
  using L = lanes<Width>;
  const std::int32_t first = static_cast<std::int32_t>(row.h.begin * row.kernel_width + row.w.begin);
  for (std::int64_t i = 0; i < row.windows; ++i, x += row.x_window, y += row.y_window) {
    typename L::real best = L::load(x);
    typename L::integer winner = typename L::integer{} + first;
    const auto tap = [&](std::int64_t kh, std::int64_t kw, std::int32_t position) __attribute__((always_inline)) {
      const typename L::real v = L::load(x + kh * row.x_row + kw * row.x_column);
      const typename L::integer wins = (v > best) | (v != v);
      best = wins ? v : best;
      if constexpr (Index) winner = wins ? typename L::integer{} + position : winner;
    };
    if constexpr (Square) {
      const std::int32_t second = first + static_cast<std::int32_t>(row.kernel_width);
      tap(0, 1, first + 1);
      tap(1, 0, second);
      tap(1, 1, second + 1);
    } else {
      std::int32_t position = first;
      for (std::int64_t kh = 0; kh < row.h.size(); ++kh, position += static_cast<std::int32_t>(row.kernel_width))
        for (std::int64_t kw = kh == 0 ? 1 : 0; kw < row.w.size(); ++kw)
          tap(kh, kw, position + static_cast<std::int32_t>(kw));
    }
    L::store(y, best);
    if constexpr (Index) L::store_index(index + i * row.y_window, winner);
  }
}

/// Sums times `factor`, otherwise as max_windows.
template <int Width>
[[gnu::noinline]] void sum_windows(float* y, const float* x, const window_row& row, float factor) {
  using L = lanes<Width>;
  for (std::int64_t i = 0; i < row.windows; ++i, x += row.x_window, y += row.y_window) {
    typename L::real sum{};
    for (std::int64_t kh = 0; kh < row.h.size(); ++kh)
      for (std::int64_t kw = 0; kw < row.w.size(); ++kw) sum += L::load(x + kh * row.x_row + kw * row.x_column);
    L::store(y, sum * factor);
  }
}

/// How the gradients of a run of windows lie in dx.
struct gradient_row {
  std::int64_t windows, taps;  ///< taps: those of one kernel row inside the image
  std::int64_t dx_column, dx_window, dy_window;
  std::int32_t position;  ///< of the first tap
};

/// `Width` channels of every window's one kernel row: dx = or += dy where the winner is that tap. Of them `channels`
/// count: where gradients are added, the others get + 0.
template <int Width, bool Add>
[[gnu::noinline]] void max_gradients(float* dx, const float* dy, const std::uint8_t* index, const gradient_row& row,
                                     std::int64_t channels) {
  using L = lanes<Width>;
  typename L::integer counts{};
  for (int i = 0; i < Width; ++i) counts[i] = i < channels ? 0 : 256;  // no tap's position
  for (std::int64_t i = 0; i < row.windows; ++i, dx += row.dx_window, dy += row.dy_window, index += row.dy_window) {
    const typename L::real g = L::load(dy), zero{};
    typename L::integer winner = L::load_index(index);
    if constexpr (Add) winner |= counts;
    for (std::int64_t kw = 0; kw < row.taps; ++kw) {
      float* const to = dx + kw * row.dx_column;
      const typename L::real part = winner == row.position + static_cast<std::int32_t>(kw) ? g : zero;
      L::store(to, Add ? L::load(to) + part : part);
    }
  }
}

/// The functions that cover a pixel's channels: one for vectors of kLanes, one for what is left beyond a multiple of
/// kLanes, a vector of 1, 2, 4, 8 or 16 channels, and one for single channels where that vector may not reach behind
/// those that count.
template <class Kind>
struct vector_functions {
  typename Kind::function whole, rest, single;
  std::int64_t rest_width;
};
/// Inlined where a pool is called: of a config that the compiler knows, only what it takes is compiled.
template <class Kind>
GRAVEN_ALWAYS_INLINE vector_functions<Kind> choose_functions(std::int64_t channels) {
  const std::int64_t left = channels % kLanes;
  vector_functions<Kind> f{nullptr, nullptr, nullptr, 0};
  if (channels >= kLanes) f.whole = Kind::template of<kLanes>();
  if (left == 1) {
    f.rest = Kind::template of<1>(), f.rest_width = 1;
  } else if (left == 2) {
    f.rest = Kind::template of<2>(), f.rest_width = 2;
  } else if (left > 2 && left <= 4) {
    f.rest = Kind::template of<4>(), f.rest_width = 4;
  }
  if constexpr (kLanes >= 8) {
    if (left > 4 && left <= 8) f.rest = Kind::template of<8>(), f.rest_width = 8;
  }
  if constexpr (kLanes >= 16) {
    if (left > 8) f.rest = Kind::template of<16>(), f.rest_width = 16;
  }
  if (left != f.rest_width) f.single = Kind::template of<1>();
  return f;
}

/// Calls call(function, width, first channel, channels) for the vectors that cover `channels`. What is left beyond a
/// multiple of kLanes comes first, and of its vector only the first `channels` count; what it spoils behind them is
/// written after it.
template <class Kind, class Call>
GRAVEN_ALWAYS_INLINE void for_each_vector(const vector_functions<Kind>& f, std::int64_t channels, const Call& call) {
  const std::int64_t whole = channels / kLanes * kLanes;
  if (channels > whole) call(f.rest, f.rest_width, whole, channels - whole);
  for (std::int64_t c = 0; c < whole; c += kLanes) call(f.whole, std::int64_t{kLanes}, c, std::int64_t{kLanes});
}

/// NCHW is NHWC of batch * channels images with one channel.
GRAVEN_ALWAYS_INLINE pool2d_config as_channels_last(pool2d_config s) {
  if (!s.channels_last) s.batch *= s.channels, s.channels = 1, s.channels_last = true;
  return s;
}

/// The runs of windows in output row `row` (counted through all images) that have the same taps: f(first window, offset
/// of its first tap in x, run). A window without taps has none in x.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_run(const pool2d_config& s, std::int64_t row, const F& f) {
  const std::int64_t image = row / s.out_height, oh = row % s.out_height;
  window_row run;
  run.h = valid_taps(oh, s.in_height, s.kernel_height, s.stride_height, s.padding_height, s.dilation_height);
  run.x_row = s.dilation_height * s.in_width * s.channels;
  run.x_column = s.dilation_width * s.channels;
  run.x_window = s.stride_width * s.channels;
  run.y_window = s.channels;
  run.kernel_width = s.kernel_width;
  const std::int64_t ih = oh * s.stride_height - s.padding_height + run.h.begin * s.dilation_height;
  const range inside =
      valid_outputs({0, s.kernel_width}, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width);
  for (std::int64_t ow = 0; ow < s.out_width; ow += run.windows) {
    const bool within = ow == inside.begin && inside.size() > 0;
    run.windows = within ? inside.size() : 1;
    run.w = within ? range{0, s.kernel_width}
                   : valid_taps(ow, s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width);
    const std::int64_t iw = ow * s.stride_width - s.padding_width + run.w.begin * s.dilation_width;
    f(ow, ((image * s.in_height + ih) * s.in_width + iw) * s.channels, run);
  }
}

/// Windows at the end of a run whose last vector, `spare` channels longer than the pixel, would reach beyond `room`
/// elements behind the run's first.
GRAVEN_ALWAYS_INLINE std::int64_t windows_within(std::int64_t windows, std::int64_t step, std::int64_t width,
                                                 std::int64_t room) {
  return larger(0, smaller(windows, divide_down(room - width, step) + 1));
}

/// What the average of a window divides by.
GRAVEN_ALWAYS_INLINE std::int64_t divisor(const pool2d_config& s, std::int64_t oh, std::int64_t ow,
                                          const window_row& run) {
  if (!s.count_include_pad) return run.h.size() * run.w.size();
  const std::int64_t h = oh * s.stride_height - s.padding_height, w = ow * s.stride_width - s.padding_width;
  return (smaller(h + s.kernel_height, s.in_height + s.padding_height) - h) *
         (smaller(w + s.kernel_width, s.in_width + s.padding_width) - w);
}

/// Rows of the output in pieces of some 4096 results.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_row(Threads& threads, const pool2d_config& s, const F& f) {
  const std::int64_t rows = s.batch * s.out_height, row_size = larger(1, s.out_width * s.channels);
  const std::int64_t pieces = divide_up(rows, larger(1, 4096 / row_size));
  threads.run(pieces, [&](std::int64_t piece) {
    const range part = part_of(rows, piece, pieces);
    for (std::int64_t row = part.begin; row < part.end; ++row) f(row);
  });
}

/// The windows of a run whose vectors of `width`, of which `channels` count, neither reach beyond the row of y
/// (`y_room` from y) nor beyond the end of x (`x_room` from x).
GRAVEN_ALWAYS_INLINE window_row safe_windows(const window_row& run, std::int64_t width, std::int64_t channels,
                                             std::int64_t y_room, std::int64_t x_room) {
  window_row safe = run;
  if (channels == width) return safe;
  const std::int64_t last_tap = (run.h.size() - 1) * run.x_row + (run.w.size() - 1) * run.x_column;
  safe.windows = smaller(windows_within(run.windows, run.y_window, width, y_room),
                         windows_within(run.windows, run.x_window, width, x_room - last_tap));
  return safe;
}

template <bool Index, bool Square>
struct max_functions {
  using function = void (*)(float* y, std::uint8_t* index, const float* x, const window_row& row);
  template <int Width>
  static constexpr function of() {
    return &max_windows<Width, Index, Square>;
  }
};
struct sum_functions {
  using function = void (*)(float* y, const float* x, const window_row& row, float factor);
  template <int Width>
  static constexpr function of() {
    return &sum_windows<Width>;
  }
};
template <bool Add>
struct gradient_functions {
  using function = void (*)(float* dx, const float* dy, const std::uint8_t* index, const gradient_row& row,
                            std::int64_t channels);
  template <int Width>
  static constexpr function of() {
    return &max_gradients<Width, Add>;
  }
};

template <bool Index, bool Square>
[[gnu::noinline]] void max_forward(Threads& threads, const pool2d_config& s,
                                   const vector_functions<max_functions<Index, Square>>& functions, float* y,
                                   std::uint8_t* index, const float* x) {
  const std::int64_t x_size = s.batch * s.in_height * s.in_width * s.channels, row_size = s.out_width * s.channels;
  for_each_row(threads, s, [&](std::int64_t row) {
    for_each_run(s, row, [&](std::int64_t ow, std::int64_t from, const window_row& run) {
      if (run.h.size() == 0 || run.w.size() == 0) {
        for (std::int64_t at = row * row_size + ow * s.channels; at < row * row_size + (ow + run.windows) * s.channels;
             ++at) {
          y[at] = -__builtin_inff();
          if constexpr (Index) index[at] = 0;
        }
        return;
      }
      for_each_vector(
          functions, s.channels, [&](const auto& vector, std::int64_t width, std::int64_t c, std::int64_t n) {
            const std::int64_t at = row * row_size + ow * s.channels + c;
            const window_row safe = safe_windows(run, width, n, (row + 1) * row_size - at, x_size - from - c);
            vector(y + at, Index ? index + at : nullptr, x + from + c, safe);
            window_row one = run;
            one.windows = 1;
            for (std::int64_t i = safe.windows; i < run.windows; ++i)
              for (std::int64_t j = 0; j < n; ++j) {
                const std::int64_t to = at + i * run.y_window + j;
                functions.single(y + to, Index ? index + to : nullptr, x + from + c + i * run.x_window + j, one);
              }
          });
    });
  });
}

/// Every window is two by two taps, all inside the image.
GRAVEN_ALWAYS_INLINE bool has_square_windows(const pool2d_config& s) {
  return s.kernel_height == 2 && s.kernel_width == 2 && s.padding_height == 0 && s.padding_width == 0 &&
         (s.out_height - 1) * s.stride_height + s.dilation_height < s.in_height &&
         (s.out_width - 1) * s.stride_width + s.dilation_width < s.in_width;
}

template <bool Index>
GRAVEN_ALWAYS_INLINE void choose_max_forward(Threads& threads, const pool2d_config& s, float* y, std::uint8_t* index,
                                             const float* x) {
  if (has_square_windows(s))
    max_forward<Index, true>(threads, s, choose_functions<max_functions<Index, true>>(s.channels), y, index, x);
  else
    max_forward<Index, false>(threads, s, choose_functions<max_functions<Index, false>>(s.channels), y, index, x);
}

/// Windows that neither overlap nor leave gaps.
GRAVEN_ALWAYS_INLINE bool is_tiled(const pool2d_config& s) {
  return s.kernel_height == s.stride_height && s.kernel_width == s.stride_width && s.padding_height == 0 &&
         s.padding_width == 0 && s.dilation_height == 1 && s.dilation_width == 1 &&
         s.out_height * s.stride_height == s.in_height && s.out_width * s.stride_width == s.in_width;
}

/// Tiled windows write every dx once; others add to zeros.
template <bool Add>
[[gnu::noinline]] void max_backward(Threads& threads, const pool2d_config& s,
                                    const vector_functions<gradient_functions<Add>>& functions, float* dx,
                                    const float* dy, const std::uint8_t* index) {
  const std::int64_t image_size = s.in_height * s.in_width * s.channels, line = s.in_width * s.channels,
                     row_size = s.out_width * s.channels;
  const std::int64_t y_size = s.batch * s.out_height * row_size;
  threads.run(s.batch, [&](std::int64_t image) {
    if constexpr (Add)
      __builtin_memset(dx + image * image_size, 0, static_cast<std::size_t>(image_size) * sizeof(float));
    for (std::int64_t row = image * s.out_height; row < (image + 1) * s.out_height; ++row)
      for_each_run(s, row, [&](std::int64_t ow, std::int64_t first, const window_row& run) {
        if (run.h.size() == 0 || run.w.size() == 0) return;
        const std::int64_t at = row * row_size + ow * s.channels;
        for (std::int64_t kh = run.h.begin; kh < run.h.end; ++kh) {
          const std::int64_t to = first + (kh - run.h.begin) * run.x_row, dx_room = line - to % line;
          const gradient_row g{run.windows,  run.w.size(),
                               run.x_column, run.x_window,
                               run.y_window, static_cast<std::int32_t>(kh * s.kernel_width + run.w.begin)};
          for_each_vector(
              functions, s.channels, [&](const auto& vector, std::int64_t width, std::int64_t c, std::int64_t n) {
                gradient_row safe = g;
                if (n != width)
                  safe.windows =
                      smaller(windows_within(g.windows, g.dx_window, width, dx_room - c - (g.taps - 1) * g.dx_column),
                              windows_within(g.windows, g.dy_window, width, y_size - at - c));
                vector(dx + to + c, dy + at + c, index + at + c, safe, n);
                gradient_row one = g;
                one.windows = 1;
                for (std::int64_t i = safe.windows; i < g.windows; ++i)
                  for (std::int64_t j = c; j < c + n; ++j) {
                    const std::int64_t from = at + i * g.dy_window + j;
                    functions.single(dx + to + i * g.dx_window + j, dy + from, index + from, one, 1);
                  }
              });
        }
      });
  });
}

[[gnu::noinline]] inline void average_forward(Threads& threads, const pool2d_config& s,
                                              const vector_functions<sum_functions>& functions, float* y,
                                              const float* x) {
  const std::int64_t x_size = s.batch * s.in_height * s.in_width * s.channels, row_size = s.out_width * s.channels;
  for_each_row(threads, s, [&](std::int64_t row) {
    for_each_run(s, row, [&](std::int64_t ow, std::int64_t from, const window_row& run) {
      // All windows of a run have all columns of the kernel inside the image, so they divide alike.
      const float factor = 1.0f / static_cast<float>(divisor(s, row % s.out_height, ow, run));
      if (run.h.size() == 0 || run.w.size() == 0) {
        for (std::int64_t i = 0; i < run.windows * s.channels; ++i)
          y[row * row_size + ow * s.channels + i] = 0.0f * factor;
        return;
      }
      for_each_vector(
          functions, s.channels, [&](const auto& vector, std::int64_t width, std::int64_t c, std::int64_t n) {
            const std::int64_t at = row * row_size + ow * s.channels + c;
            const window_row safe = safe_windows(run, width, n, (row + 1) * row_size - at, x_size - from - c);
            vector(y + at, x + from + c, safe, factor);
            window_row one = run;
            one.windows = 1;
            for (std::int64_t i = safe.windows; i < run.windows; ++i)
              for (std::int64_t j = 0; j < n; ++j)
                functions.single(y + at + i * run.y_window + j, x + from + c + i * run.x_window + j, one, factor);
          });
    });
  });
}

}  // namespace pool2d_detail

/// y [batch,out_height,out_width,channels]; index of the same shape, or nullptr.
GRAVEN_ALWAYS_INLINE void max_pool2d(Threads& threads, const pool2d_config& config, float* y, std::uint8_t* index,
                                     const float* x) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  if (index != nullptr)
    pool2d_detail::choose_max_forward<true>(threads, s, y, index, x);
  else
    pool2d_detail::choose_max_forward<false>(threads, s, y, index, x);
}

/// dx [batch,in_height,in_width,channels]: each dy goes to the winner that `index` names.
GRAVEN_ALWAYS_INLINE void max_pool2d_backward(Threads& threads, const pool2d_config& config, float* dx, const float* dy,
                                              const std::uint8_t* index) {
  using namespace pool2d_detail;
  const pool2d_config s = as_channels_last(config);
  if (is_tiled(s))
    max_backward<false>(threads, s, choose_functions<gradient_functions<false>>(s.channels), dx, dy, index);
  else
    max_backward<true>(threads, s, choose_functions<gradient_functions<true>>(s.channels), dx, dy, index);
}

GRAVEN_ALWAYS_INLINE void avg_pool2d(Threads& threads, const pool2d_config& config, float* y, const float* x) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  pool2d_detail::average_forward(threads, s, pool2d_detail::choose_functions<pool2d_detail::sum_functions>(s.channels),
                                 y, x);
}

/// dx: each dy / divisor is added to the inputs of its window.
inline void avg_pool2d_backward(Threads& threads, const pool2d_config& config, float* dx, const float* dy) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  const std::int64_t image_size = s.in_height * s.in_width * s.channels;
  threads.run(s.batch, [&](std::int64_t image) {
    using namespace pool2d_detail;
    for (std::int64_t i = image * image_size; i < (image + 1) * image_size; ++i) dx[i] = 0;
    for (std::int64_t row = image * s.out_height; row < (image + 1) * s.out_height; ++row)
      for_each_run(s, row, [&](std::int64_t ow, std::int64_t first, const window_row& run) {
        const float factor = 1.0f / static_cast<float>(divisor(s, row % s.out_height, ow, run));
        for (std::int64_t i = 0; i < run.windows; ++i) {
          const float* const from = dy + (row * s.out_width + ow + i) * s.channels;
          for (std::int64_t kh = 0; kh < run.h.size(); ++kh)
            for (std::int64_t kw = 0; kw < run.w.size(); ++kw) {
              float* const to = dx + first + i * run.x_window + kh * run.x_row + kw * run.x_column;
              GRAVEN_INDEPENDENT
              for (std::int64_t c = 0; c < s.channels; ++c) to[c] += from[c] * factor;
            }
        }
      });
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
