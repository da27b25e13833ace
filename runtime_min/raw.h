// Raw files: nothing but samples, one after another, whose dtype and shape the reader is told.
//
//   const Array images = read_raw("images.bin", DType::f32, {1, 28, 28});   // f32[n,1,28,28], n from the file's size
#pragma once

#include <optional>
#include <string>

#include "array.h"
#include "error.h"

namespace graven::runtime {

/// The file must hold a whole number of samples.
inline Array read_raw(const std::string& path, DType dtype, const Dims& sample) {
  Bytes file = Bytes::map(path);
  const std::optional<std::int64_t> bytes = checked_count(sample, static_cast<std::int64_t>(size_of(dtype)));
  const auto size = static_cast<std::int64_t>(file.view.size());
  if (!bytes || *bytes == 0) throw Error(path, "", "samples of at least one byte", describe(dtype, sample));
  if (size % *bytes != 0) {
    throw Error(path, "", std::string("samples of ") + std::to_string(*bytes) + " bytes, " + describe(dtype, sample),
                std::to_string(size) + " bytes (" + std::to_string(size % *bytes) + " after the last sample)");
  }
  Dims shape = sample;
  shape.insert(shape.begin(), size / *bytes);
  return {.dtype = dtype, .shape = std::move(shape), .bytes = file.view, .path = path, .owner = file.owner};
}

}  // namespace graven::runtime
