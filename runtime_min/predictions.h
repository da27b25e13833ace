// Which class has the largest score of its row, where several ranks have some of the classes each.
//
//   predictions_of_ranks(scores, rows, 512, Ranks::team());   // rank r has the classes 512 r to 512 r + 511
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ranks.h"

namespace graven::runtime {

/// By row the first of the largest, as torch.argmax has it: NaN is larger than any number. Every rank calls it with its
/// own scores [rows, classes], and all have the result.
template <class T>
std::vector<std::int64_t> predictions_of_ranks(const T* scores, std::int64_t rows, std::int64_t classes, Ranks& ranks) {
  struct Best {
    double score;
    std::int64_t of;
  };
  const auto larger = [](double a, double b) { return b == b && !(a <= b); };
  std::vector<Best> own, all(static_cast<std::size_t>(rows * ranks.size()));
  for (std::int64_t row = 0; row < rows; ++row, scores += classes) {
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < classes; ++c)
      if (larger(static_cast<double>(scores[c]), static_cast<double>(scores[best]))) best = c;
    own.push_back({static_cast<double>(scores[best]), ranks.rank() * classes + best});
  }
  if (ranks.size() == 1) all = own;
  ranks.gather_rows(own.data(), all.data(), own.size() * sizeof(Best));
  std::vector<std::int64_t> found;
  for (std::size_t row = 0; row < own.size(); ++row) {
    Best best = all[row];
    for (std::size_t at = row + own.size(); at < all.size(); at += own.size())
      if (larger(all[at].score, best.score)) best = all[at];
    found.push_back(best.of);
  }
  return found;
}

}  // namespace graven::runtime
