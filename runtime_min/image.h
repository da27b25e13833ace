// Pictures in Netpbm's binary formats: PGM (P5, one channel) and PPM (P6, red, green, blue), 8 bits.
//
//   const Array picture = read_image("cat.ppm");              // u8[1,3,height,width]: one sample, channels first
//   write_image("out.pgm", pixels, 1, height, width);         // u8[1,height,width], atomically
#pragma once

#include <cstdint>
#include <string>

#include "array.h"

namespace graven::runtime {

Array read_image(const std::string& path);
/// Whether it begins like one of the two formats.
bool is_image(std::span<const std::byte> data);
/// `pixels` is u8[channels,height,width], with 1 channel (PGM) or 3 (PPM).
void write_image(const std::string& path, const std::uint8_t* pixels, std::int64_t channels, std::int64_t height, std::int64_t width);

}  // namespace graven::runtime
