// What the tests of the run time share: a folder that goes away, files made of bytes, and errors that must name what is
// wrong.
//
//   const TemporaryFolder folder;
//   write_file(folder / "bad.npy", bytes("\x93NUMPY"));
//   EXPECT_ERROR(read_npy(folder / "bad.npy"), "expected 10 bytes");
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime_min/error.h"

namespace graven::runtime {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "graven_runtime_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, std::filesystem::perm_options::add, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::error_code ignored;
  std::filesystem::remove(path,
                          ignored);  // some file systems wait for the disk when a file is truncated and written anew
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::span<const std::byte> as_span(const std::string& s) { return std::as_bytes(std::span(s.data(), s.size())); }

/// The largest block that was asked of operator new since this was set to 0. Sanitizers have an operator new of their
/// own: there it stays 0.
extern std::size_t largest_allocation;

/// A DEFLATE stream of `start` and 300 MB of zeros, in 2 MB.
inline std::string deflate_bomb(const std::string& start) {
  const auto size = static_cast<std::uint16_t>(start.size()), inverted = static_cast<std::uint16_t>(~size);
  std::string stream(1, '\0');  // a stored block, not the last
  for (const std::uint16_t n : {size, inverted}) stream += {static_cast<char>(n & 0xFF), static_cast<char>(n >> 8)};
  stream += start;
  unsigned held = 0, used = 0;
  const auto put = [&](std::string_view bits) {
    for (const char b : bits) {
      held |= (b == '1' ? 1U : 0U) << used;
      if (++used < 8) continue;
      stream += static_cast<char>(held);
      held = used = 0;
    }
  };
  put("11000110000");                                                // the last block, of fixed codes, and a zero
  for (int i = 0; i < 300'000'000 / 258; ++i) put("1100010100000");  // 258 bytes, from one byte before
  put("00000000000000");                                             // the end
  return stream;
}

/// "1f8b 08" to bytes; white space is ignored.
inline std::string from_hex(const std::string& hex) {
  std::string out;
  int high = -1;
  for (const char c : hex) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    if (high < 0) {
      high = digit;
    } else {
      out += static_cast<char>(high * 16 + digit);
      high = -1;
    }
  }
  return out;
}

template <class T>
std::string little_endian(T x) {
  std::string s(sizeof x, '\0');
  std::memcpy(s.data(), &x, sizeof x);
  return s;
}

inline std::string big_endian32(std::uint32_t x) {
  return {static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8), static_cast<char>(x)};
}

/// The message of the Error that `f` throws; fails the test when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

#define EXPECT_ERROR(statement, part)                                                                       \
  EXPECT_PRED_FORMAT2(::graven::runtime::contains, ::graven::runtime::error_of([&] { (void)(statement); }), \
                      std::string(part))

inline testing::AssertionResult contains(const char*, const char*, const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the message\n  " << text << "\ndoes not contain\n  " << part;
}

}  // namespace graven::runtime
