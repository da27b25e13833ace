#include "graven/layers/random.h"

#include "frontend/layers/arguments.h"
#include "graven/functional.h"

namespace graven::nn {

namespace {
/// Checks the probability; PyTorch's arguments.
std::string dropout_arguments(const char* layer, double p) {
  if (!(p >= 0 && p <= 1))
    throw UserError(std::string(layer) + ": the probability must lie in [0, 1], got " + arguments::number(p));
  return fmt::format("p={}, inplace=False", arguments::number(p));
}
}  // namespace

Dropout::Dropout(double p) : p_(p) { set_arguments(dropout_arguments("Dropout", p)); }
Tensor Dropout::forward(Tensor x) { return dropout(Operand(x, call_location()), p_, is_training()); }
Dropout1d::Dropout1d(double p) : p_(p) { set_arguments(dropout_arguments("Dropout1d", p)); }
Tensor Dropout1d::forward(Tensor x) { return dropout1d(Operand(x, call_location()), p_, is_training()); }
Dropout2d::Dropout2d(double p) : p_(p) { set_arguments(dropout_arguments("Dropout2d", p)); }
Tensor Dropout2d::forward(Tensor x) { return dropout2d(Operand(x, call_location()), p_, is_training()); }
Dropout3d::Dropout3d(double p) : p_(p) { set_arguments(dropout_arguments("Dropout3d", p)); }
Tensor Dropout3d::forward(Tensor x) { return dropout3d(Operand(x, call_location()), p_, is_training()); }
StochasticDepth::StochasticDepth(double p, std::string mode) : p_(p), mode_(std::move(mode)) {
  dropout_arguments("StochasticDepth", p);
  if (mode_ != "row" && mode_ != "batch")
    throw UserError("StochasticDepth: mode must be row or batch, got '" + mode_ + "'");
  set_arguments(fmt::format("p={}, mode={}", arguments::number(p), mode_));
}
Tensor StochasticDepth::forward(Tensor x) {
  return stochastic_depth(Operand(x, call_location()), p_, mode_, is_training());
}
AlphaDropout::AlphaDropout(double p) : p_(p) { set_arguments(dropout_arguments("AlphaDropout", p)); }
Tensor AlphaDropout::forward(Tensor x) { return alpha_dropout(Operand(x, call_location()), p_, is_training()); }

}  // namespace graven::nn
