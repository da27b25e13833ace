#include "graven/layers/activations.h"

#include "frontend/layers/arguments.h"

namespace graven::nn {

using arguments::number;

Tensor ReLU::forward(Tensor x) { return relu(Operand(x, call_location())); }
Tensor ReLU6::forward(Tensor x) { return relu6(Operand(x, call_location())); }
Tensor Sigmoid::forward(Tensor x) { return sigmoid(Operand(x, call_location())); }
Tensor Tanh::forward(Tensor x) { return tanh(Operand(x, call_location())); }
Tensor SiLU::forward(Tensor x) { return silu(Operand(x, call_location())); }

GELU::GELU(std::string approximate) : approximate_(std::move(approximate)) {
  if (approximate_ != "none" && approximate_ != "tanh")
    throw UserError("GELU: approximate must be 'none' or 'tanh', got '" + approximate_ + "'");
  set_arguments("approximate='" + approximate_ + "'");
}
Tensor GELU::forward(Tensor x) { return gelu(Operand(x, call_location()), approximate_); }

LeakyReLU::LeakyReLU(double negative_slope) : negative_slope_(negative_slope) {
  set_arguments("negative_slope=" + number(negative_slope));
}
Tensor LeakyReLU::forward(Tensor x) { return leaky_relu(Operand(x, call_location()), negative_slope_); }

Softmax::Softmax(std::int64_t dim) : dim_(dim) { set_arguments(fmt::format("dim={}", dim)); }
Tensor Softmax::forward(Tensor x) { return softmax(Operand(x, call_location()), dim_); }
LogSoftmax::LogSoftmax(std::int64_t dim) : dim_(dim) { set_arguments(fmt::format("dim={}", dim)); }
Tensor LogSoftmax::forward(Tensor x) { return log_softmax(Operand(x, call_location()), dim_); }

Tensor Hardsigmoid::forward(Tensor x) { return hardsigmoid(Operand(x, call_location())); }
Tensor Hardswish::forward(Tensor x) { return hardswish(Operand(x, call_location())); }
Tensor Mish::forward(Tensor x) { return mish(Operand(x, call_location())); }
Tensor SELU::forward(Tensor x) { return selu(Operand(x, call_location())); }
Tensor Softsign::forward(Tensor x) { return softsign(Operand(x, call_location())); }
Tensor Tanhshrink::forward(Tensor x) { return tanhshrink(Operand(x, call_location())); }
Tensor LogSigmoid::forward(Tensor x) { return logsigmoid(Operand(x, call_location())); }

ELU::ELU(double alpha) : alpha_(alpha) { set_arguments("alpha=" + number(alpha)); }
Tensor ELU::forward(Tensor x) { return elu(Operand(x, call_location()), alpha_); }

CELU::CELU(double alpha) : alpha_(alpha) { set_arguments("alpha=" + number(alpha)); }
Tensor CELU::forward(Tensor x) { return celu(Operand(x, call_location()), alpha_); }

Softplus::Softplus(double beta, double threshold) : beta_(beta), threshold_(threshold) {
  set_arguments(fmt::format("beta={}, threshold={}", number(beta), number(threshold)));
}
Tensor Softplus::forward(Tensor x) { return softplus(Operand(x, call_location()), beta_, threshold_); }

Hardtanh::Hardtanh(double min_val, double max_val) : min_val_(min_val), max_val_(max_val) {
  set_arguments(fmt::format("min_val={}, max_val={}", number(min_val), number(max_val)));
}
Tensor Hardtanh::forward(Tensor x) { return hardtanh(Operand(x, call_location()), min_val_, max_val_); }

Softshrink::Softshrink(double lambd) : lambd_(lambd) { set_arguments(number(lambd)); }
Tensor Softshrink::forward(Tensor x) { return softshrink(Operand(x, call_location()), lambd_); }

Hardshrink::Hardshrink(double lambd) : lambd_(lambd) { set_arguments(number(lambd)); }
Tensor Hardshrink::forward(Tensor x) { return hardshrink(Operand(x, call_location()), lambd_); }

Threshold::Threshold(double threshold, double value) : threshold_(threshold), value_(value) {
  set_arguments(fmt::format("threshold={}, value={}", number(threshold), number(value)));
}
Tensor Threshold::forward(Tensor x) { return graven::threshold(Operand(x, call_location()), threshold_, value_); }

GLU::GLU(std::int64_t dim) : dim_(dim) { set_arguments(fmt::format("dim={}", dim)); }
Tensor GLU::forward(Tensor x) { return glu(Operand(x, call_location()), dim_); }

Softmin::Softmin(std::int64_t dim) : dim_(dim) { set_arguments(fmt::format("dim={}", dim)); }
Tensor Softmin::forward(Tensor x) { return softmin(Operand(x, call_location()), dim_); }

PReLU::PReLU(std::int64_t num_parameters, double init) {
  if (num_parameters < 1)
    throw UserError("PReLU: num_parameters must be positive, got " + std::to_string(num_parameters));
  weight = parameter("weight", full({num_parameters}, init));
  set_arguments(fmt::format("num_parameters={}", num_parameters));
}
Tensor PReLU::forward(Tensor x) { return prelu(Operand(x, call_location()), weight); }

}  // namespace graven::nn
