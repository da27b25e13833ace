#include "png.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "error.h"
#include "file.h"
#include "inflate.h"

namespace graven::runtime {
namespace {

constexpr std::string_view kPngSignature{"\x89PNG\r\n\x1A\n", 8};
constexpr std::int64_t kMaxPngSide = 1'000'000;

void put_big32(std::vector<std::byte>& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::byte>(value >> shift & 0xFF));
}

std::uint32_t get_big32(std::span<const std::byte> in, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint32_t>(in[at + i]);
  return value;
}

/// The prediction of filter type 4: of left, above and above left, the one nearest to left + above - above_left.
std::uint8_t paeth(int left, int above, int above_left) {
  const int p = left + above - above_left;
  const int from_left = std::abs(p - left), from_above = std::abs(p - above), from_corner = std::abs(p - above_left);
  if (from_left <= from_above && from_left <= from_corner) return static_cast<std::uint8_t>(left);
  return static_cast<std::uint8_t>(from_above <= from_corner ? above : above_left);
}

/// What filter `type` subtracts from byte `i` of `row`; `above` is the row before, `step` the bytes of a pixel.
std::uint8_t predict(int type, const std::uint8_t* row, const std::uint8_t* above, std::size_t i, std::size_t step) {
  const int left = i >= step ? row[i - step] : 0, corner = i >= step ? above[i - step] : 0;
  switch (type) {
    case 1:
      return static_cast<std::uint8_t>(left);
    case 2:
      return above[i];
    case 3:
      return static_cast<std::uint8_t>((left + above[i]) / 2);
    case 4:
      return paeth(left, above[i], corner);
    default:
      return 0;
  }
}

/// DEFLATE's bits, from the lowest; its fixed codes and their extra bits.
class DeflateWriter {
 public:
  explicit DeflateWriter(std::vector<std::byte>& out) : out_(out) {}

  void bits(std::uint32_t value, int count) {
    held_ |= static_cast<std::uint64_t>(value) << used_;
    for (used_ += count; used_ >= 8; used_ -= 8, held_ >>= 8) out_.push_back(static_cast<std::byte>(held_ & 0xFF));
  }
  /// A literal byte, 256 for the end, or the class of a length, by the fixed code of RFC 1951, section 3.2.6.
  void symbol(std::uint32_t s) {
    if (s < 144) return code(0x30 + s, 8);
    if (s < 256) return code(0x190 + s - 144, 9);
    if (s < 280) return code(s - 256, 7);
    code(0xC0 + s - 280, 8);
  }
  /// `length` 3 to 258, `distance` 1 to 32768.
  void match(std::uint32_t length, std::uint32_t distance) {
    if (length == 258) {
      symbol(285);
    } else {
      const auto [which, extra, rest] = classify(length - 3, 4);
      symbol(257 + which);
      bits(rest, extra);
    }
    const auto [which, extra, rest] = classify(distance - 1, 2);
    code(which, 5);
    bits(rest, extra);
  }
  void finish() {
    if (used_ > 0) bits(0, 8 - used_);
  }

 private:
  struct Class {
    std::uint32_t which;
    int extra;
    std::uint32_t rest;
  };
  /// Both tables of the format are of one kind: `base` classes share each number of extra bits, the first 2 `base` have
  /// none.
  static Class classify(std::uint32_t value, std::uint32_t base) {
    if (value < 2 * base) return {value, 0, 0};
    int extra = 0;
    while (value >> extra >= 2 * base) ++extra;
    return {base * static_cast<std::uint32_t>(extra) + (value >> extra), extra, value & ((1U << extra) - 1)};
  }
  /// Codes go out from their highest bit.
  void code(std::uint32_t value, int count) {
    std::uint32_t reversed = 0;
    for (int b = 0; b < count; ++b) reversed |= (value >> b & 1U) << (count - 1 - b);
    bits(reversed, count);
  }

  std::vector<std::byte>& out_;
  std::uint64_t held_ = 0;
  int used_ = 0;
};

struct PngHeader {
  std::int64_t width, height;
  int depth, colour, samples;  ///< colour type 0 grey, 2 RGB, 3 palette, 4 grey with alpha, 6 RGB with alpha; samples
                               ///< of a pixel in the file
  std::int64_t channels() const { return colour == 0 || colour == 4 ? 1 : 3; }  ///< of the picture
  std::size_t row_bytes() const { return static_cast<std::size_t>((width * samples * depth + 7) / 8); }
};

PngHeader parse_png_header(std::span<const std::byte> data, const std::string& path) {
  if (data.size() != 13) throw Error(path, "IHDR", "13 bytes", std::to_string(data.size()));
  PngHeader h{.width = get_big32(data, 0),
              .height = get_big32(data, 4),
              .depth = static_cast<int>(data[8]),
              .colour = static_cast<int>(data[9]),
              .samples = 1};
  const auto size = [&] { return std::to_string(h.width) + " x " + std::to_string(h.height); };
  if (h.width == 0 || h.height == 0) throw Error(path, "IHDR", "a picture of at least one pixel", size());
  if (h.width > kMaxPngSide || h.height > kMaxPngSide)
    throw Error(path, "IHDR", "sides of at most 1000000 pixels", size());
  const int d = h.depth;
  const bool whole = d == 8 || d == 16, small = d == 1 || d == 2 || d == 4;
  const bool valid = h.colour == 0   ? whole || small
                     : h.colour == 3 ? small || d == 8
                                     : (h.colour == 2 || h.colour == 4 || h.colour == 6) && whole;
  if (!valid)
    throw Error(path, "IHDR", "a colour type and depth that PNG has",
                "colour type " + std::to_string(h.colour) + " with " + std::to_string(d) + " bits");
  if (data[10] != std::byte{0} || data[11] != std::byte{0})
    throw Error(path, "IHDR", "compression 0 and filter 0", "others");
  if (data[12] != std::byte{0})
    throw Error(path, "IHDR", "a picture that is not interlaced",
                "interlace method " + std::to_string(static_cast<int>(data[12])));
  h.samples = h.colour == 2 ? 3 : h.colour == 4 ? 2 : h.colour == 6 ? 4 : 1;
  return h;
}

/// Undoes the filters in place: `rows` is height times a type byte and row_bytes().
void unfilter(std::vector<std::byte>& rows, const PngHeader& h, const std::string& path) {
  const std::size_t n = h.row_bytes(), step = static_cast<std::size_t>(std::max(1, h.samples * h.depth / 8));
  auto* data = reinterpret_cast<std::uint8_t*>(rows.data());
  const std::vector<std::uint8_t> nothing(n, 0);
  const std::uint8_t* above = nothing.data();
  for (std::int64_t y = 0; y < h.height; ++y) {
    const int type = *data;
    std::uint8_t* row = data + 1;
    if (type > 4) throw Error(path, "row " + std::to_string(y), "a filter type from 0 to 4", std::to_string(type));
    for (std::size_t i = 0; i < n; ++i) row[i] = static_cast<std::uint8_t>(row[i] + predict(type, row, above, i, step));
    above = row;
    data += n + 1;
  }
}

}  // namespace

bool is_png(std::span<const std::byte> data) {
  return data.size() >= kPngSignature.size() &&
         std::memcmp(data.data(), kPngSignature.data(), kPngSignature.size()) == 0;
}

Array read_png(const std::string& path, const HeaderCheck& check) {
  const MappedFile file(path);
  const std::span<const std::byte> all = file.bytes();
  if (!is_png(all)) throw Error(path, "signature", "a PNG picture", "other bytes");
  PngHeader header{};
  std::span<const std::byte> palette;
  std::vector<std::byte> compressed;
  std::size_t at = kPngSignature.size();
  for (bool first = true, end = false; !end; first = false) {
    const std::string place = "byte " + std::to_string(at);
    if (all.size() - at < 12) throw Error(path, place, "a chunk", std::to_string(all.size() - at) + " bytes");
    const std::size_t length = get_big32(all, at);
    if (length > all.size() - at - 12)
      throw Error(path, place, "a chunk of " + std::to_string(length) + " bytes", "the end");
    const std::span<const std::byte> data = all.subspan(at + 8, length);
    const std::string_view type(reinterpret_cast<const char*>(all.data() + at + 4), 4);
    if (crc32(all.subspan(at + 4, length + 4)) != get_big32(all, at + 8 + length))
      throw Error(path, place, "a chunk with its checksum", "another checksum");
    if (first != (type == "IHDR"))
      throw Error(path, place, first ? "IHDR, the first chunk" : "one IHDR", printable(type));
    if (first) {
      header = parse_png_header(data, path);
      check(DType::u8, {1, header.channels(), header.height, header.width});
    } else if (type == "PLTE") {
      if (length % 3 != 0 || length == 0 || length > 768)
        throw Error(path, "PLTE", "1 to 256 colours of 3 bytes", std::to_string(length) + " bytes");
      palette = data;
    } else if (type == "IDAT") {
      compressed.insert(compressed.end(), data.begin(), data.end());
    } else if (type == "IEND") {
      end = true;
    } else if ((type[0] & 0x20) == 0) {  // a capital letter: no picture without it
      throw Error(path, place, "a chunk that is known", printable(type));
    }
    at += length + 12;
  }
  if (header.colour == 3 && palette.empty()) throw Error(path, "", "a palette (PLTE)", "none");

  const std::uint64_t expected = static_cast<std::uint64_t>(header.height) * (header.row_bytes() + 1);
  if (expected > inflated_at_most(compressed.size()))
    throw Error(path, "pixels", std::to_string(expected) + " bytes",
                std::to_string(compressed.size()) + " bytes, compressed");
  std::vector<std::byte> rows = zlib_inflate(compressed, path, expected);
  if (rows.size() != expected)
    throw Error(path, "pixels", std::to_string(expected) + " bytes", std::to_string(rows.size()));
  unfilter(rows, header, path);

  const std::int64_t channels = header.channels(), plane = header.height * header.width;
  std::vector<std::byte> planes(static_cast<std::size_t>(channels * plane));
  const auto* data = reinterpret_cast<const std::uint8_t*>(rows.data());
  const auto sample = [&](const std::uint8_t* row, std::int64_t i) -> unsigned {
    if (header.depth == 8) return row[i];
    if (header.depth == 16) return ((static_cast<unsigned>(row[2 * i]) << 8 | row[2 * i + 1]) + 128) / 257;
    const std::int64_t bit = i * header.depth;
    return row[bit / 8] >> (8 - header.depth - bit % 8) & ((1U << header.depth) - 1);
  };
  const unsigned most = header.depth < 8 ? (1U << header.depth) - 1 : 255;
  for (std::int64_t y = 0; y < header.height; ++y) {
    const std::uint8_t* row = data + static_cast<std::size_t>(y) * (header.row_bytes() + 1) + 1;
    for (std::int64_t x = 0; x < header.width; ++x)
      for (std::int64_t c = 0; c < channels; ++c) {
        std::byte& to = planes[static_cast<std::size_t>(c * plane + y * header.width + x)];
        const unsigned value = sample(row, header.colour == 3 ? x : x * header.samples + c);
        if (header.colour != 3) {
          to = static_cast<std::byte>(value * 255 / most);
          continue;
        }
        if (3 * value >= palette.size())
          throw Error(path, "row " + std::to_string(y),
                      std::string("colours below ") + std::to_string(palette.size() / 3), std::to_string(value));
        to = palette[3 * value + static_cast<std::size_t>(c)];
      }
  }
  const Bytes held = Bytes::hold(std::move(planes));
  return {.dtype = DType::u8,
          .shape = {1, channels, header.height, header.width},
          .bytes = held.view,
          .path = path,
          .owner = held.owner};
}

void write_png(const std::string& path, const std::uint8_t* pixels, std::int64_t channels, std::int64_t height,
               std::int64_t width) {
  if (channels != 1 && channels != 3) throw Error(path, "", "pictures of 1 or 3 channels", std::to_string(channels));
  if (height < 1 || width < 1 || height > kMaxPngSide || width > kMaxPngSide)
    throw Error(path, "", "sides of 1 to 1000000 pixels", std::to_string(width) + " x " + std::to_string(height));
  const std::int64_t plane = height * width;
  const std::size_t n = static_cast<std::size_t>(width * channels), step = static_cast<std::size_t>(channels);
  std::vector<std::uint8_t> row(n), above(n, 0), best(n), tried(n);
  std::vector<std::byte> rows;
  rows.reserve(static_cast<std::size_t>(height) * (n + 1));
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < channels; ++c)
        row[static_cast<std::size_t>(x * channels + c)] = pixels[c * plane + y * width + x];
    // The filter with the least sum of differences, as the standard suggests.
    std::int64_t least = INT64_MAX;
    int type = 0;
    for (int t = 0; t < 5; ++t) {
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < n; ++i) {
        tried[i] = static_cast<std::uint8_t>(row[i] - predict(t, row.data(), above.data(), i, step));
        sum += std::min<int>(tried[i], 256 - tried[i]);
      }
      if (sum < least) {
        least = sum;
        type = t;
        best.swap(tried);
      }
    }
    rows.push_back(static_cast<std::byte>(type));
    for (const std::uint8_t b : best) rows.push_back(static_cast<std::byte>(b));
    row.swap(above);
  }

  AtomicFile file(path);
  file.write(kPngSignature);
  const auto chunk = [&](std::string_view type, std::span<const std::byte> data) {
    std::vector<std::byte> bytes;
    put_big32(bytes, static_cast<std::uint32_t>(data.size()));
    for (const char c : type) bytes.push_back(static_cast<std::byte>(c));
    bytes.insert(bytes.end(), data.begin(), data.end());
    put_big32(bytes, crc32(std::span<const std::byte>(bytes).subspan(4)));
    file.write(bytes.data(), bytes.size());
  };
  std::vector<std::byte> header;
  put_big32(header, static_cast<std::uint32_t>(width));
  put_big32(header, static_cast<std::uint32_t>(height));
  for (const int b : {8, channels == 1 ? 0 : 2, 0, 0, 0}) header.push_back(static_cast<std::byte>(b));
  chunk("IHDR", header);
  const std::vector<std::byte> compressed = zlib_deflate(rows);
  constexpr std::size_t kMost = std::size_t{1} << 20;
  for (std::size_t from = 0; from < compressed.size(); from += kMost)
    chunk("IDAT", std::span<const std::byte>(compressed).subspan(from, std::min(kMost, compressed.size() - from)));
  chunk("IEND", {});
  file.commit();
}

std::vector<std::byte> zlib_deflate(std::span<const std::byte> data) {
  constexpr std::size_t kMaxDistance = 32768, kMaxLength = 258;
  constexpr int kHashBits = 15;
  std::vector<std::byte> out{std::byte{0x78}, std::byte{0x01}};  // a window of 32 kB, the fastest level
  DeflateWriter writer(out);
  writer.bits(1, 1);  // the last block
  writer.bits(1, 2);  // fixed codes
  std::vector<std::size_t> last(std::size_t{1} << kHashBits,
                                SIZE_MAX);  // where three bytes of this hash were seen last
  const auto hash = [&](std::size_t i) {
    const std::uint32_t three = static_cast<std::uint32_t>(data[i]) | static_cast<std::uint32_t>(data[i + 1]) << 8 |
                                static_cast<std::uint32_t>(data[i + 2]) << 16;
    return (three * 2654435761U) >> (32 - kHashBits);
  };
  for (std::size_t i = 0; i < data.size();) {
    std::size_t length = 0, distance = 0;
    if (data.size() - i >= 3) {
      std::size_t& seen = last[hash(i)];
      if (seen != SIZE_MAX && i - seen <= kMaxDistance) {
        distance = i - seen;
        const std::size_t most = std::min(kMaxLength, data.size() - i);
        while (length < most && data[seen + length] == data[i + length]) ++length;
      }
      seen = i;
    }
    if (length < 3) {
      writer.symbol(static_cast<std::uint32_t>(data[i++]));
      continue;
    }
    writer.match(static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(distance));
    for (const std::size_t stop = i + length; ++i < stop;)
      if (data.size() - i >= 3) last[hash(i)] = i;
  }
  writer.symbol(256);
  writer.finish();
  put_big32(out, adler32(data));
  return out;
}

}  // namespace graven::runtime
