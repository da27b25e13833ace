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

/// User error where a window is not one.
inline void require_window(const char* layer, Size2 kernel, Size2 stride, Size2 padding, Size2 dilation) {
  const auto check = [layer](Size2 s, const char* what, std::int64_t least) {
    if (s.height < least || s.width < least)
      throw UserError(std::string(layer) + ": " + what + " must be at least " + std::to_string(least) + ", got " +
                      pair(s));
  };
  check(kernel, "kernel_size", 1);
  check(stride, "stride", 1);
  check(padding, "padding", 0);
  check(dilation, "dilation", 1);
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
