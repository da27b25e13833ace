// IDX files, as MNIST and Fashion-MNIST come; gzipped ones are decompressed.
//
//   const Array images = read_idx("train-images-idx3-ubyte.gz");   // u8[60000,28,28]
//
// Two zero bytes, the element type (0x08 u8, 0x09 i8, 0x0B i16, 0x0C i32, 0x0D f32, 0x0E f64), the rank, the dimensions
// as big-endian u32, the data, big-endian. Anything missing or left over is an Error. Of a gzipped file no more is
// decompressed than its header declares.
#pragma once

#include <string>

#include "array.h"

namespace graven::runtime {

Array read_idx(const std::string& path, const HeaderCheck& check = no_check);

}  // namespace graven::runtime
