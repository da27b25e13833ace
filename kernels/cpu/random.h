// dropout: y_i = x_i / (1 - p), or 0 with probability p (Srivastava et al. 2014, scaled while training as in PyTorch).
// The mask is drawn anew from (seed, stream, step, i) wherever it is needed, the gradient is the same call on dy:
// nothing is stored. See config/random.h for the numbers.
//
//   inline constexpr dropout_config drop{.n = 64 * 256, .p = 0.5, .stream = 81985529216486895};
//   dropout(threads, drop, y, x, &hyper.seed, &hyper.step);
//
// y may be x.
#pragma once

#include <cstdint>

#include "../config/random.h"
#include "../config/team.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Blocks of four words that are made together, in loops that become vectors.
inline constexpr int kPhiloxBlocks = 16;
inline constexpr int kPhiloxWords = 4 * kPhiloxBlocks;

/// The words of blocks first to first + 15, in the order of the elements.
inline void philox_words(std::uint64_t key, std::uint64_t first, std::uint64_t step,
                         std::uint32_t (&words)[kPhiloxWords]) {
  std::uint32_t c0[kPhiloxBlocks], c1[kPhiloxBlocks], c2[kPhiloxBlocks], c3[kPhiloxBlocks];
  for (int l = 0; l < kPhiloxBlocks; ++l) {
    const std::uint64_t block = first + static_cast<std::uint64_t>(l);
    c0[l] = static_cast<std::uint32_t>(block);
    c1[l] = static_cast<std::uint32_t>(block >> 32);
    c2[l] = static_cast<std::uint32_t>(step);
    c3[l] = static_cast<std::uint32_t>(step >> 32);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kPhiloxBlocks; ++l) {
      const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0[l], b = std::uint64_t{0xCD9E8D57u} * c2[l];
      c0[l] = static_cast<std::uint32_t>(b >> 32) ^ c1[l] ^ k0;
      c1[l] = static_cast<std::uint32_t>(b);
      c2[l] = static_cast<std::uint32_t>(a >> 32) ^ c3[l] ^ k1;
      c3[l] = static_cast<std::uint32_t>(a);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int l = 0; l < kPhiloxBlocks; ++l) {
    words[4 * l] = c0[l];
    words[4 * l + 1] = c1[l];
    words[4 * l + 2] = c2[l];
    words[4 * l + 3] = c3[l];
  }
}

}  // namespace detail

template <class T>
inline void dropout(Threads& threads, const dropout_config& c, T* y, const plain_t<T>* x, const std::int64_t* seed,
                    const std::int64_t* step) {
  using C = compute_t<T>;
  constexpr std::int64_t kPiece = 128 * detail::kPhiloxWords;
  const std::uint64_t key = static_cast<std::uint64_t>(*seed) ^ static_cast<std::uint64_t>(c.stream),
                      at = static_cast<std::uint64_t>(*step);
  const std::uint32_t threshold = dropout_threshold(c.p);
  const C scale = c.p < 1 ? static_cast<C>(1 / (1 - c.p)) : C(0);
  const bool any = c.p < 1;
  // Elements `first` to `last` of the whole tensor, which lie from y + first on, less `offset`.
  const auto drop = [&](std::int64_t first, std::int64_t last, std::int64_t offset) {
    std::uint32_t words[detail::kPhiloxWords];
    for (std::int64_t begin = first / 4 * 4; begin < last; begin += detail::kPhiloxWords) {
      detail::philox_words(key, static_cast<std::uint64_t>(begin / 4), at, words);
      if (begin >= first && last - begin >= detail::kPhiloxWords && any) {
        const plain_t<T>* const from = x + (begin - offset);
        T* const to = y + (begin - offset);
        for (int l = 0; l < detail::kPhiloxWords; ++l) {
          const C scaled = static_cast<C>(from[l]) * scale;
          to[l] = static_cast<T>(words[l] >= threshold ? scaled : C(0));
        }
      } else {
        const std::int64_t end = begin + detail::kPhiloxWords < last ? begin + detail::kPhiloxWords : last;
        for (std::int64_t i = begin < first ? first : begin; i < end; ++i) {
          const C scaled = static_cast<C>(x[i - offset]) * scale;
          y[i - offset] = static_cast<T>(any && words[i - begin] >= threshold ? scaled : C(0));
        }
      }
    }
  };
  // Without ranks the tensor is one run.
  const std::int64_t run = c.ranks > 1 ? c.run : c.n, rank = threads.team() != nullptr ? threads.team()->rank() : 0;
  if (run == 0) return;
  const std::int64_t in_run = (run + kPiece - 1) / kPiece;
  threads.run(c.n / run * in_run, [&](std::int64_t piece) {
    const std::int64_t r = piece / in_run, begin = piece % in_run * kPiece,
                       end = begin + kPiece < run ? begin + kPiece : run;
    const std::int64_t whole = c.ranks > 1 ? (r * c.ranks + rank) * run : 0;
    drop(whole + begin, whole + end, whole - r * run);
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
