// Sizes of windows and paddings, as functions and layers take them.
//
//   conv2d(x, weight, bias, {.stride = 2, .padding = {1, 2}});
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "graven/tensor.h"

namespace graven {

/// A number for both dimensions, or {height, width}.
struct Size2 {
  std::int64_t height, width;
  constexpr Size2(std::int64_t both) : height(both), width(both) {}  // NOLINT: Conv2d(1, 6, 5)
  constexpr Size2(int both) : height(both), width(both) {}           // NOLINT
  constexpr Size2(std::int64_t height, std::int64_t width) : height(height), width(width) {}
  friend constexpr bool operator==(const Size2&, const Size2&) = default;
};

/// A number for all three dimensions, or {depth, height, width}.
struct Size3 {
  std::int64_t depth, height, width;
  constexpr Size3(std::int64_t all) : depth(all), height(all), width(all) {}  // NOLINT
  constexpr Size3(int all) : depth(all), height(all), width(all) {}           // NOLINT
  constexpr Size3(std::int64_t depth, std::int64_t height, std::int64_t width)
      : depth(depth), height(height), width(width) {}
  friend constexpr bool operator==(const Size3&, const Size3&) = default;
};

/// Padding of a convolution: a number for each dimension, "valid" (none) or "same" (the result has the input's size;
/// for a stride of 1).
template <class Size>
struct ConvolutionPadding {
  Size value = 0;
  bool same = false;
  ConvolutionPadding(Size size) : value(size) {}  // NOLINT: {.padding = 1}
  ConvolutionPadding(int all) : value(all) {}     // NOLINT
  ConvolutionPadding(std::int64_t all)            // NOLINT
    requires(!std::is_same_v<Size, std::int64_t>)
      : value(all) {}
  template <class... Each>
    requires(sizeof...(Each) > 1)
  ConvolutionPadding(Each... each) : value(each...) {}           // NOLINT: {.padding = {1, 2}}
  ConvolutionPadding(const char* name) : same(is_same(name)) {}  // NOLINT: {.padding = "same"}

 private:
  static bool is_same(std::string_view name) {
    if (name != "same" && name != "valid")
      throw UserError("padding must be numbers, 'same' or 'valid', got '" + std::string(name) + "'");
    return name == "same";
  }
};
using Padding1 = ConvolutionPadding<std::int64_t>;
using Padding2 = ConvolutionPadding<Size2>;
using Padding3 = ConvolutionPadding<Size3>;

}  // namespace graven
