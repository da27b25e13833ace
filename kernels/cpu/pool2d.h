// pool2d: max and average pooling of x [batch,in_height,in_width,channels] (NCHW where config.channels_last is false) into
// y [batch,out_height,out_width,channels], and their gradients, f32. Formulas: config/pool2d.h.
//
//   inline constexpr pool2d_config pool{.batch = 64, .channels = 6, .in_height = 28, ...};
//   max_pool2d(threads, pool, y, index, x);             // index: the winner's kh * kernel_width + kw, u8, y's shape; nullptr where nobody needs it
//   max_pool2d_backward(threads, pool, dx, dy, index);
//   avg_pool2d(threads, pool, y, x);
//   avg_pool2d_backward(threads, pool, dx, dy);
//
// Maximum: the first of equals wins, NaN wins over everything. Vectors run over the channels. A pixel's last, incomplete vector reaches into the
// next pixel of the row, which is computed after it and so overwrites what it spoilt; the last pixels of a row are stored exactly.
#pragma once

#include <cstdint>

#include "../config/pool2d.h"
#include "simd.h"
#include "threads.h"
#include "window.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace pool2d_detail {

using namespace window;

/// Vectors of `Width` channels: floats, and their comparisons. Indices are bytes in memory.
template <int Width>
struct lanes {
  typedef float real __attribute__((vector_size(Width * 4)));
  typedef float real_at __attribute__((vector_size(Width * 4), aligned(4), may_alias));
  typedef std::int32_t integer __attribute__((vector_size(Width * 4)));

  GRAVEN_ALWAYS_INLINE static real load(const float* p) { return *reinterpret_cast<const real_at*>(p); }
  GRAVEN_ALWAYS_INLINE static void store(float* p, real v) { *reinterpret_cast<real_at*>(p) = v; }
  GRAVEN_ALWAYS_INLINE static integer load_index(const std::uint8_t* p) {
    std::int32_t wide[Width];
    for (int i = 0; i < Width; ++i) wide[i] = p[i];
    integer v;
    __builtin_memcpy(&v, wide, sizeof(v));
    return v;
  }
  GRAVEN_ALWAYS_INLINE static void store_index(std::uint8_t* p, const integer& v) {
    std::int32_t wide[Width];
    __builtin_memcpy(wide, &v, sizeof(v));
    for (int i = 0; i < Width; ++i) p[i] = static_cast<std::uint8_t>(wide[i]);
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

/// `Width` channels of every window in the run; x points at tap (h.begin, w.begin) of the first. Kernel 2: two by two taps.
template <int Width, int Kernel, bool Index>
GRAVEN_ALWAYS_INLINE void max_windows(float* y, std::uint8_t* index, const float* x, const window_row& row) {
  using L = lanes<Width>;
  const std::int64_t height = Kernel > 0 ? Kernel : row.h.size(), width = Kernel > 0 ? Kernel : row.w.size();
  const std::int32_t first = static_cast<std::int32_t>(row.h.begin * row.kernel_width + row.w.begin);
  for (std::int64_t i = 0; i < row.windows; ++i, x += row.x_window, y += row.y_window) {
    typename L::real best = L::load(x);
    typename L::integer winner = typename L::integer{} + first;
    std::int32_t row_position = first;
    for (std::int64_t kh = 0; kh < height; ++kh, row_position += static_cast<std::int32_t>(row.kernel_width))
      for (std::int64_t kw = 0; kw < width; ++kw) {
        if (kh == 0 && kw == 0) continue;
        const typename L::real v = L::load(x + kh * row.x_row + kw * row.x_column);
        const typename L::integer wins = (v > best) | (v != v);
        best = wins ? v : best;
        if constexpr (Index) winner = wins ? typename L::integer{} + (row_position + static_cast<std::int32_t>(kw)) : winner;
      }
    L::store(y, best);
    if constexpr (Index) L::store_index(index + i * row.y_window, winner);
  }
}

template <int Width, bool Index>
[[gnu::noinline]] void max_windows(float* y, std::uint8_t* index, const float* x, const window_row& row) {
  if (row.h.size() == 2 && row.w.size() == 2)
    max_windows<Width, 2, Index>(y, index, x, row);
  else
    max_windows<Width, 0, Index>(y, index, x, row);
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

/// `Width` channels of every window's one kernel row: dx = or += dy where the winner is that tap. Of them `channels` count: where gradients are
/// added, the others get + 0.
template <int Width, bool Add>
[[gnu::noinline]] void max_gradients(float* dx, const float* dy, const std::uint8_t* index, const gradient_row& row, std::int64_t channels) {
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

/// Calls f.template operator()<Width>(first channel, channels) for the vectors that cover `channels`. What is left beyond a multiple of kLanes comes
/// first: one vector of 1, 2, 4, 8 or 16 channels, of which only the first `channels` count; what it spoils behind them is written after it.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_vector(std::int64_t channels, const F& f) {
  const std::int64_t whole = channels / kLanes * kLanes, left = channels - whole;
  if (left == 1) {
    f.template operator()<1>(whole, left);
  } else if (left == 2) {
    f.template operator()<2>(whole, left);
  } else if (left > 2 && left <= 4) {
    f.template operator()<4>(whole, left);
  } else if (left > 4) {
    if constexpr (kLanes >= 8) {
      if (left <= 8) f.template operator()<8>(whole, left);
    }
    if constexpr (kLanes >= 16) {
      if (left > 8) f.template operator()<16>(whole, left);
    }
  }
  for (std::int64_t c = 0; c < whole; c += kLanes) f.template operator()<kLanes>(c, std::int64_t{kLanes});
}

/// NCHW is NHWC of batch * channels images with one channel.
GRAVEN_ALWAYS_INLINE pool2d_config as_channels_last(pool2d_config s) {
  if (!s.channels_last) s.batch *= s.channels, s.channels = 1, s.channels_last = true;
  return s;
}

/// The runs of windows in output row `row` (counted through all images) that have the same taps: f(first window, offset of its first tap in x, run).
/// A window without taps has none in x.
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
  const range inside = valid_outputs({0, s.kernel_width}, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width);
  for (std::int64_t ow = 0; ow < s.out_width; ow += run.windows) {
    const bool within = ow == inside.begin && inside.size() > 0;
    run.windows = within ? inside.size() : 1;
    run.w = within ? range{0, s.kernel_width} : valid_taps(ow, s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width);
    const std::int64_t iw = ow * s.stride_width - s.padding_width + run.w.begin * s.dilation_width;
    f(ow, ((image * s.in_height + ih) * s.in_width + iw) * s.channels, run);
  }
}

/// Windows at the end of a run whose last vector, `spare` channels longer than the pixel, would reach beyond `room` elements behind the run's first.
GRAVEN_ALWAYS_INLINE std::int64_t windows_within(std::int64_t windows, std::int64_t step, std::int64_t width, std::int64_t room) {
  return larger(0, smaller(windows, divide_down(room - width, step) + 1));
}

/// What the average of a window divides by.
GRAVEN_ALWAYS_INLINE std::int64_t divisor(const pool2d_config& s, std::int64_t oh, std::int64_t ow, const window_row& run) {
  if (!s.count_include_pad) return run.h.size() * run.w.size();
  const std::int64_t h = oh * s.stride_height - s.padding_height, w = ow * s.stride_width - s.padding_width;
  return (smaller(h + s.kernel_height, s.in_height + s.padding_height) - h) * (smaller(w + s.kernel_width, s.in_width + s.padding_width) - w);
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

/// Calls windows.template operator()<Width>(y, x, run) for `Width` channels of the run, and scalar(y, x, run) for single channels of its last
/// windows, where a vector would reach beyond the row of y (`y_room` from y) or beyond the end of x (`x_room` from x).
template <int Width, class Windows, class Scalar>
GRAVEN_ALWAYS_INLINE void run_windows(const window_row& run, std::int64_t channels, std::int64_t y_room, std::int64_t x_room, const Windows& windows,
                                      const Scalar& scalar) {
  const std::int64_t last_tap = (run.h.size() - 1) * run.x_row + (run.w.size() - 1) * run.x_column;
  window_row safe = run;
  safe.windows = channels == Width ? run.windows
                                   : smaller(windows_within(run.windows, run.y_window, Width, y_room),
                                             windows_within(run.windows, run.x_window, Width, x_room - last_tap));
  windows(safe);
  window_row one = run;
  one.windows = 1;
  for (std::int64_t i = safe.windows; i < run.windows; ++i)
    for (std::int64_t c = 0; c < channels; ++c) scalar(i * run.y_window + c, i * run.x_window + c, one);
}

template <bool Index>
void max_forward(Threads& threads, const pool2d_config& s, float* y, std::uint8_t* index, const float* x) {
  const std::int64_t x_size = s.batch * s.in_height * s.in_width * s.channels, row_size = s.out_width * s.channels;
  for_each_row(threads, s, [&](std::int64_t row) {
    for_each_run(s, row, [&](std::int64_t ow, std::int64_t from, const window_row& run) {
      if (run.h.size() == 0 || run.w.size() == 0) {
        for (std::int64_t at = row * row_size + ow * s.channels; at < row * row_size + (ow + run.windows) * s.channels; ++at) {
          y[at] = -__builtin_inff();
          if constexpr (Index) index[at] = 0;
        }
        return;
      }
      for_each_vector(s.channels, [&]<int Width>(std::int64_t c, std::int64_t n) {
        const std::int64_t at = row * row_size + ow * s.channels + c;
        run_windows<Width>(
            run, n, (row + 1) * row_size - at, x_size - from - c,
            [&](const window_row& r) { max_windows<Width, Index>(y + at, Index ? index + at : nullptr, x + from + c, r); },
            [&](std::int64_t to, std::int64_t i, const window_row& r) {
              max_windows<1, Index>(y + at + to, Index ? index + at + to : nullptr, x + from + c + i, r);
            });
      });
    });
  });
}

/// One kernel row of the gradient of a run of windows: dx from `to`, dy and index from `at`.
template <bool Add>
void max_backward_run(const pool2d_config& s, float* dx, const float* dy, const std::uint8_t* index, std::int64_t to, std::int64_t at,
                      std::int64_t dx_room, std::int64_t dy_room, const gradient_row& row) {
  for_each_vector(s.channels, [&]<int Width>(std::int64_t c, std::int64_t n) {
    gradient_row safe = row;
    if (n != Width)
      safe.windows = smaller(windows_within(row.windows, row.dx_window, Width, dx_room - c - (row.taps - 1) * row.dx_column),
                             windows_within(row.windows, row.dy_window, Width, dy_room - c));
    max_gradients<Width, Add>(dx + to + c, dy + at + c, index + at + c, safe, n);
    gradient_row one = row;
    one.windows = 1;
    for (std::int64_t i = safe.windows; i < row.windows; ++i)
      for (std::int64_t j = c; j < c + n; ++j)
        max_gradients<1, Add>(dx + to + i * row.dx_window + j, dy + at + i * row.dy_window + j, index + at + i * row.dy_window + j, one, 1);
  });
}

}  // namespace pool2d_detail

/// y [batch,out_height,out_width,channels]; index of the same shape, or nullptr.
inline void max_pool2d(Threads& threads, const pool2d_config& config, float* y, std::uint8_t* index, const float* x) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  if (index != nullptr)
    pool2d_detail::max_forward<true>(threads, s, y, index, x);
  else
    pool2d_detail::max_forward<false>(threads, s, y, index, x);
}

/// dx [batch,in_height,in_width,channels]: each dy goes to the winner that `index` names.
inline void max_pool2d_backward(Threads& threads, const pool2d_config& config, float* dx, const float* dy, const std::uint8_t* index) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  const std::int64_t image_size = s.in_height * s.in_width * s.channels, line = s.in_width * s.channels, row_size = s.out_width * s.channels;
  const std::int64_t y_size = s.batch * s.out_height * row_size;
  // Windows that neither overlap nor leave gaps write every dx once; others add to zeros.
  const bool tiled = s.kernel_height == s.stride_height && s.kernel_width == s.stride_width && s.padding_height == 0 && s.padding_width == 0 &&
                     s.dilation_height == 1 && s.dilation_width == 1 && s.out_height * s.stride_height == s.in_height &&
                     s.out_width * s.stride_width == s.in_width;
  threads.run(s.batch, [&](std::int64_t image) {
    using namespace pool2d_detail;
    if (!tiled)
      for (std::int64_t i = image * image_size; i < (image + 1) * image_size; ++i) dx[i] = 0;
    for (std::int64_t row = image * s.out_height; row < (image + 1) * s.out_height; ++row)
      for_each_run(s, row, [&](std::int64_t ow, std::int64_t first, const window_row& run) {
        if (run.h.size() == 0 || run.w.size() == 0) return;
        const std::int64_t at = row * row_size + ow * s.channels;
        for (std::int64_t kh = run.h.begin; kh < run.h.end; ++kh) {
          const std::int64_t to = first + (kh - run.h.begin) * run.x_row, dx_room = line - to % line;
          const gradient_row g{run.windows,  run.w.size(), run.x_column,
                               run.x_window, run.y_window, static_cast<std::int32_t>(kh * s.kernel_width + run.w.begin)};
          if (tiled)
            max_backward_run<false>(s, dx, dy, index, to, at, dx_room, y_size - at, g);
          else
            max_backward_run<true>(s, dx, dy, index, to, at, dx_room, y_size - at, g);
        }
      });
  });
}

inline void avg_pool2d(Threads& threads, const pool2d_config& config, float* y, const float* x) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  const std::int64_t x_size = s.batch * s.in_height * s.in_width * s.channels, row_size = s.out_width * s.channels;
  pool2d_detail::for_each_row(threads, s, [&](std::int64_t row) {
    using namespace pool2d_detail;
    for_each_run(s, row, [&](std::int64_t ow, std::int64_t from, const window_row& run) {
      // All windows of a run have all columns of the kernel inside the image, so they divide alike.
      const float factor = 1.0f / static_cast<float>(divisor(s, row % s.out_height, ow, run));
      if (run.h.size() == 0 || run.w.size() == 0) {
        for (std::int64_t i = 0; i < run.windows * s.channels; ++i) y[row * row_size + ow * s.channels + i] = 0.0f * factor;
        return;
      }
      for_each_vector(s.channels, [&]<int Width>(std::int64_t c, std::int64_t n) {
        const std::int64_t at = row * row_size + ow * s.channels + c;
        run_windows<Width>(
            run, n, (row + 1) * row_size - at, x_size - from - c, [&](const window_row& r) { sum_windows<Width>(y + at, x + from + c, r, factor); },
            [&](std::int64_t to, std::int64_t i, const window_row& r) { sum_windows<1>(y + at + to, x + from + c + i, r, factor); });
      });
    });
  });
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
