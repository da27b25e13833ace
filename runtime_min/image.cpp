#include "image.h"

#include <vector>

#include "error.h"
#include "file.h"
#include "png.h"

namespace graven::runtime {

bool is_image(std::span<const std::byte> data) {
  return is_png(data) || (data.size() >= 3 && data[0] == std::byte{'P'} &&
                          (data[1] == std::byte{'5'} || data[1] == std::byte{'6'}) && data[2] <= std::byte{' '});
}

Array read_image(const std::string& path, const HeaderCheck& check) {
  const MappedFile file(path);
  const std::span<const std::byte> all = file.bytes();
  if (is_png(all)) return read_png(path, check);
  if (!is_image(all))
    throw Error(path, "header", "a PNG picture, or P5 or P6, a binary PGM or PPM picture", "other bytes");
  const std::int64_t channels = all[1] == std::byte{'5'} ? 1 : 3;
  std::size_t at = 2;
  const auto byte = [&] { return at < all.size() ? static_cast<char>(all[at]) : '\0'; };
  const auto is_space = [](char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
  };
  const auto number = [&](const char* what) {
    while (is_space(byte()) || byte() == '#') {
      if (byte() == '#') {
        while (at < all.size() && byte() != '\n') ++at;
      } else {
        ++at;
      }
    }
    std::int64_t value = 0;
    const std::size_t first = at;
    for (; byte() >= '0' && byte() <= '9'; ++at) {
      value = 10 * value + (byte() - '0');
      if (value > 1'000'000) throw Error(path, std::string("header, ") + what, "at most 1000000", "more");
    }
    if (at == first)
      throw Error(path, std::string("header, ") + what, "a number", at >= all.size() ? "the end" : "other bytes");
    return value;
  };
  const std::int64_t width = number("width"), height = number("height"), most = number("maximum");
  if (width == 0 || height == 0)
    throw Error(path, "header", "a picture of at least one pixel",
                std::to_string(width) + " x " + std::to_string(height));
  if (most != 255) throw Error(path, "header, maximum", "255 (8 bits)", std::to_string(most));
  if (!is_space(byte()))
    throw Error(path, "header", "white space before the pixels", at >= all.size() ? "the end" : "other bytes");
  ++at;
  check(DType::u8, {1, channels, height, width});
  const std::int64_t pixels = width * height;
  if (all.size() - at != static_cast<std::size_t>(pixels * channels)) {
    throw Error(
        path, "pixels",
        std::to_string(pixels * channels) + " bytes for " + std::to_string(width) + " x " + std::to_string(height),
        std::to_string(all.size() - at));
  }
  std::vector<std::byte> planes(static_cast<std::size_t>(pixels * channels));
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t p = 0; p < pixels; ++p)
      planes[static_cast<std::size_t>(c * pixels + p)] = all[at + static_cast<std::size_t>(p * channels + c)];
  }
  const Bytes held = Bytes::hold(std::move(planes));
  return {
      .dtype = DType::u8, .shape = {1, channels, height, width}, .bytes = held.view, .path = path, .owner = held.owner};
}

void write_image(const std::string& path, const std::uint8_t* pixels, std::int64_t channels, std::int64_t height,
                 std::int64_t width) {
  if (path.ends_with(".png")) return write_png(path, pixels, channels, height, width);
  if (channels != 1 && channels != 3) throw Error(path, "", "pictures of 1 or 3 channels", std::to_string(channels));
  AtomicFile file(path);
  file.write((channels == 1 ? "P5\n" : "P6\n") + std::to_string(width) + " " + std::to_string(height) + "\n255\n");
  const std::int64_t plane = width * height;
  for (std::int64_t p = 0; p < plane; ++p) {
    for (std::int64_t c = 0; c < channels; ++c) file.write(pixels + c * plane + p, 1);
  }
  file.commit();
}

}  // namespace graven::runtime
