// How the layers of this folder check their arguments and print them as PyTorch's repr does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

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

}  // namespace graven::nn::arguments
