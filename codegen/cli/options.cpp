#include <charconv>
#include <string>

#include "codegen/cli/command.h"

namespace graven::cli {

// The parser's own check says it in other words in each of its versions.
CLI::Validator whole_number(std::int64_t first, std::int64_t last) {
  const std::string range = "from " + std::to_string(first) + " to " + std::to_string(last);
  return CLI::Validator(
      [=](std::string& text) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = error == std::errc() && end == text.data() + text.size() && value >= first && value <= last;
        return good ? std::string() : "expected a whole number " + range + ", found " + text.substr(0, 100);
      },
      range);
}

}  // namespace graven::cli
