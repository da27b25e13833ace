#include "tests/patterns.h"

#include <map>
#include <regex>

namespace graven::tests {
namespace {

const std::regex& compiled(const std::string& pattern) {
  static std::map<std::string, std::regex> known;
  const auto found = known.find(pattern);
  if (found != known.end()) return found->second;
  return known.emplace(pattern, std::regex(pattern, std::regex::ECMAScript | std::regex::multiline)).first->second;
}

}  // namespace

std::vector<Match> matches(const std::string& text, const std::string& pattern) {
  std::vector<Match> found;
  for (std::sregex_iterator it(text.begin(), text.end(), compiled(pattern)), end; it != end; ++it) {
    Match& match = found.emplace_back();
    match.position = static_cast<std::size_t>(it->position());
    for (const auto& group : *it) match.groups.push_back(group);
  }
  return found;
}

std::string replaced(const std::string& text, const std::string& pattern, const std::string& with) {
  return std::regex_replace(text, compiled(pattern), with);
}

}  // namespace graven::tests
