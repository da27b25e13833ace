// Random numbers that depend on what they are for and on nothing else: counter-based (Philox4x32-10; Salmon et al.
// 2011), so a mask is drawn anew for the gradient rather than stored, and a training run that is resumed draws the
// numbers it would have drawn.
//
//   Tensor y = dropout(x, 0.1);             // while training
//   Tensor noise = randn_like(x) * 0.01;    // and randn({64, 8}), randint(0, 1000, {64}), ... of graven/tensor.h
//
// Eagerly they come from the default generator (manual_seed); in a graph from the seed of the training program, the
// step, the path of the module and how many random calls stand before this one in it: adding a layer changes no other
// layer's numbers. A graph without an optimizer draws none: what it needs is an input of it.
#pragma once

#include <string_view>

#include "graven/tensor.h"

namespace graven {

/// x / (1 - p), or 0 with probability p, for each element by itself; x when not training.
Tensor dropout(const Operand& x, double p = 0.5, bool training = true);
/// The same for whole channels of x[batch, channels, ...]: of rank 3 (or 2, without a batch), 4 (3), 5 (4).
Tensor dropout1d(const Operand& x, double p = 0.5, bool training = true);
Tensor dropout2d(const Operand& x, double p = 0.5, bool training = true);
Tensor dropout3d(const Operand& x, double p = 0.5, bool training = true);
/// What a residual branch gives, times 0 with probability p or 1 / (1 - p): drawn for each sample (mode "row") or for
/// all together ("batch"). x when not training (torchvision.ops.stochastic_depth; Huang et al. 2016; drop path in other
/// libraries).
Tensor stochastic_depth(const Operand& x, double p, std::string_view mode = "row", bool training = true);

/// Uniform in [0, 1); normal with mean 0 and deviation 1: of x's shape and floating dtype.
Tensor rand_like(const Operand& x);
Tensor randn_like(const Operand& x);
/// 1 with probability p, else 0, of p's shape and floating dtype. No gradient. Numbers outside of [0, 1] are errors
/// eagerly, on the processor; elsewhere they are not looked for.
Tensor bernoulli(const Operand& p);
/// i64[..., num_samples]: positions in the rows of p[..., n], each drawn with a probability in proportion to its number
/// there; without replacement no position twice, the first drawn first. No gradient. Numbers that are negative or not
/// finite, rows of zeros and, without replacement, fewer positive ones than samples are errors eagerly; within a graph
/// they are not looked for.
Tensor multinomial(const Operand& p, std::int64_t num_samples, bool replacement = false);
/// softmax((logits + Gumbel noise) / tau): a differentiable draw from softmax(logits) (Jang et al. 2017). hard:
/// one-hot, with the soft one's gradient.
Tensor gumbel_softmax(const Operand& logits, double tau = 1, bool hard = false, std::int64_t dim = -1);
/// Dropout that keeps the mean and the variance of selu's results (Klambauer et al. 2017): what is dropped becomes
/// selu's lower limit, and all is scaled and shifted.
Tensor alpha_dropout(const Operand& x, double p = 0.5, bool training = true);

}  // namespace graven
