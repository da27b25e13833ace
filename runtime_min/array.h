// An array as a file holds it: dtype, shape, bytes, and whatever keeps the bytes alive.
//
//   const Array images = read_idx("train-images-idx3-ubyte.gz");   // u8[60000,28,28]
//   images.bytes[0];
//   const Array copy = images;    // the same bytes, shared
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "file.h"
#include "tensor.h"

namespace graven::runtime {

/// Told the dtype and shape of an array as soon as its reader knows them, before anything is decompressed or copied; an
/// Error from it ends the reading.
using HeaderCheck = std::function<void(DType dtype, const Dims& shape)>;
inline void no_check(DType, const Dims&) {}

struct Array {
  DType dtype = DType::u8;
  Dims shape;
  std::span<const std::byte> bytes;  ///< row-major, little-endian, not necessarily aligned; exactly the shape's
  std::string path;                  ///< for messages
  std::shared_ptr<const void> owner;
};

/// Bytes in memory or in a mapping, whichever the reader had to make.
struct Bytes {
  std::span<const std::byte> view;
  std::shared_ptr<const void> owner;

  static Bytes map(const std::string& path) {
    auto file = std::make_shared<const MappedFile>(path);
    return {file->bytes(), file};
  }
  static Bytes hold(std::vector<std::byte> data) {
    auto held = std::make_shared<const std::vector<std::byte>>(std::move(data));
    return {*held, held};
  }
};

/// Big-endian elements of `size` bytes to little-endian ones.
inline Bytes swapped(std::span<const std::byte> from, std::size_t size) {
  std::vector<std::byte> data(from.begin(), from.end());
  for (std::size_t i = 0; i + size <= data.size(); i += size) std::reverse(data.data() + i, data.data() + i + size);
  return Bytes::hold(std::move(data));
}

}  // namespace graven::runtime
