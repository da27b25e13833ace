#include "codegen/emit/code.h"

#include <algorithm>
#include <iterator>

#include "ir/diagnostic.h"

namespace graven::codegen {

std::string Pointer::text() const {
  std::string text = object;
  if (!block.empty()) text.append(".").append(block);
  return text.append(".").append(name);
}

std::string ConfigName::text() const {
  std::string text = is_evaluation ? "config::evaluation::" : "config::";
  if (!block.empty()) text.append(block).append("::");
  return text.append(name);
}

Code& Code::operator+=(Code other) {
  pieces_.insert(pieces_.end(), std::make_move_iterator(other.pieces_.begin()),
                 std::make_move_iterator(other.pieces_.end()));
  return *this;
}

std::string Code::text() const {
  std::string text;
  for (const Piece& piece : pieces_)
    if (const std::string* plain = std::get_if<std::string>(&piece))
      text += *plain;
    else if (const Pointer* pointer = std::get_if<Pointer>(&piece))
      text += pointer->text();
    else
      text += std::get<ConfigName>(piece).text();
  return text;
}

Code join(const std::vector<Code>& parts) {
  Code code;
  for (const Code& part : parts) {
    if (&part != &parts.front()) code += ", ";
    code += part;
  }
  return code;
}

Code filled_in(std::string_view pattern, std::initializer_list<std::pair<std::string_view, Code>> values) {
  Code code;
  while (!pattern.empty()) {
    const std::size_t open = std::min(pattern.find('{'), pattern.size());
    if (open > 0) code += pattern.substr(0, open);
    if (open == pattern.size()) break;
    const std::size_t close = pattern.find('}', open);
    GRAVEN_CHECK(close != std::string_view::npos, "an open brace in " + std::string(pattern));
    const std::string_view name = pattern.substr(open + 1, close - open - 1);
    const auto* const value =
        std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == name; });
    GRAVEN_CHECK(value != values.end(), "nothing is called " + std::string(name));
    code += value->second;
    pattern.remove_prefix(close + 1);
  }
  return code;
}

}  // namespace graven::codegen
