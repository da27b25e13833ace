#include "json_reader.h"

#include <algorithm>
#include <charconv>

#include "error.h"

namespace graven::runtime {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Bytes of the well-formed UTF-8 sequence at the start of `s` (RFC 3629), 0 when there is none.
std::size_t utf8_length(std::string_view s) {
  const auto at = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0U; };
  const auto tail = [&](std::size_t i) { return (at(i) & 0xC0U) == 0x80U; };
  const unsigned first = at(0), second = at(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!tail(1) || !tail(2) || (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3) || (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
      return 0;
    return 4;
  }
  return 0;
}

void append_utf8(std::string& out, unsigned code) {
  const auto put = [&](unsigned byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

/// Four hexadecimal digits at `at`, or -1.
int hex4(std::string_view text, std::size_t at) {
  if (at + 4 > text.size()) return -1;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, value, 16);
  return error == std::errc() && end == text.data() + at + 4 ? static_cast<int>(value) : -1;
}

}  // namespace

void JsonReader::fail(const std::string& expected, std::string found) const {
  const auto lines = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(position_), '\n');
  if (found.empty()) found = position_ == text_.size() ? "the end" : printable(text_.substr(position_, 16));
  throw Error(file_, std::string("byte ") + std::to_string(position_) + " (line " + std::to_string(lines) + ")",
              expected, found);
}

void JsonReader::white_space() {
  while (position_ < text_.size() &&
         (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\r' || text_[position_] == '\t'))
    ++position_;
}

void JsonReader::take(char c, const char* expected) {
  white_space();
  if (position_ == text_.size() || text_[position_] != c) fail(expected);
  ++position_;
}

JsonReader::Kind JsonReader::peek() {
  white_space();
  if (position_ == text_.size()) fail("a value");
  switch (text_[position_]) {
    case '{':
      return Kind::object;
    case '[':
      return Kind::array;
    case '"':
      return Kind::string;
    case 't':
    case 'f':
      return Kind::boolean;
    case 'n':
      return Kind::null;
    default:
      if (text_[position_] != '-' && !is_digit(text_[position_])) fail("a value");
      return Kind::number;
  }
}

void JsonReader::begin_object() {
  take('{', "an object");
  fresh_ = true;
}

bool JsonReader::next_key(std::string& key) {
  white_space();
  const bool first = std::exchange(fresh_, false);
  if (position_ < text_.size() && text_[position_] == '}') {
    ++position_;
    return false;
  }
  if (!first) take(',', "a comma or a closing brace");
  key = string();
  take(':', "a colon");
  return true;
}

void JsonReader::begin_array() {
  take('[', "an array");
  fresh_ = true;
}

bool JsonReader::next_item() {
  white_space();
  const bool first = std::exchange(fresh_, false);
  if (position_ < text_.size() && text_[position_] == ']') {
    ++position_;
    return false;
  }
  if (!first) {
    take(',', "a comma or a closing bracket");
    white_space();
    if (position_ < text_.size() && text_[position_] == ']') fail("a value");
  }
  return true;
}

std::string JsonReader::string() {
  std::string out;
  string_into(&out);
  return out;
}

void JsonReader::string_into(std::string* out) {
  take('"', "a string");
  for (;;) {
    if (position_ == text_.size()) fail("a closing quote");
    const char c = text_[position_];
    if (c == '"') {
      ++position_;
      return;
    }
    if (static_cast<unsigned char>(c) < 0x20) fail("an escaped control character");
    if (c != '\\') {
      const std::size_t length = utf8_length(text_.substr(position_, 4));
      if (length == 0) fail("UTF-8");
      if (out != nullptr) out->append(text_.substr(position_, length));
      position_ += length;
      continue;
    }
    const char escaped = position_ + 1 < text_.size() ? text_[position_ + 1] : '\0';
    if (escaped == 'u') {
      int code = hex4(text_, position_ + 2);
      if (code < 0) fail("\\u and four hexadecimal digits");
      std::size_t length = 6;
      if (code >= 0xD800 && code < 0xE000) {
        const int low = text_.substr(position_ + 6, 2) == "\\u" ? hex4(text_, position_ + 8) : -1;
        if (code >= 0xDC00 || low < 0xDC00 || low >= 0xE000) fail("a pair of surrogates");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        length = 12;
      }
      if (out != nullptr) append_utf8(*out, static_cast<unsigned>(code));
      position_ += length;
      continue;
    }
    static constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t which = kEscapes.find(escaped);
    if (escaped == '\0' || which == std::string_view::npos) fail("an escape sequence");
    if (out != nullptr) *out += kMeanings[which];
    position_ += 2;
  }
}

std::string_view JsonReader::number_text(const char* expected) {
  white_space();
  std::size_t p = position_;
  const auto at = [&] { return p < text_.size() ? text_[p] : '\0'; };
  const auto digits = [&] {
    if (!is_digit(at())) fail(expected);
    while (is_digit(at())) ++p;
  };
  if (at() == '-') ++p;
  if (at() == '0') {
    ++p;
    if (is_digit(at())) fail("a number without leading zeros");
  } else {
    digits();
  }
  if (at() == '.') {
    ++p;
    digits();
  }
  if (at() == 'e' || at() == 'E') {
    ++p;
    if (at() == '+' || at() == '-') ++p;
    digits();
  }
  return text_.substr(position_, p - position_);
}

std::int64_t JsonReader::integer() {
  const std::string_view s = number_text("an integer");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size()) fail("an integer of 64 bits", std::string(s.substr(0, 40)));
  position_ += s.size();
  return value;
}

std::uint64_t JsonReader::unsigned_integer() {
  const std::string_view s = number_text("an integer");
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size())
    fail("an integer from 0 up, of 64 bits", std::string(s.substr(0, 40)));
  position_ += s.size();
  return value;
}

double JsonReader::number() {
  const std::string_view s = number_text("a number");
  double value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size())
    fail("a number that a double holds", std::string(s.substr(0, 40)));
  position_ += s.size();
  return value;
}

bool JsonReader::boolean() {
  white_space();
  for (const std::string_view word : {std::string_view("true"), std::string_view("false")}) {
    if (text_.substr(position_, word.size()) == word) {
      position_ += word.size();
      return word == "true";
    }
  }
  fail("true or false");
}

void JsonReader::null() {
  white_space();
  if (text_.substr(position_, 4) != "null") fail("null");
  position_ += 4;
}

void JsonReader::skip() { skip_value(0); }

void JsonReader::skip_value(int depth) {
  if (depth > 64) fail("at most 64 levels of nesting", "more");
  std::string key;
  switch (peek()) {
    case Kind::object:
      begin_object();
      while (next_key(key)) skip_value(depth + 1);
      return;
    case Kind::array:
      begin_array();
      while (next_item()) skip_value(depth + 1);
      return;
    case Kind::string:
      string_into(nullptr);
      return;
    case Kind::number:
      position_ += number_text("a number").size();
      return;
    case Kind::boolean:
      boolean();
      return;
    case Kind::null:
      null();
      return;
  }
}

void JsonReader::end() {
  white_space();
  if (position_ != text_.size()) fail("the end");
}

}  // namespace graven::runtime
