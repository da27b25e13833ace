// Losses as modules: the functions of graven/functional/losses.h with their options.
//
//   nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss({.label_smoothing = 0.1}));
#pragma once

#include "graven/functional/losses.h"
#include "graven/module.h"

namespace graven::nn {

using graven::BinaryCrossEntropyOptions;
using graven::CrossEntropyOptions;
using graven::KLDivOptions;
using graven::NllLossOptions;
using graven::Reduction;

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

}  // namespace graven::nn
