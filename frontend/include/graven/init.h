// Initialisers: fill a tensor in place and return it. Formulas are those of torch.nn.init.
//
//   nn::init::kaiming_normal_(layer.weight, {.mode = nn::init::FanMode::fan_out, .nonlinearity = "relu"});
#pragma once

#include <string>
#include <utility>

#include "graven/tensor.h"

namespace graven::nn::init {

Tensor uniform_(Tensor t, double low = 0, double high = 1, Location where = Location::current());
Tensor normal_(Tensor t, double mean = 0, double std = 1, Location where = Location::current());
Tensor constant_(Tensor t, double value, Location where = Location::current());
Tensor zeros_(Tensor t, Location where = Location::current());
Tensor ones_(Tensor t, Location where = Location::current());
/// The normal distribution within [low, high], from its inverse: cdf^-1 of a uniform number between cdf(low) and
/// cdf(high).
Tensor trunc_normal_(Tensor t, double mean = 0, double std = 1, double low = -2, double high = 2,
                     Location where = Location::current());
/// A matrix: ones on the diagonal.
Tensor eye_(Tensor t, Location where = Location::current());
/// A convolution's weight [out, in / groups, kernel...] that passes its input channels on, as many as there are: 1 at
/// each kernel's centre.
Tensor dirac_(Tensor t, std::int64_t groups = 1, Location where = Location::current());
/// Saxe et al. 2013: [size(0), everything else] gets orthonormal rows or columns, whichever are fewer, times gain.
/// Uniform over such matrices: the Q of a normal matrix whose R has a positive diagonal.
Tensor orthogonal_(Tensor t, double gain = 1, Location where = Location::current());

/// fan_in, fan_out of a weight [out, in, kernel...]: in (out) times the kernel's size.
std::pair<std::int64_t, std::int64_t> fans(const Tensor& t, Location where = Location::current());
/// sqrt(2) for relu, sqrt(2 / (1 + a^2)) for leaky_relu, 5/3 for tanh, 1 for linear and sigmoid, 3/4 for selu.
double calculate_gain(const std::string& nonlinearity, double a = 0.01, Location where = Location::current());

/// Glorot and Bengio 2010: bound gain sqrt(6 / (fan_in + fan_out)); deviation gain sqrt(2 / (fan_in + fan_out)).
Tensor xavier_uniform_(Tensor t, double gain = 1, Location where = Location::current());
Tensor xavier_normal_(Tensor t, double gain = 1, Location where = Location::current());

enum class FanMode : std::uint8_t { fan_in, fan_out };
struct KaimingOptions {
  double a = 0;  ///< the negative slope of leaky_relu
  FanMode mode = FanMode::fan_in;
  std::string nonlinearity = "leaky_relu";
};
/// He et al. 2015: bound gain sqrt(3 / fan); deviation gain / sqrt(fan).
Tensor kaiming_uniform_(Tensor t, const KaimingOptions& options = {}, Location where = Location::current());
Tensor kaiming_normal_(Tensor t, const KaimingOptions& options = {}, Location where = Location::current());

}  // namespace graven::nn::init
