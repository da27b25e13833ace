#include "graven/layers/losses.h"

#include "frontend/layers/arguments.h"

namespace graven::nn {

CrossEntropyLoss::CrossEntropyLoss(CrossEntropyOptions options) : options_(std::move(options)) {
  if (options_.weight.defined()) weight = options_.weight = buffer("weight", options_.weight);
}
Tensor CrossEntropyLoss::forward(Tensor logits, Tensor target) {
  return cross_entropy(Operand(logits, call_location()), Operand(target, call_location()), options_);
}

NLLLoss::NLLLoss(NllLossOptions options) : options_(std::move(options)) {
  if (options_.weight.defined()) weight = options_.weight = buffer("weight", options_.weight);
}
Tensor NLLLoss::forward(Tensor log_probabilities, Tensor labels) {
  return nll_loss(Operand(log_probabilities, call_location()), Operand(labels, call_location()), options_);
}

MSELoss::MSELoss(LossOptions options) : reduction_(options.reduction) {}
Tensor MSELoss::forward(Tensor input, Tensor target) {
  return mse_loss(Operand(input, call_location()), Operand(target, call_location()), reduction_);
}

L1Loss::L1Loss(LossOptions options) : reduction_(options.reduction) {}
Tensor L1Loss::forward(Tensor input, Tensor target) {
  return l1_loss(Operand(input, call_location()), Operand(target, call_location()), reduction_);
}

SmoothL1Loss::SmoothL1Loss(SmoothL1LossOptions options) : options_(options) {}
Tensor SmoothL1Loss::forward(Tensor input, Tensor target) {
  return smooth_l1_loss(Operand(input, call_location()), Operand(target, call_location()), options_.reduction,
                        options_.beta);
}

HuberLoss::HuberLoss(HuberLossOptions options) : options_(options) {}
Tensor HuberLoss::forward(Tensor input, Tensor target) {
  return huber_loss(Operand(input, call_location()), Operand(target, call_location()), options_.reduction,
                    options_.delta);
}

BCELoss::BCELoss(BinaryCrossEntropyOptions options) : options_(std::move(options)) {
  if (options_.weight.defined()) weight = options_.weight = buffer("weight", options_.weight);
}
Tensor BCELoss::forward(Tensor input, Tensor target) {
  return binary_cross_entropy(Operand(input, call_location()), Operand(target, call_location()), options_);
}

BCEWithLogitsLoss::BCEWithLogitsLoss(BinaryCrossEntropyOptions options) : options_(std::move(options)) {
  if (options_.weight.defined()) weight = options_.weight = buffer("weight", options_.weight);
  if (options_.pos_weight.defined()) pos_weight = options_.pos_weight = buffer("pos_weight", options_.pos_weight);
}
Tensor BCEWithLogitsLoss::forward(Tensor input, Tensor target) {
  return binary_cross_entropy_with_logits(Operand(input, call_location()), Operand(target, call_location()), options_);
}

KLDivLoss::KLDivLoss(KLDivOptions options) : options_(options) {}
Tensor KLDivLoss::forward(Tensor input, Tensor target) {
  return kl_div(Operand(input, call_location()), Operand(target, call_location()), options_);
}

MarginRankingLoss::MarginRankingLoss(MarginLossOptions options) : options_(options) {}
Tensor MarginRankingLoss::forward(Tensor input1, Tensor input2, Tensor target) {
  return margin_ranking_loss(Operand(input1, call_location()), Operand(input2, call_location()),
                             Operand(target, call_location()), options_.margin, options_.reduction);
}

CosineEmbeddingLoss::CosineEmbeddingLoss(MarginLossOptions options) : options_(options) {}
Tensor CosineEmbeddingLoss::forward(Tensor input1, Tensor input2, Tensor target) {
  return cosine_embedding_loss(Operand(input1, call_location()), Operand(input2, call_location()),
                               Operand(target, call_location()), options_.margin, options_.reduction);
}

HingeEmbeddingLoss::HingeEmbeddingLoss(HingeEmbeddingLossOptions options) : options_(options) {}
Tensor HingeEmbeddingLoss::forward(Tensor input, Tensor target) {
  return hinge_embedding_loss(Operand(input, call_location()), Operand(target, call_location()), options_.margin,
                              options_.reduction);
}

TripletMarginLoss::TripletMarginLoss(TripletMarginLossOptions options) : options_(options) {}
Tensor TripletMarginLoss::forward(Tensor anchor, Tensor positive, Tensor negative) {
  return triplet_margin_loss(Operand(anchor, call_location()), Operand(positive, call_location()),
                             Operand(negative, call_location()), options_);
}

SoftMarginLoss::SoftMarginLoss(LossOptions options) : reduction_(options.reduction) {}
Tensor SoftMarginLoss::forward(Tensor input, Tensor target) {
  return soft_margin_loss(Operand(input, call_location()), Operand(target, call_location()), reduction_);
}

MultiLabelSoftMarginLoss::MultiLabelSoftMarginLoss(MultilabelSoftMarginLossOptions options)
    : options_(std::move(options)) {
  if (options_.weight.defined()) weight = options_.weight = buffer("weight", options_.weight);
}
Tensor MultiLabelSoftMarginLoss::forward(Tensor input, Tensor target) {
  return multilabel_soft_margin_loss(Operand(input, call_location()), Operand(target, call_location()), options_);
}

MultiMarginLoss::MultiMarginLoss(MultiMarginLossOptions options) : options_(std::move(options)) {
  if (options_.weight.defined()) weight = options_.weight = buffer("weight", options_.weight);
}
Tensor MultiMarginLoss::forward(Tensor input, Tensor labels) {
  return multi_margin_loss(Operand(input, call_location()), Operand(labels, call_location()), options_);
}

PoissonNLLLoss::PoissonNLLLoss(PoissonNllLossOptions options) : options_(options) {}
Tensor PoissonNLLLoss::forward(Tensor input, Tensor target) {
  return poisson_nll_loss(Operand(input, call_location()), Operand(target, call_location()), options_);
}

GaussianNLLLoss::GaussianNLLLoss(GaussianNllLossOptions options) : options_(options) {}
Tensor GaussianNLLLoss::forward(Tensor input, Tensor target, Tensor var) {
  return gaussian_nll_loss(Operand(input, call_location()), Operand(target, call_location()),
                           Operand(var, call_location()), options_);
}

}  // namespace graven::nn
