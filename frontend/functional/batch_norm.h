// batch_norm() as layers call it.
#pragma once

#include "graven/tensor.h"

namespace graven::detail {

/// `sync`: when training, the statistics are those of the batches of all ranks, in the graphs that have several.
Tensor batch_norm(const Operand& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps, bool sync);

}  // namespace graven::detail
