#include "npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "error.h"

namespace graven::runtime {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

struct Descr {
  std::string_view code;
  DType dtype;
};
constexpr Descr kDescrs[] = {{"b1", DType::boolean}, {"u1", DType::u8},  {"i1", DType::i8},  {"u2", DType::u16},
                             {"i2", DType::i16},     {"f2", DType::f16}, {"u4", DType::u32}, {"i4", DType::i32},
                             {"f4", DType::f32},     {"u8", DType::u64}, {"i8", DType::i64}, {"f8", DType::f64}};

/// Reads the header's dictionary: a literal of Python with three known keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  std::string descr;
  bool fortran = false;
  Dims shape;

  void run() {
    bool has_descr = false, has_fortran = false, has_shape = false;
    take('{');
    while (!try_take('}')) {
      const std::string key = string();
      take(':');
      const auto once = [&](bool& seen) {
        if (seen) fail("each key once", "a second '" + key + "'");
        seen = true;
      };
      if (key == "descr") {
        once(has_descr);
        white_space();
        if (at() == '[') fail("a plain dtype", "a structure");
        descr = string();
      } else if (key == "fortran_order") {
        once(has_fortran);
        fortran = word("True");
        if (!fortran && !word("False")) fail("True or False");
      } else if (key == "shape") {
        once(has_shape);
        tuple();
      } else {
        fail("'descr', 'fortran_order' or 'shape'", printable(key));
      }
      if (!try_take(',')) {
        take('}');
        break;
      }
    }
    white_space();
    if (position_ != text_.size()) fail("the end of the header");
    if (!has_descr || !has_fortran || !has_shape) {
      fail("'descr', 'fortran_order' and 'shape'", std::string("no '") +
                                                       (!has_descr     ? "descr"
                                                        : !has_fortran ? "fortran_order"
                                                                       : "shape") +
                                                       "'");
    }
  }

  [[noreturn]] void fail(const std::string& expected, std::string found = {}) const {
    if (found.empty()) found = position_ >= text_.size() ? "the end" : printable(text_.substr(position_, 16));
    throw Error(path_, std::string("npy header, byte ") + std::to_string(position_), expected, found);
  }

 private:
  char at() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  void white_space() {
    while (at() == ' ' || at() == '\n' || at() == '\t' || at() == '\r') ++position_;
  }
  bool try_take(char c) {
    white_space();
    if (at() != c) return false;
    ++position_;
    return true;
  }
  void take(char c) {
    if (!try_take(c)) fail(std::string("'") + c + "'");
  }
  bool word(std::string_view w) {
    white_space();
    if (text_.substr(position_, w.size()) != w) return false;
    position_ += w.size();
    return true;
  }
  std::string string() {
    white_space();
    const char quote = at();
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, position_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail("a string");
    std::string s(text_.substr(position_ + 1, end - position_ - 1));
    if (s.find('\\') != std::string::npos) fail("a string without escapes");
    position_ = end + 1;
    return s;
  }
  void tuple() {
    take('(');
    bool comma = true;
    while (!try_take(')')) {
      if (!comma) fail("a comma or a closing parenthesis");
      white_space();
      std::int64_t d = 0;
      const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), d);
      if (error != std::errc() || d < 0) fail("a dimension from 0 to 2^63 - 1");
      position_ = static_cast<std::size_t>(end - text_.data());
      if (at() == 'L') ++position_;  // Python 2 wrote its long integers so
      shape.push_back(d);
      comma = try_take(',');
    }
    if (shape.size() == 1 && !comma) fail("a tuple, (n,)", "a number in parentheses");
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t position_ = 0;
};

}  // namespace

bool is_npy(std::span<const std::byte> data) {
  return data.size() >= kMagic.size() && std::memcmp(data.data(), kMagic.data(), kMagic.size()) == 0;
}

Array read_npy(const std::string& path, const HeaderCheck& check) { return parse_npy(Bytes::map(path), path, check); }

NpyHeader parse_npy_header(std::span<const std::byte> start, std::uint64_t file_size, const std::string& path) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(start[i]); };
  if (!is_npy(start))
    throw Error(path, "npy header", "\\x93NUMPY", file_size < 6 ? std::to_string(file_size) + " bytes" : "other bytes");
  if (start.size() < 10) throw Error(path, "npy header", "10 bytes", std::to_string(start.size()));
  const std::uint32_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0)
    throw Error(path, "npy header", "version 1.0, 2.0 or 3.0", std::to_string(major) + "." + std::to_string(minor));
  const std::size_t prefix = major == 1 ? 10 : 12;
  if (start.size() < prefix)
    throw Error(path, "npy header", std::to_string(prefix) + " bytes", std::to_string(start.size()));
  std::size_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > file_size - prefix)
    throw Error(path, "npy header", std::to_string(length) + " bytes of header",
                std::to_string(file_size - prefix) + " in the file");
  if (length > kMostNpyHeader - 12)
    throw Error(path, "npy header", "at most " + std::to_string(kMostNpyHeader - 12) + " bytes of header",
                std::to_string(length));
  if (length > start.size() - prefix)
    throw Error(path, "npy header", std::to_string(length) + " bytes of header", std::to_string(start.size() - prefix));
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + prefix, length);
  HeaderParser header(text, path);
  header.run();

  const std::string& descr = header.descr;
  std::optional<DType> dtype;
  if (descr.size() == 3) {
    for (const Descr& d : kDescrs) {
      if (descr.substr(1) == d.code) dtype = d.dtype;
    }
  }
  if (!descr.empty() && descr.find('O') != std::string::npos)
    throw Error(path, "npy header", "numbers", std::string("Python objects (") + printable(descr) + ")");
  if (!dtype) throw Error(path, "npy header", "a dtype of numbers, such as '<f4' or '|u1'", printable(descr));
  const std::size_t size = size_of(*dtype);
  const char order = descr[0];
  if (!(order == '<' || order == '>' || order == '=' || (order == '|' && size == 1)))
    throw Error(path, "npy header", "a byte order '<', '>' or '|'", printable(descr));
  const std::optional<std::int64_t> bytes = checked_count(header.shape, static_cast<std::int64_t>(size));
  if (!bytes) throw Error(path, "npy header", "a shape whose bytes can be counted", describe(*dtype, header.shape));
  if (header.fortran &&
      std::count_if(header.shape.begin(), header.shape.end(), [](std::int64_t d) { return d > 1; }) > 1) {
    throw Error(path, "npy header", "C order (numpy.ascontiguousarray makes it)", "Fortran order");
  }
  if (file_size - prefix - length != static_cast<std::uint64_t>(*bytes))
    throw Error(path, "data", std::to_string(*bytes) + " bytes for " + describe(*dtype, header.shape),
                std::to_string(file_size - prefix - length));
  return {.dtype = *dtype,
          .shape = std::move(header.shape),
          .big_endian = order == '>' && size > 1,
          .bytes = prefix + length};
}

Array parse_npy(const Bytes& file, const std::string& path, const HeaderCheck& check) {
  NpyHeader header =
      parse_npy_header(file.view.first(std::min(file.view.size(), kMostNpyHeader)), file.view.size(), path);
  check(header.dtype, header.shape);
  const std::span<const std::byte> data = file.view.subspan(header.bytes);
  Array array{
      .dtype = header.dtype, .shape = std::move(header.shape), .bytes = data, .path = path, .owner = file.owner};
  if (header.big_endian) {
    const Bytes little = swapped(data, size_of(array.dtype));
    array.bytes = little.view;
    array.owner = little.owner;
  }
  return array;
}

NpyWriter::NpyWriter(const std::string& path, DType dtype, const Dims& shape)
    : file_(path), path_(path), dtype_(dtype) {
  const DType stored = dtype == DType::bf16 ? DType::f32 : dtype;
  std::string_view code;
  for (const Descr& d : kDescrs) {
    if (d.dtype == stored) code = d.code;
  }
  std::string header = std::string("{'descr': '") + (size_of(stored) == 1 ? '|' : '<') + std::string(code) +
                       "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i)
    header += std::to_string(shape[i]) + (i + 1 < shape.size() ? ", " : shape.size() == 1 ? "," : "");
  header += "), }";
  const std::size_t prefix = header.size() + 128 <= 65535 ? 10 : 12;
  const std::size_t total = (prefix + header.size() + 1 + 63) / 64 * 64;
  header.resize(total - prefix - 1, ' ');
  header += '\n';
  file_.write(kMagic);
  const auto length = static_cast<std::uint32_t>(header.size());
  const unsigned char version[2] = {static_cast<unsigned char>(prefix == 10 ? 1 : 2), 0};
  file_.write(version, 2);
  file_.write(&length, prefix == 10 ? 2 : 4);
  file_.write(header);
  due_ = static_cast<std::uint64_t>(count_of(shape)) * size_of(dtype);
}

void NpyWriter::write(const void* data, std::size_t bytes) {
  if (bytes > due_)
    throw Error(path_, "data", std::string("at most ") + std::to_string(due_) + " bytes more", std::to_string(bytes));
  due_ -= bytes;
  if (dtype_ != DType::bf16) {
    file_.write(data, bytes);
    return;
  }
  for (std::size_t i = 0; i + 2 <= bytes; i += 2) {
    std::uint16_t half;
    std::memcpy(&half, static_cast<const std::byte*>(data) + i, 2);
    const std::uint32_t whole = static_cast<std::uint32_t>(half) << 16;
    file_.write(&whole, 4);
  }
}

void NpyWriter::commit() {
  if (due_ != 0) throw Error(path_, "data", std::to_string(due_) + " bytes more", "the end");
  file_.commit();
}

}  // namespace graven::runtime
