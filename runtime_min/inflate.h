// gzip and zlib, decompressed: DEFLATE (RFC 1951) in either wrapping (RFC 1952, RFC 1950), checksums verified.
//
//   const std::vector<std::byte> plain = gunzip(file.bytes(), file.path());
//
// Memory is bounded by the input: DEFLATE cannot say more than 1032 bytes with one. That is still a thousand times the
// file, so readers of formats that begin with a header take that first, and then no more than it declares. A gzip file
// may have several members, as `cat a.gz b.gz` makes them; bytes after the last are an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace graven::runtime {

/// The first `most` bytes, or all where there are fewer. `file` is for messages: an Error when the data is damaged or
/// truncated. What comes after the first `most` bytes is not looked at, checksums included.
std::vector<std::byte> gunzip(std::span<const std::byte> compressed, const std::string& file,
                              std::uint64_t most = UINT64_MAX);
/// An Error also when it is longer than `limit`.
std::vector<std::byte> zlib_inflate(std::span<const std::byte> compressed, const std::string& file,
                                    std::uint64_t limit = UINT64_MAX);
/// Without any wrapping: exactly `size` bytes, from all of `compressed`, which lies `offset` bytes into the file.
std::vector<std::byte> inflate(std::span<const std::byte> compressed, const std::string& file, std::size_t offset,
                               std::uint64_t size);
/// The first `most` bytes of such data, or all.
std::vector<std::byte> inflate_start(std::span<const std::byte> compressed, const std::string& file, std::size_t offset,
                                     std::uint64_t most);
/// No data of more bytes can be said with `compressed` bytes.
std::uint64_t inflated_at_most(std::uint64_t compressed);
/// Whether it begins like a gzip file.
bool is_gzip(std::span<const std::byte> data);
/// CRC-32 of IEEE 802.3, as gzip has it.
std::uint32_t crc32(std::span<const std::byte> data);
/// Adler-32 of RFC 1950.
std::uint32_t adler32(std::span<const std::byte> data);

}  // namespace graven::runtime
