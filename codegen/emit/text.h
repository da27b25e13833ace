// Pieces of code put together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace graven::codegen {

inline std::string join(const std::vector<std::string>& items, std::string_view separator = ", ") {
  return fmt::format("{}", fmt::join(items, separator));
}

}  // namespace graven::codegen
