// PNG pictures (ISO/IEC 15948), 8 bits a channel: written compressed, and read whatever their colour type and depth.
//
//   write_png("out.png", pixels, 3, height, width);           // u8[3,height,width], atomically
//   const Array picture = read_png("in.png");                 // u8[1,3,height,width]: one sample, channels first
//
// Read: grey, RGB and palette pictures of 1 to 16 bits, with or without transparency, which is dropped; 16 bits are
// rounded to 8. Interlaced pictures are refused. Checksums are verified. Colour profiles and gamma are not applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "array.h"

namespace graven::runtime {

/// Whether it begins like a PNG file.
bool is_png(std::span<const std::byte> data);
/// u8[1,1,height,width] for grey pictures, u8[1,3,height,width] for others. An Error for a damaged file; memory is
/// bounded by the file's size.
Array read_png(const std::string& path, const HeaderCheck& check = no_check);
/// `pixels` is u8[channels,height,width], with 1 channel (grey) or 3 (red, green, blue).
void write_png(const std::string& path, const std::uint8_t* pixels, std::int64_t channels, std::int64_t height,
               std::int64_t width);

/// A zlib stream (RFC 1950) of `data`: one DEFLATE block with fixed codes, matches found by a hash of three bytes.
std::vector<std::byte> zlib_deflate(std::span<const std::byte> data);

}  // namespace graven::runtime
