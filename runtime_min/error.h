// Errors of the emitted program: what a file, an option or a number should have been, and what it was.
//
//   throw Error(path, "header, byte 12", "a dtype", "\"F31\"");
//   // weights.safetensors: header, byte 12: expected a dtype, found "F31"
//
// Whatever a user can get wrong arrives as an Error; nothing aborts. The programs print what() and exit with status 1,
// or 2 for a UsageError; the C interface turns it into an error code and keeps the text. Memory that is not to be had
// is std::bad_alloc.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace graven::runtime {

class Error : public std::runtime_error {
 public:
  /// `file` is a path or the name of an option; `place` is where in it, and may be empty; so may `found`.
  Error(std::string file, std::string place, std::string expected, std::string found)
      : std::runtime_error(text(file, place, expected, found)),
        file_(std::move(file)),
        place_(std::move(place)),
        expected_(std::move(expected)),
        found_(std::move(found)) {}
  /// A fault that is not a mismatch: `what` reads after "file: ".
  Error(std::string file, const std::string& what) : std::runtime_error(file + ": " + what), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  const std::string& place() const { return place_; }
  const std::string& expected() const { return expected_; }
  const std::string& found() const { return found_; }

 private:
  static std::string text(const std::string& file, const std::string& place, const std::string& expected,
                          const std::string& found) {
    std::string s = file;
    if (!place.empty()) s += ": " + place;
    s += ": expected " + expected;
    if (!found.empty()) s += ", found " + found;
    return s;
  }

  std::string file_, place_, expected_, found_;
};

/// A fault of the command line, or of what a caller chose, rather than of a file: the programs exit with status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// What a caller gives to a model's function and it cannot take: a size, a number of a step. The C interface has a code
/// of its own for it.
class BadArgument : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Memory or address space that the system does not give. No Error: no file and no option is to blame, and nothing that
/// was read is damaged.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::size_t bytes)
      : text_("out of memory: cannot allocate " + std::to_string(bytes) + " bytes") {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// A system call that failed: "out/step-3: cannot create: No space left on device". Call it before anything else can
/// change errno.
inline Error system_error(const std::string& file, const std::string& action) {
  const int code = errno;
  return Error(file, "cannot " + action + ": " + std::strerror(code));
}

/// `text` between double quotes, control bytes and what is not ASCII as \xNN, at most 80 bytes of it: safe to print
/// whatever a file holds.
inline std::string printable(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string s = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 80) return s + "...\" (" + std::to_string(text.size()) + " bytes)";
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      s += '\\';
      s += text[i];
    } else if (c < 0x20 || c >= 0x7f) {
      s += "\\x";
      s += kDigits[c >> 4];
      s += kDigits[c & 15];
    } else {
      s += text[i];
    }
  }
  return s + "\"";
}

}  // namespace graven::runtime
