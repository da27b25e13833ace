// gzip and zlib, decompressed: DEFLATE (RFC 1951) in either wrapping (RFC 1952, RFC 1950), checksums verified.
//
//   const std::vector<std::byte> plain = gunzip(file.bytes(), file.path());
//
// Memory is bounded by the input: DEFLATE cannot say more than 1032 bytes with one, and `limit` bounds it further. A gzip file may have
// several members, as `cat a.gz b.gz` makes them; bytes after the last are an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace graven::runtime {

/// `file` is for messages. An Error when the data is damaged, truncated, or longer than `limit`.
std::vector<std::byte> gunzip(std::span<const std::byte> compressed, const std::string& file, std::uint64_t limit = UINT64_MAX);
std::vector<std::byte> zlib_inflate(std::span<const std::byte> compressed, const std::string& file, std::uint64_t limit = UINT64_MAX);
/// Without any wrapping: exactly `size` bytes, from all of `compressed`, which lies `offset` bytes into the file.
std::vector<std::byte> inflate(std::span<const std::byte> compressed, const std::string& file, std::size_t offset, std::uint64_t size);
/// Whether it begins like a gzip file.
bool is_gzip(std::span<const std::byte> data);
/// CRC-32 of IEEE 802.3, as gzip has it.
std::uint32_t crc32(std::span<const std::byte> data);
/// Adler-32 of RFC 1950.
std::uint32_t adler32(std::span<const std::byte> data);

}  // namespace graven::runtime
