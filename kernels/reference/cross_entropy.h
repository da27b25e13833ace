// cross_entropy of logits[rows,classes] with labels[rows], and its gradient, as plain loops (torch.nn.functional.cross_entropy).
//
//   loss_r = -log softmax(logits_r)[labels_r];   loss = the mean or the sum over the rows, or loss[rows]
//   dlogits[r,c] = dloss (softmax(logits_r)[c] - (c == labels_r))        dloss / rows for the mean, dloss[r] without reduction
//
// A row whose label is outside [0, classes) has no loss and no gradient, as PyTorch's ignore_index has; the mean is over the other rows (NaN when
// there are none). probabilities[rows,classes] is nullptr when nobody needs the gradient.
//
//   reference::cross_entropy(cross_entropy_config{.rows = 64, .classes = 10, .reduction = 1}, loss, probabilities, logits, labels);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/cross_entropy.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void cross_entropy(const cross_entropy_config& c, T* loss, plain_t<T>* probabilities, const plain_t<T>* logits, const std::int64_t* labels) {
  using C = compute_t<T>;
  C total = 0;
  std::int64_t counted = 0;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const T* const x = logits + r * c.classes;
    C most = c.classes > 0 ? C(x[0]) : C(0), sum = 0;
    for (std::int64_t k = 1; k < c.classes; ++k)
      if (C(x[k]) > most || C(x[k]) != C(x[k])) most = C(x[k]);
    for (std::int64_t k = 0; k < c.classes; ++k) sum += std::exp(C(x[k]) - most);
    if (probabilities != nullptr)
      for (std::int64_t k = 0; k < c.classes; ++k) probabilities[r * c.classes + k] = static_cast<T>(std::exp(C(x[k]) - most) / sum);
    const bool valid = labels[r] >= 0 && labels[r] < c.classes;
    const C row = valid ? std::log(sum) + most - C(x[labels[r]]) : C(0);
    if (c.reduction == 0) loss[r] = static_cast<T>(row);
    total += row;
    counted += valid;
  }
  if (c.reduction == 1) loss[0] = static_cast<T>(total / static_cast<C>(counted));
  if (c.reduction == 2) loss[0] = static_cast<T>(total);
}

/// dlogits may be probabilities.
template <class T>
void cross_entropy_backward(const cross_entropy_config& c, T* dlogits, const plain_t<T>* dloss, const plain_t<T>* probabilities,
                            const std::int64_t* labels) {
  using C = compute_t<T>;
  std::int64_t counted = 0;
  for (std::int64_t r = 0; r < c.rows; ++r) counted += labels[r] >= 0 && labels[r] < c.classes;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const bool valid = labels[r] >= 0 && labels[r] < c.classes;
    const C scale = c.reduction == 0 ? C(dloss[r]) : c.reduction == 1 ? C(dloss[0]) / static_cast<C>(counted) : C(dloss[0]);
    for (std::int64_t k = 0; k < c.classes; ++k) {
      const C p = C(probabilities[r * c.classes + k]);
      dlogits[r * c.classes + k] = static_cast<T>(valid ? (p - C(k == labels[r])) * scale : C(0));
    }
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
