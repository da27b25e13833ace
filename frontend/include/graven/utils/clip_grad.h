// Clipping of gradients, between backward() and step().
//
//   loss.backward();
//   nn::utils::clip_grad_norm_(model.parameters(), 1.0);
//   optimizer.step();
#pragma once

#include <vector>

#include "graven/tensor.h"

namespace graven::nn::utils {

/// The norm of all gradients as one vector: norm_type 2 by default; infinity: the largest magnitude. Where it is above max_norm, each gradient is
/// multiplied in place by max_norm / (norm + 1e-6), as in PyTorch. Parameters without a gradient are left out. Gives the norm before; an error when
/// it is not finite and error_if_nonfinite is set.
double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
/// Clamps each element of the gradients to [-clip_value, clip_value], in place.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace graven::nn::utils
