// Config of resample: one dimension of [outer, in, inner] becomes [outer, out, inner]. Images are resampled one
// dimension after the other.
//
//   resample_config{.outer = 6, .in = 4, .out = 8, .inner = 5, .mode = kResampleLinear, .align_corners = false,
//                   .scale = 0.5}
#pragma once

#include <cstdint>

namespace graven::kernels {

inline constexpr std::int64_t kResampleNearest = 0;       ///< x[floor(j scale)]
inline constexpr std::int64_t kResampleNearestExact = 1;  ///< x[floor((j + 1/2) scale)]
inline constexpr std::int64_t kResampleLinear = 2;        ///< between the two neighbours
inline constexpr std::int64_t kResampleCubic = 3;         ///< between the four neighbours: Keys' kernel with a = -3/4
inline constexpr std::int64_t kResampleArea = 4;  ///< the mean of x[floor(j in / out) .. ceil((j + 1) in / out))

struct resample_config {
  std::int64_t outer = 1;  ///< product of the dimensions before
  std::int64_t in;         ///< size of x along the dimension
  std::int64_t out;        ///< size of y along the dimension
  std::int64_t inner = 1;  ///< product of the dimensions behind
  std::int64_t mode;       ///< kResample...
  /// The first and last elements of x and y lie at the same places, else the outer borders of them.
  bool align_corners = false;
  double scale;  ///< elements of x for each of y; of no account with align_corners and kResampleArea
};

/// What y[j] is made of: `count` elements of x from `first` on (beyond the ends of x: the element at the end), with
/// their weights. kResampleArea: each has the weight weights[0].
struct resample_taps {
  std::int64_t first;
  std::int64_t count;
  double weights[4];
};

/// Positions are computed in float where they decide between elements, as PyTorch does for float tensors; weights in
/// double.
[[gnu::always_inline]] constexpr resample_taps resample_taps_of(const resample_config& c, std::int64_t j) {
  const auto floor = [](double v) {
    const std::int64_t i = static_cast<std::int64_t>(v);
    return static_cast<double>(i) > v ? i - 1 : i;
  };
  if (c.mode == kResampleNearest || c.mode == kResampleNearestExact) {
    const float at = (static_cast<float>(j) + (c.mode == kResampleNearest ? 0.0f : 0.5f)) * static_cast<float>(c.scale);
    const std::int64_t i = static_cast<std::int64_t>(at);
    return {i < c.in - 1 ? i : c.in - 1, 1, {1, 0, 0, 0}};
  }
  if (c.mode == kResampleArea) {
    const std::int64_t first = j * c.in / c.out, end = ((j + 1) * c.in + c.out - 1) / c.out;
    return {first, end - first, {1.0 / static_cast<double>(end - first), 0, 0, 0}};
  }
  double at = 0;
  if (c.align_corners)
    at = c.out > 1 ? static_cast<double>(j) * static_cast<double>(c.in - 1) / static_cast<double>(c.out - 1) : 0.0;
  else
    at = (static_cast<double>(j) + 0.5) * c.scale - 0.5;
  if (c.mode == kResampleLinear) {
    if (at < 0) at = 0;
    std::int64_t first = floor(at);
    if (first > c.in - 1) first = c.in - 1;
    double t = at - static_cast<double>(first);
    if (t > 1) t = 1;
    return {first, 2, {1 - t, t, 0, 0}};
  }
  const std::int64_t first = floor(at);
  const double t = at - static_cast<double>(first), a = -0.75;
  const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {first - 1, 4, {far(t + 1), near(t), near(1 - t), far(2 - t)}};
}

}  // namespace graven::kernels
