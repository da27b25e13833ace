// What the layers have in common: checked arguments, printed as PyTorch's repr does, and default parameters.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "graven/functional.h"
#include "graven/init.h"

namespace graven::nn::arguments {

/// A number as Python prints it: 0.1, 1e-05, 20.0.
inline std::string number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}
inline const char* python(bool value) { return value ? "True" : "False"; }
/// "(1, 2)", "(1,)"
inline std::string tuple(const std::vector<std::int64_t>& values) {
  std::string text = "(";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + (values.size() == 1 ? ",)" : ")");
}
inline std::string tuple(const std::vector<double>& values) {
  std::string text = "(";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + number(values[i]);
  return text + (values.size() == 1 ? ",)" : ")");
}

/// One number where both are the same.
inline std::string tuple(Size2 s) {
  return s.height == s.width ? std::to_string(s.height) : tuple(std::vector<std::int64_t>{s.height, s.width});
}

/// "(1, 1)", both where they are the same, too.
inline std::string pair(Size2 s) { return fmt::format("({}, {})", s.height, s.width); }

inline void require_positive(std::int64_t value, const char* what, const char* layer) {
  if (value < 1) throw UserError(fmt::format("{}: {} must be positive, got {}", layer, what, value));
}

/// A size by dimension.
inline std::vector<std::int64_t> list(std::int64_t n) { return {n}; }
inline std::vector<std::int64_t> list(Size2 s) { return {s.height, s.width}; }
inline std::vector<std::int64_t> list(Size3 s) { return {s.depth, s.height, s.width}; }

template <class Size>
void require_at_least(std::int64_t least, const char* layer, const char* what, Size size) {
  const std::vector<std::int64_t> values = list(size);
  for (const std::int64_t v : values)
    if (v < least)
      throw UserError(fmt::format("{}: {} must be at least {}, got {}", layer, what, least,
                                  values.size() == 1 ? std::to_string(v) : tuple(values)));
}
/// User error where a window is not one.
template <class Size>
void require_window(const char* layer, Size kernel, Size stride, Size padding, Size dilation) {
  require_at_least(1, layer, "kernel_size", kernel);
  require_at_least(1, layer, "stride", stride);
  require_at_least(0, layer, "padding", padding);
  require_at_least(1, layer, "dilation", dilation);
}

/// PyTorch's default for linear and convolution layers: kaiming_uniform_(a = sqrt(5)), which is +-1/sqrt(fan_in); the
/// bias in the same bounds.
inline Tensor default_weight(const Shape& shape, DType dtype) {
  return init::kaiming_uniform_(zeros(shape, dtype), {.a = std::sqrt(5.0)});
}
inline Tensor default_bias(std::int64_t n, const Tensor& weight) {
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight).first));
  return init::uniform_(zeros({n}, weight.dtype()), -bound, bound);
}

}  // namespace graven::nn::arguments
