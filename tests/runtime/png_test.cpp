// PNG pictures: what is written is read again, whatever the size and the pixels; pictures that another encoder wrote;
// damaged ones are refused.
#include "runtime_min/png.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "fixture.h"
#include "runtime_min/image.h"
#include "runtime_min/inflate.h"

namespace graven::runtime::test {
namespace {

const std::string kSignature = "89504e470d0a1a0a";

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string big_endian(std::size_t value) {
  std::string s;
  for (int shift = 24; shift >= 0; shift -= 8) s += static_cast<char>(value >> shift & 0xFF);
  return s;
}

std::string chunk(const std::string& type, const std::string& data) {
  return big_endian(data.size()) + type + data + big_endian(crc32(as_span(type + data)));
}

std::string header(std::uint32_t width, std::uint32_t height, int depth, int colour, int interlace = 0) {
  return chunk("IHDR", big_endian(width) + big_endian(height) + static_cast<char>(depth) + static_cast<char>(colour) +
                           std::string(2, '\0') + static_cast<char>(interlace));
}

std::string pixels_chunk(const std::string& rows) { return chunk("IDAT", text_of(zlib_deflate(as_span(rows)))); }

/// Pixels with flat parts, ramps and noise, so that every filter and long matches occur.
std::vector<std::uint8_t> picture(std::int64_t count, unsigned seed) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count));
  unsigned state = seed;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    state = state * 1664525U + 1013904223U;
    const std::size_t part = i * 4 / pixels.size();
    pixels[i] = static_cast<std::uint8_t>(part == 0   ? 200
                                          : part == 1 ? i * 3
                                          : part == 2 ? state >> 24
                                                      : i / 7 + (state >> 30));
  }
  return pixels;
}

TEST(Png, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  for (const std::int64_t channels : {1, 3})
    for (const auto& [height, width] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 300}, {257, 1}, {7, 5}, {64, 48}, {300, 401}}) {
      SCOPED_TRACE(std::to_string(channels) + " x " + std::to_string(height) + " x " + std::to_string(width));
      const std::vector<std::uint8_t> pixels = picture(channels * height * width, static_cast<unsigned>(height));
      write_image(folder / "p.png", pixels.data(), channels, height, width);
      EXPECT_TRUE(is_png(as_span(read_file(folder / "p.png"))));
      const Array read = read_image(folder / "p.png");
      EXPECT_EQ(read.shape, (Dims{1, channels, height, width}));
      EXPECT_EQ(std::memcmp(read.bytes.data(), pixels.data(), pixels.size()), 0);
    }
}

TEST(Png, FlatPicturesAreSmall) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> pixels(3 * 256 * 256, 90);
  write_png(folder / "p.png", pixels.data(), 3, 256, 256);
  EXPECT_LT(read_file(folder / "p.png").size(), 2000U);
}

TEST(Zlib, IsInflatedAsItWasDeflated) {
  std::vector<std::string> texts = {
      "", "a", "ab", "aaa", std::string(258, 'x'), std::string(259, 'x'), std::string(100'000, 'y')};
  for (int period : {3, 250, 32767, 32768, 32769}) {  // matches as far back as the window reaches, and further
    std::string text;
    const std::vector<std::uint8_t> noise = picture(period, 7);
    for (int i = 0; i < 70'000; ++i)
      text += static_cast<char>(noise[static_cast<std::size_t>(i % period)] ^ (i % period * 31));
    texts.push_back(text);
  }
  for (const std::string& text : texts)
    EXPECT_EQ(text_of(zlib_inflate(zlib_deflate(as_span(text)), "z")), text) << text.size();
}

TEST(Png, ReadsWhatOthersWrite) {
  const TemporaryFolder folder;
  const struct {
    const char* note;
    std::string file;
    Dims shape;
    std::vector<int> pixels;
  } cases[] = {
      {"RGB",
       "0000000d4948445200000002000000020802000000fdd49a730000001649444154789c636410d1b0b1b161a8e859b0e5c41d0015ac04eeb"
       "ba8f9ce0000000049454e44ae42608"
       "2",
       {1, 3, 2, 2},
       {0, 60, 120, 180, 20, 80, 140, 200, 40, 100, 160, 220}},
      {"RGB with alpha",
       "0000000d494844520000000200000002080600000072b60d240000001a49444154789c6364e01291d3d0d0d06009080808d0d0d0d000001"
       "49802c22fb800b40000000049454e4"
       "4ae"
       "426082",
       {1, 3, 2, 2},
       {0, 40, 80, 120, 10, 50, 90, 130, 20, 60, 100, 140}},
      {"grey with alpha",
       "0000000d49484452000000020000000108040000005e2bb7010000000d49444154789c63646462620200001a000970226f1600000000494"
       "54e44ae426082",
       {1, 1, 1, 2},
       {1, 3}},
      {"one bit",
       "0000000d4948445200000003000000010100000000339b29190000000a49444154789c6358000000a200a1dc8db1cc0000000049454e44a"
       "e426082",
       {1, 1, 1, 3},
       {255, 0, 255}},
      {"16 bits",
       "0000000d49484452000000050000000110000000006305e76c0000001349444154789c6364606064fcf78fb1918111000c970283f2fdb00"
       "60000000049454e44ae426082",
       {1, 1, 1, 5},
       {0, 1, 255, 0, 1}},
      {"palette of two bits",
       "0000000d4948445200000003000000010203000000668efc2700000009504c54450a141e28323c46505a16ac84740000000a49444154789"
       "c6368010000860085bcf5cdd600000"
       "000"
       "49454e44ae426082",
       {1, 3, 1, 3},
       {70, 10, 40, 80, 20, 50, 90, 30, 60}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    write_file(folder / "p.png", from_hex(kSignature + c.file));
    const Array read = read_png(folder / "p.png");
    EXPECT_EQ(read.shape, c.shape);
    std::vector<int> pixels;
    for (const std::byte b : read.bytes) pixels.push_back(static_cast<int>(b));
    EXPECT_EQ(pixels, c.pixels);
  }
}

TEST(Png, RefusesDamage) {
  const TemporaryFolder folder;
  const std::string end = chunk("IEND", ""), good = header(1, 1, 8, 0), grey = pixels_chunk(std::string("\0\x07", 2));
  std::string bad_sum = good + grey + end;
  bad_sum[good.size() + 9] ^= 1;
  const struct {
    const char* note;
    std::string content;
    const char* error;
  } cases[] = {
      {"no chunks", "", "byte 8: expected a chunk"},
      {"cut chunk", good.substr(0, 20), "a chunk of 13 bytes, found the end"},
      {"no end", good + grey, "a chunk, found 0 bytes"},
      {"checksum", bad_sum, "a chunk with its checksum"},
      {"no header", grey + end, "IHDR, the first chunk"},
      {"two headers", good + good + grey + end, "one IHDR"},
      {"short header", chunk("IHDR", "x") + end, "IHDR: expected 13 bytes, found 1"},
      {"no pixels", header(0, 1, 8, 0) + grey + end, "at least one pixel"},
      {"huge", header(2'000'000, 1, 8, 0) + grey + end, "at most 1000000 pixels"},
      {"a lie about its size", header(1'000'000, 1'000'000, 16, 6) + grey + end,
       "pixels: expected 8000001000000 bytes, found 10 bytes, compressed"},
      {"a bomb", good + chunk("IDAT", "\x78\x01" + deflate_bomb("\1x")) + end, "at most 2 bytes"},
      {"depth", header(1, 1, 3, 0) + grey + end, "colour type 0 with 3 bits"},
      {"colour type", header(1, 1, 8, 5) + grey + end, "colour type 5 with 8 bits"},
      {"palette of 16 bits", header(1, 1, 16, 3) + grey + end, "colour type 3 with 16 bits"},
      {"interlaced", header(1, 1, 8, 0, 1) + grey + end, "not interlaced"},
      {"no palette", header(1, 1, 8, 3) + grey + end, "a palette (PLTE), found none"},
      {"odd palette", header(1, 1, 8, 3) + chunk("PLTE", "ab") + grey + end, "PLTE: expected 1 to 256 colours"},
      {"colour beyond the palette", header(1, 1, 8, 3) + chunk("PLTE", "abc") + grey + end, "colours below 1, found 7"},
      {"the first colour beyond the palette",
       header(1, 1, 8, 3) + chunk("PLTE", "abc") + pixels_chunk(std::string("\0\1", 2)) + end,
       "colours below 1, found 1"},
      {"unknown chunk", good + chunk("Some", "x") + grey + end, "a chunk that is known"},
      {"no data", good + end, "zlib stream"},
      {"too few bytes", header(2, 1, 8, 0) + grey + end, "pixels: expected 3 bytes, found 2"},
      {"too many bytes", good + pixels_chunk("\1xyz") + end, "at most 2 bytes"},
      {"filter", good + pixels_chunk("\5x") + end, "row 0: expected a filter type from 0 to 4, found 5"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    write_file(folder / "bad.png", from_hex(kSignature) + c.content);
    largest_allocation = 0;
    EXPECT_ERROR(read_png(folder / "bad.png"), c.error);
    EXPECT_LT(largest_allocation, c.content.size() + 100'000);
  }
  write_file(folder / "bad.png", "P6\n");
  EXPECT_ERROR(read_png(folder / "bad.png"), "a PNG picture");
  write_file(folder / "extra.png", from_hex(kSignature) + good + chunk("tEXt", "a\0b") + grey + end);
  EXPECT_EQ(read_png(folder / "extra.png").bytes[0], std::byte{7});
  const std::uint8_t pixel[2] = {};
  EXPECT_ERROR(write_png(folder / "two.png", pixel, 2, 1, 1), "1 or 3 channels");
  EXPECT_ERROR(write_png(folder / "none.png", pixel, 1, 0, 1), "sides of 1 to 1000000 pixels");
}

}  // namespace
}  // namespace graven::runtime::test
