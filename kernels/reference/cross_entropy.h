// cross_entropy of logits[rows,classes] with labels[rows], and its gradient, as plain loops
// (torch.nn.functional.cross_entropy). With p = softmax(logits), e = label_smoothing, w = weight[classes] (or 1), y =
// labels[r]:
//
//   loss_r = -(1 - e) w_y log p_y - e / classes sum over c of w_c log p_c
//   loss = loss[rows], or its sum, or that divided by the sum of w_y
//   dlogits[r,c] = scale (p_c ((1 - e) w_y + e / classes sum of w) - (c == y) (1 - e) w_y - e / classes w_c)
//                  scale = dloss[r], or dloss, or dloss / sum of w_y
//
//   reference::cross_entropy(cross_entropy_config{.rows = 64, .classes = 10, .reduction = 1}, loss, probabilities,
//                            logits, labels, nullptr);
//
// A row whose label is ignore_index has no loss and no gradient; the mean is over the other rows (NaN when there are
// none). Any other label outside of [0, classes) is an index_error. weight may be nullptr; probabilities[rows,classes]
// is nullptr when nobody needs the gradient.
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/cross_entropy.h"
#include "../cpu/check_index.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// Throws where a label is neither a class nor the ignored one.
inline void check_labels(const cross_entropy_config& c, const std::int64_t* labels, const char* where) {
  for (std::int64_t r = 0; r < c.rows; ++r)
    if (labels[r] != c.ignore_index && (labels[r] < 0 || labels[r] >= c.classes))
      throw index_error("cross_entropy", "label", labels[r], r, c.classes, where);
}

template <class T>
void cross_entropy(const cross_entropy_config& c, T* loss, plain_t<T>* probabilities, const plain_t<T>* logits,
                   const std::int64_t* labels, const plain_t<T>* weight = nullptr, const char* where = "") {
  using C = compute_t<T>;
  check_labels(c, labels, where);
  const C smoothing = static_cast<C>(c.label_smoothing);
  C total = 0, weights = 0;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const T* const x = logits + r * c.classes;
    C most = c.classes > 0 ? C(x[0]) : C(0), sum = 0, spread = 0;
    for (std::int64_t k = 1; k < c.classes; ++k)
      if (C(x[k]) > most || C(x[k]) != C(x[k])) most = C(x[k]);
    for (std::int64_t k = 0; k < c.classes; ++k) sum += std::exp(C(x[k]) - most);
    for (std::int64_t k = 0; k < c.classes; ++k)
      spread += (weight ? C(weight[k]) : C(1)) * (std::log(sum) + most - C(x[k]));
    if (probabilities != nullptr)
      for (std::int64_t k = 0; k < c.classes; ++k)
        probabilities[r * c.classes + k] = static_cast<T>(std::exp(C(x[k]) - most) / sum);
    C row = 0;
    if (labels[r] != c.ignore_index) {
      const C own = weight ? C(weight[labels[r]]) : C(1);
      row = (1 - smoothing) * own * (std::log(sum) + most - C(x[labels[r]]));
      if (smoothing > 0) row += smoothing / static_cast<C>(c.classes) * spread;
      weights += own;
    }
    if (c.reduction == 0) loss[r] = static_cast<T>(row);
    total += row;
  }
  if (c.reduction == 1) loss[0] = static_cast<T>(total / weights);
  if (c.reduction == 2) loss[0] = static_cast<T>(total);
}

/// dlogits may be probabilities.
template <class T>
void cross_entropy_backward(const cross_entropy_config& c, T* dlogits, const plain_t<T>* dloss,
                            const plain_t<T>* probabilities, const std::int64_t* labels,
                            const plain_t<T>* weight = nullptr, const char* where = "") {
  using C = compute_t<T>;
  check_labels(c, labels, where);
  const C smoothing = static_cast<C>(c.label_smoothing);
  C weights = 0, all = 0;
  for (std::int64_t r = 0; r < c.rows; ++r)
    if (labels[r] != c.ignore_index) weights += weight ? C(weight[labels[r]]) : C(1);
  for (std::int64_t k = 0; k < c.classes; ++k) all += weight ? C(weight[k]) : C(1);
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const bool counts = labels[r] != c.ignore_index;
    const C scale = c.reduction == 0 ? C(dloss[r]) : c.reduction == 1 ? C(dloss[0]) / weights : C(dloss[0]);
    const C own = counts ? (1 - smoothing) * (weight ? C(weight[labels[r]]) : C(1)) : C(0),
            spread = smoothing / static_cast<C>(c.classes);
    for (std::int64_t k = 0; k < c.classes; ++k) {
      const C p = C(probabilities[r * c.classes + k]), w = weight ? C(weight[k]) : C(1);
      const C d = p * (own + spread * all) - C(k == labels[r]) * own - spread * w;
      dlogits[r * c.classes + k] = static_cast<T>(counts ? d * scale : C(0));
    }
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
