// cross_entropy of logits[rows,classes] with labels[rows], and its gradient (torch.nn.functional.cross_entropy). With p
// = softmax(logits), e = label_smoothing, w = weight[classes] (or 1), y = labels[r]:
//
//   loss_r = -(1 - e) w_y log p_y - e / classes sum over c of w_c log p_c
//   loss = loss[rows], or its sum, or that divided by the sum of w_y
//   dlogits[r,c] = scale (p_c ((1 - e) w_y + e / classes sum of w) - (c == y) (1 - e) w_y - e / classes w_c)
//                  scale = dloss[r], or dloss, or dloss / sum of w_y
//
//   inline constexpr cross_entropy_config loss_fn{.rows = 64, .classes = 10, .reduction = 1};
//   cross_entropy(threads, loss_fn, loss, probabilities, logits, labels, nullptr);
//   cross_entropy_backward(threads, loss_fn, dlogits, dloss, probabilities, labels, nullptr);
//
// A row whose label is ignore_index has no loss and no gradient; the mean is over the other rows (NaN when there are
// none). Any other label outside of [0, classes) is an index_error. weight may be nullptr; probabilities[rows,classes]
// is nullptr when nobody needs the gradient; it may be logits, and dlogits may be probabilities.
#pragma once

#include <cstdint>

#include "../config/cross_entropy.h"
#include "check_index.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "scalar_math.h"
#include "softmax.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Throws where a label is neither a class nor the ignored one. Otherwise the sum of the rows' weights.
template <class T>
inline double check_labels(const cross_entropy_config& c, const std::int64_t* labels, const T* weight,
                           const char* where) {
  double sum = 0;
  std::int64_t counted = 0;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    if (labels[r] == c.ignore_index) continue;
    if (labels[r] < 0 || labels[r] >= c.classes)
      throw index_error("cross_entropy", "label", labels[r], r, c.classes, where);
    ++counted;
    if (weight != nullptr) sum += static_cast<double>(weight[labels[r]]);
  }
  return weight == nullptr ? static_cast<double>(counted) : sum;
}
/// The sum of the classes' weights.
template <class T>
inline double sum_of_weights(const cross_entropy_config& c, const T* weight) {
  if (weight == nullptr) return static_cast<double>(c.classes);
  double sum = 0;
  for (std::int64_t k = 0; k < c.classes; ++k) sum += static_cast<double>(weight[k]);
  return sum;
}

}  // namespace detail

template <class T>
inline void cross_entropy(Threads& threads, const cross_entropy_config& c, T* loss, plain_t<T>* probabilities,
                          const plain_t<T>* logits, const std::int64_t* labels, const plain_t<T>* weight = nullptr,
                          const char* where = "") {
  using C = compute_t<T>;
  const double weights = detail::check_labels<T>(c, labels, weight, where);
  const C smoothing = static_cast<C>(c.label_smoothing),
          all = smoothing > 0 ? static_cast<C>(detail::sum_of_weights<T>(c, weight)) : C(0);
  // At most 64 pieces, whose sums are added up in order.
  constexpr std::int64_t kPieces = 64;
  const std::int64_t least = detail::kSoftmaxPiece / (c.classes + 1) + 1, even = (c.rows + kPieces - 1) / kPieces,
                     each = even > least ? even : least;
  const std::int64_t pieces = (c.rows + each - 1) / each;
  double sums[kPieces];
  threads.run(pieces, [&](std::int64_t piece) {
    double sum = 0;
    const std::int64_t end = (piece + 1) * each < c.rows ? (piece + 1) * each : c.rows;
    for (std::int64_t first = piece * each; first < end; first += detail::kGroup) {
      const std::int64_t rows = end - first < detail::kGroup ? end - first : detail::kGroup;
      const T* const x = logits + first * c.classes;
      T* const p = probabilities == nullptr ? nullptr : probabilities + first * c.classes;
      // What is needed of the logits, read before the probabilities are written over them.
      C target[detail::kGroup], weighted[detail::kGroup];
      for (std::int64_t r = 0; r < rows; ++r) {
        target[r] = labels[first + r] != c.ignore_index ? static_cast<C>(x[r * c.classes + labels[first + r]]) : C(0);
        weighted[r] = C(0);
        if (smoothing > 0)
          for (std::int64_t k = 0; k < c.classes; ++k)
            weighted[r] +=
                (weight == nullptr ? C(1) : static_cast<C>(weight[k])) * static_cast<C>(x[r * c.classes + k]);
      }
      C most[detail::kGroup] = {}, logarithm[detail::kGroup];
      if (c.classes == 0) {
        for (int l = 0; l < detail::kGroup; ++l) logarithm[l] = C(1);
      } else if (c.classes <= detail::kGroup) {
        detail::short_line_sums<T>(x, rows, c.classes, p, most, logarithm);
      } else {
        for (int l = 0; l < detail::kGroup; ++l) logarithm[l] = C(1);
        for (std::int64_t r = 0; r < rows; ++r) {
          T* const line = p == nullptr ? nullptr : p + r * c.classes;
          const auto found = detail::line_sum<T>(x + r * c.classes, c.classes, line);
          if (line != nullptr) detail::scale_line(line, c.classes, C(1) / found.sum);
          most[r] = found.most;
          logarithm[r] = found.sum;
        }
      }
      for (int l = 0; l < detail::kGroup; ++l) logarithm[l] = math::log(logarithm[l]);
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t label = labels[first + r];
        C row = 0;
        if (label != c.ignore_index && c.classes > 0) {
          row = logarithm[r] + (most[r] - target[r]);
          if (weight != nullptr || smoothing > 0)
            row *= (C(1) - smoothing) * (weight == nullptr ? C(1) : static_cast<C>(weight[label]));
          if (smoothing > 0)
            row += smoothing / static_cast<C>(c.classes) * (all * (logarithm[r] + most[r]) - weighted[r]);
        }
        if (c.reduction == 0) loss[first + r] = static_cast<T>(row);
        sum += static_cast<double>(row);
      }
    }
    sums[piece] = sum;
  });
  if (c.reduction == 0) return;
  double total = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) total += sums[piece];
  *loss = static_cast<T>(c.reduction == 1 ? total / weights : total);
}

template <class T>
inline void cross_entropy_backward(Threads& threads, const cross_entropy_config& c, T* dlogits, const plain_t<T>* dloss,
                                   const plain_t<T>* probabilities, const std::int64_t* labels,
                                   const plain_t<T>* weight = nullptr, const char* where = "") {
  using C = compute_t<T>;
  const double weights = detail::check_labels<T>(c, labels, weight, where);
  if (c.rows == 0) return;
  const C mean = c.reduction == 1 ? static_cast<C>(*dloss) / static_cast<C>(weights) : C(0);
  const C smoothing = static_cast<C>(c.label_smoothing),
          spread = smoothing / static_cast<C>(c.classes > 0 ? c.classes : 1);
  const C all = smoothing > 0 ? static_cast<C>(detail::sum_of_weights<T>(c, weight)) : C(0);
  detail::for_lines(threads, c.rows, c.classes, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const C scale = c.reduction == 1 ? mean : static_cast<C>(dloss[c.reduction == 0 ? r : 0]);
      const T* const p = probabilities + r * c.classes;
      T* const d = dlogits + r * c.classes;
      if (labels[r] == c.ignore_index) {
        for (std::int64_t k = 0; k < c.classes; ++k) d[k] = static_cast<T>(0);
        continue;
      }
      const C own = (C(1) - smoothing) * (weight == nullptr ? C(1) : static_cast<C>(weight[labels[r]])),
              factor = (own + spread * all) * scale;
      const C own_class = weight == nullptr ? C(1) : static_cast<C>(weight[labels[r]]);
      const C target = static_cast<C>(p[labels[r]]) * factor - (own + spread * own_class) * scale;
      for (std::int64_t k = 0; k < c.classes; k += detail::kGroup) {
        detail::Group<T> g(p + k, c.classes - k, C(0));
        for (int l = 0; l < detail::kGroup; ++l) g.value[l] *= factor;
        g.store(d + k, c.classes - k);
      }
      if (smoothing > 0)
        for (std::int64_t k = 0; k < c.classes; ++k)
          d[k] = static_cast<T>(static_cast<C>(d[k]) -
                                spread * scale * (weight == nullptr ? C(1) : static_cast<C>(weight[k])));
      d[labels[r]] = static_cast<T>(target);
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
