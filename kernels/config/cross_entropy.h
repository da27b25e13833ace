// cross_entropy: the mean, sum or list over rows of -log softmax(logits)[row, labels[row]].
#pragma once

#include <cstdint>

namespace graven::kernels {

struct cross_entropy_config {
  std::int64_t rows;
  std::int64_t classes;
  std::int64_t reduction;            ///< 0: none, loss[rows]; 1: mean over the rows; 2: sum
  std::int64_t ignore_index = -100;  ///< a label whose rows have no loss and no gradient
  double label_smoothing = 0;        ///< the part of the target that is spread over all classes
};

}  // namespace graven::kernels
