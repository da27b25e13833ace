// Regular expressions for the tests, in ECMAScript's syntax with ^ and $ at every line's ends. <regex> costs seconds in
// each program that is compiled with it; this costs them once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace graven::tests {

struct Match {
  std::size_t position = 0;
  /// The whole match, then what each pair of parentheses took.
  std::vector<std::string> groups;
};

/// Every match, from left to right.
std::vector<Match> matches(const std::string& text, const std::string& pattern);
/// `text` with `with` in the place of every match.
std::string replaced(const std::string& text, const std::string& pattern, const std::string& with);

}  // namespace graven::tests
