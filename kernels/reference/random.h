// Random numbers by Philox4x32-10, one element after another; see config/random.h for which word is whose.
//
//   random_uniform: y_i = (word >> 8) 2^-24, in [0, 1)
//   random_normal:  y_2j = r cos a, y_2j+1 = r sin a, r = sqrt(-2 ln u), a = 2 pi v   (Box and Muller 1958),
//                   u in (0, 1] and v in [0, 1) from words 2j and 2j + 1
//   dropout:        y_i = x_i / (1 - p), or 0 where the word is below p 2^32
//
//   reference::random_uniform<float>(random_config{.n = 8, .stream = 3}, y, &seed, &step);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/random.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// The random word of element i.
inline std::uint32_t random_word(std::int64_t seed, std::int64_t stream, std::int64_t step, std::int64_t i) {
  const std::uint64_t key = static_cast<std::uint64_t>(seed) ^ static_cast<std::uint64_t>(stream),
                      at = static_cast<std::uint64_t>(step), block = static_cast<std::uint64_t>(i / 4);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t c[4] = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                        static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c[0], b = std::uint64_t{0xCD9E8D57u} * c[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
                                   static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
    for (int w = 0; w < 4; ++w) c[w] = next[w];
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c[i % 4];
}

template <class T>
void random_uniform(const random_config& c, T* y, const std::int64_t* seed, const std::int64_t* step) {
  for (std::int64_t i = 0; i < c.n; ++i)
    y[i] = static_cast<T>(static_cast<double>(random_word(*seed, c.stream, *step, i) >> 8) * 0x1p-24);
}

template <class T>
void random_normal(const random_config& c, T* y, const std::int64_t* seed, const std::int64_t* step) {
  for (std::int64_t i = 0; i < c.n; ++i) {
    const std::int64_t even = i - i % 2;
    const double u = (static_cast<double>(random_word(*seed, c.stream, *step, even) >> 8) + 1) * 0x1p-24;
    const double v = static_cast<double>(random_word(*seed, c.stream, *step, even + 1) >> 8) * 0x1p-24;
    const double radius = std::sqrt(-2 * std::log(u)), angle = 6.283185307179586 * v;
    y[i] = static_cast<T>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }
}

template <class T>
void dropout(const dropout_config& c, T* y, const plain_t<T>* x, const std::int64_t* seed, const std::int64_t* step) {
  using C = compute_t<T>;
  const std::uint32_t threshold = dropout_threshold(c.p);
  for (std::int64_t i = 0; i < c.n; ++i) {
    const std::int64_t place = c.ranks > 1 ? i / c.run * c.ranks * c.run + i % c.run : i;  // of the first rank
    const bool kept = c.p < 1 && random_word(*seed, c.stream, *step, place) >= threshold;
    y[i] = static_cast<T>(kept ? C(x[i]) * static_cast<C>(1 / (1 - c.p)) : C(0));
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
