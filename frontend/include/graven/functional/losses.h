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
/// Of logits[classes], [rows, classes] or [batch, classes, d1, ...] and labels i64[], [rows] or [batch, d1, ...], or
/// with probabilities of the logits' shape as targets. The mean is weighted by the labels' weights. A label that is no
/// class is an error when it runs.
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
Tensor smooth_l1_loss(const Operand& input, const Operand& target, Reduction reduction = Reduction::mean,
                      double beta = 1);
/// d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere.
Tensor huber_loss(const Operand& input, const Operand& target, Reduction reduction = Reduction::mean, double delta = 1);

struct BinaryCrossEntropyOptions {
  Tensor weight = {};  ///< of the elements, broadcast
  Reduction reduction = Reduction::mean;
  Tensor pos_weight = {};  ///< of the positive targets, broadcast; only with logits
};
/// -weight (target log input + (1 - target) log(1 - input)), the logarithms at least -100. An input or target outside
/// of [0, 1] is an error when it runs.
Tensor binary_cross_entropy(const Operand& input, const Operand& target, const BinaryCrossEntropyOptions& options = {});
/// The same of sigmoid(input), without its rounding: weight ((1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x))).
Tensor binary_cross_entropy_with_logits(const Operand& input, const Operand& target,
                                        const BinaryCrossEntropyOptions& options = {});
Tensor binary_cross_entropy_with_logits(const Operand& input, const Operand& target, Reduction reduction);

struct KLDivOptions {
  Reduction reduction = Reduction::mean;
  bool log_target = false;  ///< target is given as its logarithm
};
/// target (log target - input), input being log-probabilities; 0 where target is 0. Use batchmean for the divergence
/// itself.
Tensor kl_div(const Operand& input, const Operand& target, const KLDivOptions& options = {});

/// max(0, -target (input1 - input2) + margin), target 1 or -1: input1 is to be the larger (smaller) one.
Tensor margin_ranking_loss(const Operand& input1, const Operand& input2, const Operand& target, double margin = 0,
                           Reduction reduction = Reduction::mean);
/// input where target is 1, max(0, margin - input) where it is -1: of distances.
Tensor hinge_embedding_loss(const Operand& input, const Operand& target, double margin = 1,
                            Reduction reduction = Reduction::mean);
/// 1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1; of [size] with a target of no
/// dimensions, or [batch, size] with [batch].
Tensor cosine_embedding_loss(const Operand& input1, const Operand& input2, const Operand& target, double margin = 0,
                             Reduction reduction = Reduction::mean);

struct TripletMarginLossOptions {
  double margin = 1;
  double p = 2;       ///< of the distances
  double eps = 1e-6;  ///< added to each difference
  bool swap = false;  ///< the smaller one of the negative's distances to anchor and positive (Balntas et al. 2016)
  Reduction reduction = Reduction::mean;
};
/// max(0, d(anchor, positive) - d(anchor, negative) + margin), d over the last dimension.
Tensor triplet_margin_loss(const Operand& anchor, const Operand& positive, const Operand& negative,
                           const TripletMarginLossOptions& options = {});

/// log(1 + exp(-target input)), target 1 or -1.
Tensor soft_margin_loss(const Operand& input, const Operand& target, Reduction reduction = Reduction::mean);

struct MultilabelSoftMarginLossOptions {
  Tensor weight = {};  ///< of the classes, broadcast
  Reduction reduction = Reduction::mean;
};
/// The mean over the last dimension of binary_cross_entropy_with_logits, of targets 0 or 1.
Tensor multilabel_soft_margin_loss(const Operand& input, const Operand& target,
                                   const MultilabelSoftMarginLossOptions& options = {});

struct MultiMarginLossOptions {
  std::int64_t p = 1;  ///< 1 or 2
  double margin = 1;
  Tensor weight = {};  ///< of the label's class, [classes]; none: 1
  Reduction reduction = Reduction::mean;
};
/// The sum over the other classes of max(0, margin - input[label] + input[class])^p, divided by the number of classes;
/// of [classes] or [batch, classes].
Tensor multi_margin_loss(const Operand& input, const Operand& target, const MultiMarginLossOptions& options = {});

struct PoissonNllLossOptions {
  bool log_input = true;  ///< the input is the logarithm of the expected count
  bool full = false;      ///< adds Stirling's approximation of log target!
  double eps = 1e-8;      ///< keeps log(input + eps) finite without log_input
  Reduction reduction = Reduction::mean;
};
/// exp(input) - target input, or input - target log(input + eps).
Tensor poisson_nll_loss(const Operand& input, const Operand& target, const PoissonNllLossOptions& options = {});

struct GaussianNllLossOptions {
  bool full = false;  ///< adds log(2 pi) / 2
  double eps = 1e-6;  ///< the least variance
  Reduction reduction = Reduction::mean;
};
/// (log var + (input - target)^2 / var) / 2; var has the input's shape, or lacks its last dimension, or has 1 there.
Tensor gaussian_nll_loss(const Operand& input, const Operand& target, const Operand& var,
                         const GaussianNllLossOptions& options = {});

}  // namespace graven
