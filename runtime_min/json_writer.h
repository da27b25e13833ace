// JSON, written: commas and quotes are kept by the writer, numbers read back to the same bits.
//
//   JsonWriter json;
//   json.begin_object().key("step").value(120).key("loss").value(0.25);
//   json.key("shape").begin_array().value(64).end_array().end_object();
//   json.text();     // {"step":120,"loss":0.25,"shape":[64]}
//
// Strings are UTF-8; bytes that are not stand as U+FFFD. NaN and infinities, which JSON lacks, are written as null.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace graven::runtime {

/// Length of the UTF-8 sequence of two to four bytes at the start of `s`, 0 when it is none.
inline std::size_t utf8_sequence(std::string_view s) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned first = at(0);
  const std::size_t n = first >= 0xF0 && first <= 0xF4  ? 4
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xC2 && first < 0xE0 ? 2
                                                        : 0;
  if (n == 0 || s.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xC0U) != 0x80U) return 0;
  }
  const unsigned second = at(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
      (first == 0xF4 && second > 0x8F))
    return 0;
  return n;
}

inline bool is_utf8(std::string_view s) {
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t n = static_cast<unsigned char>(s[i]) < 0x80 ? 1 : utf8_sequence(s.substr(i));
    if (n == 0) return false;
    i += n;
  }
  return true;
}

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name) {
    separate();
    quote(name);
    text_ += ':';
    comma_ = false;
    return *this;
  }
  JsonWriter& value(std::string_view s) {
    separate();
    quote(s);
    comma_ = true;
    return *this;
  }
  JsonWriter& value(const char* s) { return value(std::string_view(s)); }
  JsonWriter& value(bool b) { return plain(b ? "true" : "false"); }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& value(T n) {
    char digits[24];
    const auto result = std::to_chars(digits, digits + sizeof digits, n);
    return plain({digits, static_cast<std::size_t>(result.ptr - digits)});
  }
  /// The shortest decimal that reads back to the same double.
  JsonWriter& value(double x) {
    if (!std::isfinite(x)) return plain("null");
    char digits[32];
    const auto result = std::to_chars(digits, digits + sizeof digits, x);
    return plain({digits, static_cast<std::size_t>(result.ptr - digits)});
  }

  /// White space between values, for readers that are people.
  JsonWriter& line(std::string_view white_space = "\n") {
    pending_ = white_space;
    return *this;
  }
  const std::string& text() const { return text_; }
  /// Starts anew, keeping the memory.
  void clear() {
    text_.clear();
    pending_ = {};
    comma_ = false;
  }

 private:
  void separate() {
    if (comma_) text_ += ',';
    text_ += pending_;
    pending_ = {};
  }
  JsonWriter& open(char c) {
    separate();
    text_ += c;
    comma_ = false;
    return *this;
  }
  JsonWriter& close(char c) {
    text_ += pending_;
    pending_ = {};
    text_ += c;
    comma_ = true;
    return *this;
  }
  JsonWriter& plain(std::string_view s) {
    separate();
    text_ += s;
    comma_ = true;
    return *this;
  }
  void quote(std::string_view s) {
    static constexpr char kDigits[] = "0123456789abcdef";
    text_ += '"';
    for (std::size_t i = 0; i < s.size(); ++i) {
      const auto c = static_cast<unsigned char>(s[i]);
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += s[i];
      } else if (c == '\n') {
        text_ += "\\n";
      } else if (c == '\t') {
        text_ += "\\t";
      } else if (c < 0x20) {
        text_ += "\\u00";
        text_ += kDigits[c >> 4];
        text_ += kDigits[c & 15];
      } else if (c < 0x80) {
        text_ += s[i];
      } else if (const std::size_t n = utf8_sequence(s.substr(i)); n != 0) {
        text_ += s.substr(i, n);
        i += n - 1;
      } else {
        text_ += "\xEF\xBF\xBD";
      }
    }
    text_ += '"';
  }

  std::string text_;
  std::string_view pending_;
  bool comma_ = false;
};

}  // namespace graven::runtime
