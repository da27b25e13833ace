// Streams of tokens, cut into the windows that a language model is trained on.
//
//   Dataset data("corpus.txt");
//   add_tokens(data, read_text("corpus.txt"), 64, {"tokens", "targets"});
//   // sample i: tokens 64 i to 64 i + 63, and as targets the same moved on by one;
//   // a stream of n tokens gives (n - 1) / 64 samples
//
// A text's tokens are its bytes, 0 to 255. Token files are llm.c's: 256 little-endian 32-bit numbers of header
// (20240520, version 1, count), then 16-bit tokens; or (20240801, version 7, count) and 32-bit tokens. Both are used
// where they lie: nothing is copied but batches.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "array.h"
#include "dataset.h"
#include "error.h"

namespace graven::runtime {

inline constexpr std::int64_t kTokenHeaderBytes = 1024;
inline constexpr std::uint32_t kTokenMagic16 = 20240520, kTokenMagic32 = 20240801;

inline std::uint32_t token_header(std::span<const std::byte> file, std::size_t index) {
  std::uint32_t number = 0;
  std::memcpy(&number, file.data() + 4 * index, 4);
  return number;
}

/// Whether the file begins as a token file does.
inline bool is_tokens(std::span<const std::byte> file) {
  return file.size() >= 4 && (token_header(file, 0) == kTokenMagic16 || token_header(file, 0) == kTokenMagic32);
}

/// u8[n].
inline Array read_text(const std::string& path) {
  Bytes file = Bytes::map(path);
  const auto n = static_cast<std::int64_t>(file.view.size());
  return {.dtype = DType::u8, .shape = {n}, .bytes = file.view, .path = path, .owner = file.owner};
}

/// u16[n] or u32[n]. The file must hold exactly as many tokens as its header says.
inline Array read_tokens(const std::string& path) {
  Bytes file = Bytes::map(path);
  const auto size = static_cast<std::int64_t>(file.view.size());
  if (size < kTokenHeaderBytes)
    throw Error(path, "header", std::to_string(kTokenHeaderBytes) + " bytes", std::to_string(size));
  if (!is_tokens(file.view))
    throw Error(path, "byte 0", "20240520 or 20240801, as llm.c's token files have",
                std::to_string(token_header(file.view, 0)));
  const bool wide = token_header(file.view, 0) == kTokenMagic32;
  const std::uint32_t version = token_header(file.view, 1), expected = wide ? 7 : 1;
  if (version != expected) throw Error(path, "byte 4", "version " + std::to_string(expected), std::to_string(version));
  const std::int64_t count = token_header(file.view, 2), bytes = count * (wide ? 4 : 2);
  if (size - kTokenHeaderBytes != bytes)
    throw Error(path, "tokens", std::to_string(bytes) + " bytes for " + std::to_string(count) + " tokens",
                std::to_string(size - kTokenHeaderBytes));
  return {.dtype = wide ? DType::u32 : DType::u16,
          .shape = {count},
          .bytes = file.view.subspan(static_cast<std::size_t>(kTokenHeaderBytes)),
          .path = path,
          .owner = file.owner};
}

/// Adds windows of `length` tokens under the first name, and with a second one the targets: the same moved on by one.
/// Tokens at the end that fill no window are left out.
inline void add_tokens(Dataset& data, const Array& stream, std::int64_t length, const std::vector<std::string>& names) {
  const auto element = static_cast<std::int64_t>(size_of(stream.dtype));
  const auto shift = static_cast<std::int64_t>(names.size()) - 1;
  const std::int64_t count = length < 1 ? 0 : (stream.shape[0] - shift) / length;
  if (count < 1)
    throw Error(stream.path, "", std::to_string(length + shift) + " tokens at least", std::to_string(stream.shape[0]));
  std::vector<Field> fields;
  std::vector<const std::byte*> starts;
  for (std::size_t i = 0; i < names.size(); ++i) {
    fields.push_back({names[i], stream.dtype, {length}});
    starts.push_back(stream.bytes.data() + static_cast<std::int64_t>(i) * element);
  }
  data.append(fields, starts, length * element, count, stream.owner);
}

}  // namespace graven::runtime
