// NumPy's .npy files, versions 1 to 3: read and written.
//
//   const Array images = read_npy("images.npy");          // mapped: u8[100,28,28]
//   NpyWriter out("logits.npy", DType::f32, {100, 10});
//   out.write(rows, bytes);                               // in pieces, as they come
//   out.commit();                                         // atomically; exactly the shape's bytes must have come
//
// Big-endian data is converted. Refused with an Error: objects, structures, strings, complex numbers, and Fortran order
// (unless at most one dimension exceeds 1, where both orders agree). bfloat16, which NumPy lacks, is written as f32.
#pragma once

#include <cstdint>
#include <string>

#include "array.h"
#include "file.h"

namespace graven::runtime {

Array read_npy(const std::string& path, const HeaderCheck& check = no_check);
/// Of bytes that are a whole npy file; `path` is for messages.
Array parse_npy(const Bytes& file, const std::string& path, const HeaderCheck& check = no_check);
/// What the first bytes of an npy file say of the rest.
struct NpyHeader {
  DType dtype = DType::u8;
  Dims shape;
  bool big_endian = false;
  std::size_t bytes = 0;  ///< of the header; the data follows
};
/// No header that describes numbers needs more.
constexpr std::size_t kMostNpyHeader = 12 + 65535;
/// Of a file of `size` bytes, of which `start` are the first kMostNpyHeader, or all. An Error where the data's size is
/// not the shape's.
NpyHeader parse_npy_header(std::span<const std::byte> start, std::uint64_t size, const std::string& path);
bool is_npy(std::span<const std::byte> data);

class NpyWriter {
 public:
  NpyWriter(const std::string& path, DType dtype, const Dims& shape);
  /// The next bytes of the data, elements of the dtype given, whole.
  void write(const void* data, std::size_t bytes);
  void commit();

 private:
  AtomicFile file_;
  std::string path_;
  DType dtype_;
  std::uint64_t due_;
};

}  // namespace graven::runtime
