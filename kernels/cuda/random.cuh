// Random numbers by Philox4x32-10; config/random.h says which word is whose, so that they are those of the CPU.
//
//   random_uniform: y_i = (word >> 8) 2^-24, in [0, 1)
//   random_normal:  y_2j = r cos a, y_2j+1 = r sin a, r = sqrt(-2 ln u), a = 2 pi v   (Box and Muller 1958),
//                   u in (0, 1] and v in [0, 1) from words 2j and 2j + 1
//   dropout:        y_i = x_i / (1 - p), or 0 where the word is below p 2^32
//
//   dropout(context, dropout_config{.n = 64 * 256, .p = 0.5, .stream = 7}, y, x, seed, step);
//
// seed and step lie on the device. A thread draws the four words of a counter, some 80
// instructions, and stores their four numbers at once where y lies at 16 bytes; dropout reads x once and writes y once,
// at the speed of memory. y may be x.
#pragma once

#include "../config/random.h"
#include "items.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

struct random_words {
  std::uint32_t word[4];
};
/// The words of elements 4 * block to 4 * block + 3.
__device__ inline random_words draw(std::int64_t seed, std::int64_t stream, std::int64_t step, std::int64_t block) {
  const std::uint64_t key = static_cast<std::uint64_t>(seed) ^ static_cast<std::uint64_t>(stream);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(block),
                c1 = static_cast<std::uint32_t>(static_cast<std::uint64_t>(block) >> 32),
                c2 = static_cast<std::uint32_t>(step),
                c3 = static_cast<std::uint32_t>(static_cast<std::uint64_t>(step) >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0, b = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(b);
    c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Loads or stores the elements of a counter, those of a last one that are there, 16 bytes at a time where `vectors`.
template <class T>
__device__ inline void load_four(T (&to)[4], const T* from, std::int64_t count, bool vectors) {
  if (vectors && count >= 4) {
    load_vector(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = i < count ? from[i] : T(0);
  }
}
template <class T>
__device__ inline void store_four(T* to, const T (&from)[4], std::int64_t count, bool vectors) {
  if (vectors && count >= 4) {
    store_vector(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < count) to[i] = from[i];
  }
}

/// `vectors`: y, and x, lie at 16 bytes.
template <class T>
__global__ void random_uniform_kernel(random_config config, bool vectors, T* y, const std::int64_t* seed,
                                      const std::int64_t* step) {
  for (std::int64_t block = first_item(); block * 4 < config.n; block += item_stride()) {
    const random_words words = draw(*seed, config.stream, *step, block);
    T values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = static_cast<T>(words.word[i] >> 8) * T(0x1p-24);  // 24 bits: exact
    store_four(y + block * 4, values, config.n - block * 4, vectors);
  }
}

template <class T>
__global__ void random_normal_kernel(random_config config, bool vectors, T* y, const std::int64_t* seed,
                                     const std::int64_t* step) {
  for (std::int64_t block = first_item(); block * 4 < config.n; block += item_stride()) {
    const random_words words = draw(*seed, config.stream, *step, block);
    T values[4];
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const double u = (static_cast<double>(words.word[i] >> 8) + 1) * 0x1p-24;
      const double v = static_cast<double>(words.word[i + 1] >> 8) * 0x1p-24;
      const double radius = math::sqrt(-2 * math::log(u)), angle = 6.283185307179586 * v;
      values[i] = static_cast<T>(radius * math::cos(angle));
      values[i + 1] = static_cast<T>(radius * math::sin(angle));
    }
    store_four(y + block * 4, values, config.n - block * 4, vectors);
  }
}

/// `all`: nothing is kept. `scale`: 1 / (1 - p). `rank`: of config.ranks.
template <class T>
__global__ void dropout_kernel(dropout_config config, std::int64_t rank, bool all, std::uint32_t threshold,
                               compute_t<T> scale, bool vectors, T* y, const T* x, const std::int64_t* seed,
                               const std::int64_t* step) {
  for (std::int64_t block = first_item(); block * 4 < config.n; block += item_stride()) {
    const std::int64_t count = config.n - block * 4;
    T values[4];
    load_four(values, x + block * 4, count, vectors);
    // Where the rank's i-th element stands in the whole tensor.
    const auto place_of = [&](std::int64_t i) {
      return config.ranks > 1 ? (i / config.run * config.ranks + rank) * config.run + i % config.run : i;
    };
    const bool apart = config.ranks > 1 && config.run % 4 != 0;  // their words are not those of one counter
    const random_words words = draw(*seed, config.stream, *step, place_of(block * 4) / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t word = words.word[i];
      if (apart && i < count) {
        const std::int64_t place = place_of(block * 4 + i);
        const random_words own = draw(*seed, config.stream, *step, place / 4);
        word = own.word[0];
#pragma unroll
        for (int of = 1; of < 4; ++of)
          if (place % 4 == of) word = own.word[of];
      }
      values[i] = !all && word >= threshold ? static_cast<T>(static_cast<compute_t<T>>(values[i]) * scale) : T(0);
    }
    store_four(y + block * 4, values, count, vectors);
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void random_uniform(CudaContext& context, const random_config& config, T* y, const std::int64_t* seed,
                    const std::int64_t* step) {
  launch(context, "random_uniform", &random_uniform_kernel<T>, launch_shape((config.n + 3) / 4), config,
         aligned_for_vectors<4>(y), y, seed, step);
}
template <class T>
void random_normal(CudaContext& context, const random_config& config, T* y, const std::int64_t* seed,
                   const std::int64_t* step) {
  launch(context, "random_normal", &random_normal_kernel<T>, launch_shape((config.n + 3) / 4), config,
         aligned_for_vectors<4>(y), y, seed, step);
}
template <class T>
void dropout(CudaContext& context, const dropout_config& config, T* y, const T* x, const std::int64_t* seed,
             const std::int64_t* step) {
  launch(context, "dropout", &dropout_kernel<T>, launch_shape((config.n + 3) / 4), config, rank_in_team(context),
         config.p >= 1, dropout_threshold(config.p), static_cast<compute_t<T>>(1 / (1 - config.p)),
         aligned_for_vectors<4>(y, x), y, x, seed, step);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
