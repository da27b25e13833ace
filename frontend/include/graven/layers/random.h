// Dropout in its shapes. In evaluation mode (eval()) each is the identity.
//
//   nn::Dropout drop = child("drop", nn::Dropout(0.1));
#pragma once

#include <string>

#include "graven/module.h"

namespace graven::nn {

/// While training, x / (1 - p), or 0 with probability p, for each element by itself (graven/functional/random.h says
/// where the numbers come from).
class Dropout : public Module<Dropout> {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(Tensor x);

 private:
  double p_;
};

/// Whole channels of x[batch, channels, length].
class Dropout1d : public Module<Dropout1d> {
 public:
  explicit Dropout1d(double p = 0.5);
  Tensor forward(Tensor x);

 private:
  double p_;
};

/// Whole channels of x[batch, channels, height, width].
class Dropout2d : public Module<Dropout2d> {
 public:
  explicit Dropout2d(double p = 0.5);
  Tensor forward(Tensor x);

 private:
  double p_;
};

/// Whole channels of x[batch, channels, depth, height, width].
class Dropout3d : public Module<Dropout3d> {
 public:
  explicit Dropout3d(double p = 0.5);
  Tensor forward(Tensor x);

 private:
  double p_;
};

/// The end of a residual branch: `x + drop_path(block(x))`. While training each sample's branch (mode "row"), or the
/// whole batch's ("batch"), is left out with probability p and counts 1 / (1 - p) otherwise
/// (torchvision.ops.StochasticDepth).
class StochasticDepth : public Module<StochasticDepth> {
 public:
  explicit StochasticDepth(double p, std::string mode = "row");
  Tensor forward(Tensor x);

 private:
  double p_;
  std::string mode_;
};

/// Keeps the mean and the variance of selu's results.
class AlphaDropout : public Module<AlphaDropout> {
 public:
  explicit AlphaDropout(double p = 0.5);
  Tensor forward(Tensor x);

 private:
  double p_;
};

}  // namespace graven::nn
