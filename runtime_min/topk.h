// The largest scores.
//
//   std::int64_t best[5];
//   const std::int64_t n = topk(scores, 10, 5, best);    // n = 5: their positions, largest first
#pragma once

#include <cstdint>

namespace graven::runtime {

/// Writes the positions of the `k` largest of `n` scores, largest first, and returns how many there are (at most n). Of
/// equal scores the first comes first; NaN is above everything, as in torch.topk: scores that are none are not hidden.
template <class T>
std::int64_t topk(const T* scores, std::int64_t n, std::int64_t k, std::int64_t* positions) {
  std::int64_t found = 0;
  const auto before = [scores](std::int64_t a, std::int64_t b) {
    return scores[a] > scores[b] || (scores[a] != scores[a] && scores[b] == scores[b]);
  };
  for (std::int64_t i = 0; i < n; ++i) {
    if (found == k && (k == 0 || !before(i, positions[k - 1]))) continue;
    std::int64_t at = found < k ? found++ : k - 1;
    for (; at > 0 && before(i, positions[at - 1]); --at) positions[at] = positions[at - 1];
    positions[at] = i;
  }
  return found;
}

}  // namespace graven::runtime
