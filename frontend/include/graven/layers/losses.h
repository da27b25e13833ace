// Losses as modules: the functions of graven/functional/losses.h with their options.
//
//   nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss({.label_smoothing = 0.1}));
#pragma once

#include "graven/functional/losses.h"
#include "graven/module.h"

namespace graven::nn {

using graven::BinaryCrossEntropyOptions;
using graven::CrossEntropyOptions;
using graven::GaussianNllLossOptions;
using graven::KLDivOptions;
using graven::MultilabelSoftMarginLossOptions;
using graven::MultiMarginLossOptions;
using graven::NllLossOptions;
using graven::PoissonNllLossOptions;
using graven::Reduction;
using graven::TripletMarginLossOptions;

struct LossOptions {
  Reduction reduction = Reduction::mean;
};

/// Of logits[rows, classes] and labels i64[rows], or probabilities. A weight is a buffer, as in PyTorch.
class CrossEntropyLoss : public Module<CrossEntropyLoss> {
 public:
  explicit CrossEntropyLoss(CrossEntropyOptions options = {});
  Tensor forward(Tensor logits, Tensor target);
  Tensor weight;

 private:
  CrossEntropyOptions options_;
};
class NLLLoss : public Module<NLLLoss> {
 public:
  explicit NLLLoss(NllLossOptions options = {});
  Tensor forward(Tensor log_probabilities, Tensor labels);
  Tensor weight;

 private:
  NllLossOptions options_;
};
class MSELoss : public Module<MSELoss> {
 public:
  explicit MSELoss(LossOptions options = {});
  Tensor forward(Tensor input, Tensor target);

 private:
  Reduction reduction_;
};
class L1Loss : public Module<L1Loss> {
 public:
  explicit L1Loss(LossOptions options = {});
  Tensor forward(Tensor input, Tensor target);

 private:
  Reduction reduction_;
};
struct SmoothL1LossOptions {
  Reduction reduction = Reduction::mean;
  double beta = 1;
};
class SmoothL1Loss : public Module<SmoothL1Loss> {
 public:
  explicit SmoothL1Loss(SmoothL1LossOptions options = {});
  Tensor forward(Tensor input, Tensor target);

 private:
  SmoothL1LossOptions options_;
};
struct HuberLossOptions {
  Reduction reduction = Reduction::mean;
  double delta = 1;
};
class HuberLoss : public Module<HuberLoss> {
 public:
  explicit HuberLoss(HuberLossOptions options = {});
  Tensor forward(Tensor input, Tensor target);

 private:
  HuberLossOptions options_;
};
/// Of probabilities.
class BCELoss : public Module<BCELoss> {
 public:
  explicit BCELoss(BinaryCrossEntropyOptions options = {});
  Tensor forward(Tensor input, Tensor target);
  Tensor weight;

 private:
  BinaryCrossEntropyOptions options_;
};
class BCEWithLogitsLoss : public Module<BCEWithLogitsLoss> {
 public:
  explicit BCEWithLogitsLoss(BinaryCrossEntropyOptions options = {});
  Tensor forward(Tensor input, Tensor target);
  Tensor weight, pos_weight;

 private:
  BinaryCrossEntropyOptions options_;
};
/// Of log-probabilities and probabilities.
class KLDivLoss : public Module<KLDivLoss> {
 public:
  explicit KLDivLoss(KLDivOptions options = {});
  Tensor forward(Tensor input, Tensor target);

 private:
  KLDivOptions options_;
};

struct MarginLossOptions {
  double margin = 0;
  Reduction reduction = Reduction::mean;
};
/// Of two inputs and targets 1 or -1.
class MarginRankingLoss : public Module<MarginRankingLoss> {
 public:
  explicit MarginRankingLoss(MarginLossOptions options = {});
  Tensor forward(Tensor input1, Tensor input2, Tensor target);

 private:
  MarginLossOptions options_;
};
/// Of two inputs and targets 1 or -1.
class CosineEmbeddingLoss : public Module<CosineEmbeddingLoss> {
 public:
  explicit CosineEmbeddingLoss(MarginLossOptions options = {});
  Tensor forward(Tensor input1, Tensor input2, Tensor target);

 private:
  MarginLossOptions options_;
};
struct HingeEmbeddingLossOptions {
  double margin = 1;
  Reduction reduction = Reduction::mean;
};
/// Of distances and targets 1 or -1.
class HingeEmbeddingLoss : public Module<HingeEmbeddingLoss> {
 public:
  explicit HingeEmbeddingLoss(HingeEmbeddingLossOptions options = {});
  Tensor forward(Tensor input, Tensor target);

 private:
  HingeEmbeddingLossOptions options_;
};
/// Of three tensors of vectors.
class TripletMarginLoss : public Module<TripletMarginLoss> {
 public:
  explicit TripletMarginLoss(TripletMarginLossOptions options = {});
  Tensor forward(Tensor anchor, Tensor positive, Tensor negative);

 private:
  TripletMarginLossOptions options_;
};
/// Of targets 1 or -1.
class SoftMarginLoss : public Module<SoftMarginLoss> {
 public:
  explicit SoftMarginLoss(LossOptions options = {});
  Tensor forward(Tensor input, Tensor target);

 private:
  Reduction reduction_;
};
/// Of targets 0 or 1; a weight is a buffer.
class MultiLabelSoftMarginLoss : public Module<MultiLabelSoftMarginLoss> {
 public:
  explicit MultiLabelSoftMarginLoss(MultilabelSoftMarginLossOptions options = {});
  Tensor forward(Tensor input, Tensor target);
  Tensor weight;

 private:
  MultilabelSoftMarginLossOptions options_;
};
/// Of input[batch, classes] and labels i64[batch]; a weight is a buffer.
class MultiMarginLoss : public Module<MultiMarginLoss> {
 public:
  explicit MultiMarginLoss(MultiMarginLossOptions options = {});
  Tensor forward(Tensor input, Tensor labels);
  Tensor weight;

 private:
  MultiMarginLossOptions options_;
};
/// Of counts.
class PoissonNLLLoss : public Module<PoissonNLLLoss> {
 public:
  explicit PoissonNLLLoss(PoissonNllLossOptions options = {});
  Tensor forward(Tensor input, Tensor target);

 private:
  PoissonNllLossOptions options_;
};
/// Of means, targets and variances.
class GaussianNLLLoss : public Module<GaussianNLLLoss> {
 public:
  explicit GaussianNLLLoss(GaussianNllLossOptions options = {});
  Tensor forward(Tensor input, Tensor target, Tensor var);

 private:
  GaussianNllLossOptions options_;
};

}  // namespace graven::nn
