#include "idx.h"

#include <optional>

#include "error.h"
#include "inflate.h"

namespace graven::runtime {
namespace {

std::optional<DType> dtype_of(unsigned code) {
  switch (code) {
    case 0x08:
      return DType::u8;
    case 0x09:
      return DType::i8;
    case 0x0B:
      return DType::i16;
    case 0x0C:
      return DType::i32;
    case 0x0D:
      return DType::f32;
    case 0x0E:
      return DType::f64;
    default:
      return std::nullopt;
  }
}

constexpr std::size_t kMostHeader = 4 + 4 * 255;

}  // namespace

Array read_idx(const std::string& path, const HeaderCheck& check) {
  Bytes file = Bytes::map(path);
  const std::size_t compressed = is_gzip(file.view) ? file.view.size() : 0;
  const Bytes start = compressed != 0 ? Bytes::hold(gunzip(file.view, path, kMostHeader)) : file;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(start.view[i]); };
  if (start.view.size() < 4) throw Error(path, "IDX header", "4 bytes", std::to_string(start.view.size()));
  if (byte(0) != 0 || byte(1) != 0)
    throw Error(path, "IDX header", "two zero bytes", std::to_string(byte(0)) + " and " + std::to_string(byte(1)));
  const std::optional<DType> dtype = dtype_of(byte(2));
  if (!dtype)
    throw Error(path, "IDX header, byte 2", "an element type 8, 9, 11, 12, 13 or 14", std::to_string(byte(2)));
  const std::size_t rank = byte(3), header = 4 + 4 * rank;
  if (rank == 0) throw Error(path, "IDX header, byte 3", "at least one dimension", "0");
  if (start.view.size() < header)
    throw Error(path, "IDX header", std::to_string(header) + " bytes", std::to_string(start.view.size()));
  Array array{.dtype = *dtype, .shape = {}, .bytes = {}, .path = path, .owner = {}};
  for (std::size_t i = 4; i < header; i += 4)
    array.shape.push_back(byte(i) << 24 | byte(i + 1) << 16 | byte(i + 2) << 8 | byte(i + 3));
  check(array.dtype, array.shape);
  const std::size_t size = size_of(*dtype);
  const std::optional<std::int64_t> bytes = checked_count(array.shape, static_cast<std::int64_t>(size));
  if (!bytes) throw Error(path, "IDX header", "dimensions whose bytes can be counted", describe(*dtype, array.shape));
  const std::uint64_t declared = static_cast<std::uint64_t>(*bytes) + header;
  const auto fail = [&](const std::string& found) {
    throw Error(path, "data", std::to_string(*bytes) + " bytes for " + describe(*dtype, array.shape), found);
  };
  if (compressed != 0) {
    // No more memory than the header declares, whatever the file inflates to, and none for what it cannot hold.
    if (declared > inflated_at_most(compressed)) fail("a file of " + std::to_string(compressed) + " bytes, compressed");
    file = Bytes::hold(gunzip(file.view, path, declared + 1));
    if (file.view.size() > declared) fail("more");
  }
  if (file.view.size() != declared) fail(std::to_string(file.view.size() - header));
  array.bytes = file.view.subspan(header);
  array.owner = file.owner;
  if (size > 1) {
    const Bytes little = swapped(array.bytes, size);
    array.bytes = little.view;
    array.owner = little.owner;
  }
  return array;
}

}  // namespace graven::runtime
