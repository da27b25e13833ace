// Clipping of gradients, between backward() and step(): eagerly, and in a graph's build(), whose program then clips
// before it updates.
//
//   loss.backward();
//   nn::utils::clip_grad_norm_(model.parameters(), 1.0);
//   optimizer.step();                                       // not in build(): a graph's step makes the update itself
#pragma once

#include <vector>

#include "graven/tensor.h"

namespace graven::nn::utils {

/// What clip_grad_norm_ finds: the norm before. Within build() nobody knows it until the graph runs, so reading it
/// there is a user error.
class GradientNorm {
 public:
  explicit GradientNorm(double norm) : norm_(norm) {}
  explicit GradientNorm(Location recorded) : is_recorded_(true), where_(recorded) {}
  operator double() const;  // NOLINT: a number like any other

 private:
  double norm_ = 0;
  bool is_recorded_ = false;
  Location where_;
};

/// The norm of all gradients as one vector, of whatever groups and optimizers: norm_type 2 by default; infinity: the
/// largest magnitude. Where it is above max_norm, each gradient is multiplied in place by max_norm / (norm + 1e-6), as
/// in PyTorch. Parameters without a gradient are left out. Gives the norm before; an error when it is not finite and
/// error_if_nonfinite is set. Within build(): behind each backward() that reaches these parameters, and without
/// error_if_nonfinite.
GradientNorm clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2,
                             bool error_if_nonfinite = false, Location where = Location::current());
/// Clamps each element of the gradients to [-clip_value, clip_value], in place.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value, Location where = Location::current());

}  // namespace graven::nn::utils
