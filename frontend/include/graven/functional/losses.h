// Losses: PyTorch's functions, defaults and numbers. Each gives its mean unless asked for otherwise.
//
//   Tensor loss = cross_entropy(logits, labels, {.label_smoothing = 0.1});
//   Tensor each = mse_loss(prediction, target, Reduction::none);
#pragma once

#include <cstdint>

#include "graven/tensor.h"

namespace graven {

/// How a loss reduces over its elements; batchmean (the sum divided by the size of dimension 0) is kl_div's alone.
enum class Reduction : std::uint8_t { none, mean, sum, batchmean };

struct CrossEntropyOptions {
  Tensor weight = {};                ///< of the classes, [classes]; none: 1
  std::int64_t ignore_index = -100;  ///< a label that counts neither in the loss nor in the mean
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;  ///< the part of the target that is spread over all classes
};
/// Of logits[classes], [rows, classes] or [batch, classes, d1, ...] and labels i64[], [rows] or [batch, d1, ...], or with probabilities of the
/// logits' shape as targets. The mean is weighted by the labels' weights. A label that is no class is an error when it runs.
Tensor cross_entropy(const Operand& logits, const Operand& target, const CrossEntropyOptions& options = {});
Tensor cross_entropy(const Operand& logits, const Operand& target, Reduction reduction);

struct NllLossOptions {
  Tensor weight = {};
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
};
/// -weight[label] log_probabilities[row, label]: cross_entropy of log_softmax's result.
Tensor nll_loss(const Operand& log_probabilities, const Operand& labels, const NllLossOptions& options = {});
Tensor nll_loss(const Operand& log_probabilities, const Operand& labels, Reduction reduction);

Tensor mse_loss(const Operand& input, const Operand& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Operand& input, const Operand& target, Reduction reduction = Reduction::mean);
/// d^2 / (2 beta) where |d| < beta, |d| - beta / 2 elsewhere; beta 0: l1_loss.
Tensor smooth_l1_loss(const Operand& input, const Operand& target, Reduction reduction = Reduction::mean, double beta = 1);
/// d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere.
Tensor huber_loss(const Operand& input, const Operand& target, Reduction reduction = Reduction::mean, double delta = 1);

struct BinaryCrossEntropyOptions {
  Tensor weight = {};  ///< of the elements, broadcast
  Reduction reduction = Reduction::mean;
  Tensor pos_weight = {};  ///< of the positive targets, broadcast; only with logits
};
/// -weight (target log input + (1 - target) log(1 - input)), the logarithms at least -100. An input or target outside of [0, 1] is an error
/// when it runs.
Tensor binary_cross_entropy(const Operand& input, const Operand& target, const BinaryCrossEntropyOptions& options = {});
/// The same of sigmoid(input), without its rounding: weight ((1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x))).
Tensor binary_cross_entropy_with_logits(const Operand& input, const Operand& target, const BinaryCrossEntropyOptions& options = {});
Tensor binary_cross_entropy_with_logits(const Operand& input, const Operand& target, Reduction reduction);

struct KLDivOptions {
  Reduction reduction = Reduction::mean;
  bool log_target = false;  ///< target is given as its logarithm
};
/// target (log target - input), input being log-probabilities; 0 where target is 0. Use batchmean for the divergence itself.
Tensor kl_div(const Operand& input, const Operand& target, const KLDivOptions& options = {});

}  // namespace graven
