// A strict JSON reader that builds nothing: the caller pulls what it expects, so memory stays with the caller and depth
// with its code.
//
//   JsonReader json(text, "manifest.json");
//   std::string key;
//   json.begin_object();
//   while (json.next_key(key)) {
//     if (key == "step") step = json.integer();
//     else if (key == "files") { json.begin_array(); while (json.next_item()) names.push_back(json.string()); }
//     else json.fail("a known key", printable(key));
//   }
//   json.end();                            // nothing but white space may follow
//
// RFC 8259 to the letter: UTF-8 is validated, no comments, no trailing commas, no leading zeros. Errors name the file,
// the byte and the line. `skip()` passes over any value, at most 64 levels deep. Duplicate keys are the caller's to
// find: only it knows which it has seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace graven::runtime {

class JsonReader {
 public:
  enum class Kind : std::uint8_t { object, array, string, number, boolean, null };

  /// `text` must outlive the reader; `file` is for messages.
  JsonReader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  /// What the next value is.
  Kind peek();
  void begin_object();
  /// Reads the next key and its colon; false, having read the closing brace, after the last.
  bool next_key(std::string& key);
  void begin_array();
  /// True when another item follows; false, having read the closing bracket, after the last.
  bool next_item();
  std::string string();
  /// A number without fraction and exponent that fits 64 bits.
  std::int64_t integer();
  /// The same, and not negative.
  std::uint64_t unsigned_integer();
  /// Any number that a double holds; rounded to the nearest.
  double number();
  bool boolean();
  void null();
  void skip();
  void end();
  /// Bytes read so far.
  std::size_t position() const { return position_; }
  /// Throws: "file: byte 12 (line 1): expected ..., found ...". `found` empty: what stands there.
  [[noreturn]] void fail(const std::string& expected, std::string found = {}) const;

 private:
  void white_space();
  void take(char c, const char* expected);
  std::string_view number_text(const char* expected);
  void string_into(std::string* out);
  void skip_value(int depth);

  std::string_view text_;
  std::string file_;
  std::size_t position_ = 0;
  bool fresh_ = false;  ///< just after an opening bracket: no comma is due
};

}  // namespace graven::runtime
