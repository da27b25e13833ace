// cross_entropy of logits[rows,classes] with labels[rows], and its gradient (torch.nn.functional.cross_entropy).
//
//   loss_r = -log softmax(logits_r)[labels_r];   loss = the mean or the sum over the rows, or loss[rows]
//   dlogits[r,c] = dloss (softmax(logits_r)[c] - (c == labels_r))        dloss / rows for the mean, dloss[r] without reduction
//
//   inline constexpr cross_entropy_config loss_fn{.rows = 64, .classes = 10, .reduction = 1};
//   cross_entropy(threads, loss_fn, loss, probabilities, logits, labels);
//   cross_entropy_backward(threads, loss_fn, dlogits, dloss, probabilities, labels);
//
// A row whose label is outside [0, classes) has no loss and no gradient, as PyTorch's ignore_index has; the mean is over the other rows (NaN when
// there are none). probabilities is nullptr when nobody needs the gradient; it may be logits, and dlogits may be probabilities.
#pragma once

#include <cstdint>

#include "../config/cross_entropy.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "scalar_math.h"
#include "softmax.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

inline std::int64_t valid_labels(const cross_entropy_config& c, const std::int64_t* labels) {
  std::int64_t count = 0;
  for (std::int64_t r = 0; r < c.rows; ++r) count += (labels[r] >= 0) & (labels[r] < c.classes);
  return count;
}

}  // namespace detail

template <class T>
inline void cross_entropy(Threads& threads, const cross_entropy_config& c, T* loss, plain_t<T>* probabilities, const plain_t<T>* logits,
                          const std::int64_t* labels) {
  using C = compute_t<T>;
  // At most 64 pieces, whose sums are added up in order.
  constexpr std::int64_t kPieces = 64;
  const std::int64_t least = detail::kSoftmaxPiece / (c.classes + 1) + 1, even = (c.rows + kPieces - 1) / kPieces, each = even > least ? even : least;
  const std::int64_t pieces = (c.rows + each - 1) / each;
  double sums[kPieces];
  threads.run(pieces, [&](std::int64_t piece) {
    double sum = 0;
    for (std::int64_t r = piece * each; r < c.rows && r < (piece + 1) * each; ++r) {
      const bool valid = labels[r] >= 0 && labels[r] < c.classes;
      const C target = valid ? static_cast<C>(logits[r * c.classes + labels[r]]) : C(0);
      C row = 0;
      if (c.classes > 0) {
        T* const p = probabilities == nullptr ? nullptr : probabilities + r * c.classes;
        const auto line = detail::line_sum<T>(logits + r * c.classes, c.classes, p);
        if (p != nullptr) detail::scale_line(p, c.classes, C(1) / line.sum);
        if (valid) row = math::log(line.sum) + (line.most - target);
      }
      if (c.reduction == 0) loss[r] = static_cast<T>(row);
      sum += static_cast<double>(row);
    }
    sums[piece] = sum;
  });
  if (c.reduction == 0) return;
  double total = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) total += sums[piece];
  *loss = static_cast<T>(c.reduction == 1 ? total / static_cast<double>(detail::valid_labels(c, labels)) : total);
}

template <class T>
inline void cross_entropy_backward(Threads& threads, const cross_entropy_config& c, T* dlogits, const plain_t<T>* dloss,
                                   const plain_t<T>* probabilities, const std::int64_t* labels) {
  using C = compute_t<T>;
  if (c.rows == 0) return;
  const C mean = c.reduction == 1 ? static_cast<C>(*dloss) / static_cast<C>(detail::valid_labels(c, labels)) : C(0);
  detail::for_lines(threads, c.rows, c.classes, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const bool valid = labels[r] >= 0 && labels[r] < c.classes;
      const C scale = c.reduction == 1 ? mean : static_cast<C>(dloss[c.reduction == 0 ? r : 0]);
      const T* const p = probabilities + r * c.classes;
      T* const d = dlogits + r * c.classes;
      if (!valid) {
        for (std::int64_t k = 0; k < c.classes; ++k) d[k] = static_cast<T>(0);
        continue;
      }
      const C target = (static_cast<C>(p[labels[r]]) - C(1)) * scale;
      for (std::int64_t k = 0; k < c.classes; k += detail::kGroup) {
        detail::Group<T> g(p + k, c.classes - k, C(0));
        for (int l = 0; l < detail::kGroup; ++l) g.value[l] *= scale;
        g.store(d + k, c.classes - k);
      }
      d[labels[r]] = static_cast<T>(target);
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
