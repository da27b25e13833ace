// cross_entropy: the mean, sum or list over rows of -log softmax(logits)[row, labels[row]].
#pragma once

#include <cstdint>

namespace graven::kernels {

struct cross_entropy_config {
  std::int64_t rows;
  std::int64_t classes;
  std::int64_t reduction;  ///< 0: none, loss[rows]; 1: mean over the rows; 2: sum
};

}  // namespace graven::kernels
