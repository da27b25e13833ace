// Pictures of 8 bits: PNG, and Netpbm's binary formats PGM (P5, one channel) and PPM (P6, red, green, blue).
//
//   const Array picture = read_image("cat.ppm");              // u8[1,3,height,width]: one sample, channels first
//   write_image("out.png", pixels, 3, height, width);         // u8[3,height,width], atomically; PNG by the name, else
//                                                             // PGM or PPM
#pragma once

#include <cstdint>
#include <string>

#include "array.h"

namespace graven::runtime {

/// Of any of the formats, whatever the name.
Array read_image(const std::string& path, const HeaderCheck& check = no_check);
/// Whether it begins like one of them.
bool is_image(std::span<const std::byte> data);
/// `pixels` is u8[channels,height,width], with 1 channel or 3. A name that ends in ".png" makes it a PNG picture, any
/// other PGM or PPM.
void write_image(const std::string& path, const std::uint8_t* pixels, std::int64_t channels, std::int64_t height,
                 std::int64_t width);

}  // namespace graven::runtime
