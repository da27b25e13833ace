#include "ir/json_document.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "ir/diagnostic.h"

namespace graven::ir::json {

std::string_view describe(Kind kind) {
  constexpr std::string_view kNames[] = {"null",     "a boolean", "an integer", "a number",
                                         "a string", "an array",  "an object"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string Item::quote() const {
  switch (kind()) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return boolean() ? "true" : "false";
    case Kind::integer:
      return std::to_string(integer());
    case Kind::number:
      return nlohmann::json(number()).dump();
    case Kind::text: {
      std::string_view all = text();
      const bool cut = all.size() > 60;
      return "the string " +
             nlohmann::json(std::string(all.substr(0, 60)))
                 .dump(-1, ' ', true, nlohmann::json::error_handler_t::ignore) +
             (cut ? "... of " + std::to_string(all.size()) + " bytes" : "");
    }
    case Kind::array:
      return "an array of " + std::to_string(size());
    case Kind::object:
      return "an object of " + std::to_string(size()) + " keys";
  }
  return {};
}

/// Receives the parser's events.
struct Builder {
  Document& document;
  std::size_t maximum_nesting;
  std::vector<std::uint32_t> open = {};
  bool failed = false, too_deep = false;
  std::size_t error_position = 0;
  std::string error_text = {};

  using number_integer_t = std::int64_t;
  using number_unsigned_t = std::uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  bool push(Token token) {
    if (!open.empty()) ++document.tokens_[open.back()].offset;
    document.tokens_.push_back(token);
    return true;
  }
  bool push_text(const std::string& text) {
    Token token{Kind::text, static_cast<std::uint32_t>(text.size()), {}};
    token.offset = document.characters_.size();
    document.characters_ += text;
    document.tokens_.push_back(token);
    return true;
  }
  bool push_number(Kind kind, std::int64_t value) {
    Token token{kind, 0, {}};
    token.integer = value;
    return push(token);
  }
  bool push_float(double value) {
    Token token{Kind::number, 0, {}};
    token.number = value;
    return push(token);
  }

  bool null() { return push_number(Kind::null, 0); }
  bool boolean(bool value) { return push_number(Kind::boolean, value); }
  bool number_integer(std::int64_t value) { return push_number(Kind::integer, value); }
  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return push_float(static_cast<double>(value));
    return push_number(Kind::integer, static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string&) { return push_float(value); }
  bool string(std::string& value) {
    if (!open.empty()) ++document.tokens_[open.back()].offset;
    return push_text(value);
  }
  bool binary(binary_t&) { return false; }
  bool key(std::string& value) { return push_text(value); }
  bool start(Kind kind) {
    if (open.size() == maximum_nesting) {
      too_deep = true;
      return false;
    }
    Token token{kind, 0, {}};
    token.offset = 0;
    push(token);
    open.push_back(static_cast<std::uint32_t>(document.tokens_.size() - 1));
    return true;
  }
  bool finish() {
    const std::uint32_t begin = open.back();
    document.tokens_[begin].extent = static_cast<std::uint32_t>(document.tokens_.size()) - begin;
    open.pop_back();
    return true;
  }
  bool start_object(std::size_t) { return start(Kind::object); }
  bool end_object() { return finish(); }
  bool start_array(std::size_t) { return start(Kind::array); }
  bool end_array() { return finish(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) {
    failed = true;
    error_position = position;
    error_text = e.what();
    return false;
  }
};

Document::Document(std::string_view text, const std::string& file, std::size_t maximum_nesting) {
  if (text.size() >= std::numeric_limits<std::uint32_t>::max())
    throw UserError(file + ": expected less than 4 GiB of JSON, found " + std::to_string(text.size()) + " bytes");
  if (text.empty()) throw UserError(file + ": line 1, column 1: not valid JSON: the text is empty");
  Builder builder{*this, maximum_nesting};
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (builder.too_deep)
    throw UserError(file + ": expected JSON nested at most " + std::to_string(maximum_nesting) +
                    " deep, found deeper nesting");
  if (!builder.failed) {
    // To the parser a NUL is the end of the text.
    const std::size_t nul = text.find('\0');
    if (nul == std::string_view::npos) return;
    builder.error_position = nul + 1;
    builder.error_text = "a NUL byte";
  }
  // nlohmann's text: "[json.exception...] parse error at line 1, column 3: syntax error while parsing ...; last read:
  // '...'"
  const std::size_t at = std::min(builder.error_position == 0 ? 0 : builder.error_position - 1, text.size());
  const std::size_t line =
      1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  const std::size_t line_begin = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const std::size_t column = at - (line_begin == std::string_view::npos ? 0 : line_begin + 1) + 1;
  std::string detail = builder.error_text;
  if (const std::size_t column_at = detail.find("column"); column_at != std::string::npos)
    if (const std::size_t cut = detail.find(": ", column_at); cut != std::string::npos) detail = detail.substr(cut + 2);
  if (detail.size() > 200) detail = detail.substr(0, 200) + "...";
  std::string clean;  // of the offending bytes: a terminal must survive them
  for (char c : detail) clean += c >= 0x20 && c < 0x7f ? c : '?';
  throw UserError(file + ": line " + std::to_string(line) + ", column " + std::to_string(column) +
                  ": not valid JSON: " + clean);
}

}  // namespace graven::ir::json
