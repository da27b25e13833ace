// Activations, with PyTorch's defaults.
//
//   Tensor y = hardswish(x);
#pragma once

#include <cstdint>
#include <string_view>

#include "graven/tensor.h"

namespace graven {

Tensor relu(const Operand& x);
Tensor relu6(const Operand& x);
Tensor sigmoid(const Operand& x);
Tensor tanh(const Operand& x);
/// x * Phi(x); approximate is "none" (erf) or "tanh".
Tensor gelu(const Operand& x, std::string_view approximate = "none");
Tensor silu(const Operand& x);
Tensor softplus(const Operand& x, double beta = 1, double threshold = 20);
Tensor leaky_relu(const Operand& x, double negative_slope = 0.01);
Tensor elu(const Operand& x, double alpha = 1);
Tensor hardtanh(const Operand& x, double min_val = -1, double max_val = 1);
Tensor softmax(const Operand& x, std::int64_t dim);
Tensor log_softmax(const Operand& x, std::int64_t dim);
Tensor hardsigmoid(const Operand& x);
Tensor hardswish(const Operand& x);
Tensor mish(const Operand& x);
Tensor selu(const Operand& x);
Tensor celu(const Operand& x, double alpha = 1);
Tensor softsign(const Operand& x);
Tensor tanhshrink(const Operand& x);
Tensor softshrink(const Operand& x, double lambd = 0.5);
Tensor hardshrink(const Operand& x, double lambd = 0.5);
Tensor threshold(const Operand& x, double threshold, double value);
Tensor logsigmoid(const Operand& x);
/// a * sigmoid(b), where a and b are the halves of x along dim.
Tensor glu(const Operand& x, std::int64_t dim = -1);
/// x where x > 0, else weight * x: one weight, or one a channel (dimension 1).
Tensor prelu(const Operand& x, const Tensor& weight);
Tensor softmin(const Operand& x, std::int64_t dim);

}  // namespace graven
