// SHA-256 (FIPS 180-4), for the manifests of checkpoints.
//
//   sha256(file.bytes());     // 64 hexadecimal digits
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace graven::runtime {

inline std::string sha256(std::span<const std::byte> data) {
  static constexpr std::uint32_t kRound[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

  const auto block = [&state](const std::byte* bytes) {
    std::uint32_t w[64];
    for (std::size_t i = 0; i < 16; ++i) {
      std::uint32_t word;
      std::memcpy(&word, bytes + 4 * i, 4);
      w[i] = __builtin_bswap32(word);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    std::uint32_t s[8];
    std::memcpy(s, state, sizeof s);
    // Eight rounds at a time: instead of moving the eight words along, each round calls them by other names.
    const auto round = [&](std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t& d, std::uint32_t e,
                           std::uint32_t f, std::uint32_t g, std::uint32_t& h, std::size_t i) {
      const std::uint32_t choice = g ^ (e & (f ^ g)), majority = (a & b) | (c & (a | b));
      const std::uint32_t first =
          h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + kRound[i] + w[i];
      d += first;
      h = first + (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
    };
    for (std::size_t i = 0; i < 64; i += 8) {
      round(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], i);
      round(s[7], s[0], s[1], s[2], s[3], s[4], s[5], s[6], i + 1);
      round(s[6], s[7], s[0], s[1], s[2], s[3], s[4], s[5], i + 2);
      round(s[5], s[6], s[7], s[0], s[1], s[2], s[3], s[4], i + 3);
      round(s[4], s[5], s[6], s[7], s[0], s[1], s[2], s[3], i + 4);
      round(s[3], s[4], s[5], s[6], s[7], s[0], s[1], s[2], i + 5);
      round(s[2], s[3], s[4], s[5], s[6], s[7], s[0], s[1], i + 6);
      round(s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[0], i + 7);
    }
    for (std::size_t k = 0; k < 8; ++k) state[k] += s[k];
  };

  std::size_t at = 0;
  for (; data.size() - at >= 64; at += 64) block(data.data() + at);
  std::byte tail[128] = {};
  const std::size_t rest = data.size() - at, blocks = rest < 56 ? 1 : 2;
  if (rest != 0) std::memcpy(tail, data.data() + at, rest);
  tail[rest] = std::byte{0x80};
  const std::uint64_t bits = static_cast<std::uint64_t>(data.size()) * 8;
  for (std::size_t i = 0; i < 8; ++i) tail[64 * blocks - 1 - i] = static_cast<std::byte>(bits >> (8 * i));
  for (std::size_t b = 0; b < blocks; ++b) block(tail + 64 * b);

  std::string text;
  for (const std::uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

}  // namespace graven::runtime
