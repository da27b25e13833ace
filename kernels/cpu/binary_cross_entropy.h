// binary_cross_entropy: a loss for each probability x and target t, both in [0, 1]
// (torch.nn.functional.binary_cross_entropy without a reduction):
//
//   loss = -(t max(log x, -100) + (1 - t) max(log(1 - x), -100))
//
//   binary_cross_entropy(threads, binary_cross_entropy_config{.n = 64}, loss, x, t);
//
// Anything outside of [0, 1] is a value_error. loss may be x or t.
#pragma once

#include <cstdint>

#include "../config/binary_cross_entropy.h"
#include "check_value.h"
#include "dtype.h"
#include "level.h"
#include "scalar_math.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void binary_cross_entropy(Threads& threads, const binary_cross_entropy_config& c, T* loss, const T* x,
                                 const T* t, const char* where = "") {
  using C = compute_t<T>;
  check_probabilities("binary_cross_entropy", "input", x, c.n, where);
  check_probabilities("binary_cross_entropy", "target", t, c.n, where);
  constexpr std::int64_t kPiece = 4096;
  threads.run((c.n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t end = (piece + 1) * kPiece < c.n ? (piece + 1) * kPiece : c.n;
    for (std::int64_t i = piece * kPiece; i < end; ++i) {
      const C p = static_cast<C>(x[i]), q = static_cast<C>(t[i]);
      loss[i] = static_cast<T>((q - C(1)) * math::max(math::log1p(-p), C(-100)) - q * math::max(math::log(p), C(-100)));
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
