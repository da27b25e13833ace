// Products with a matrix, and of two inputs.
//
//   nn::Linear project = child("project", nn::Linear(400, 120, {.bias = false}));
//   nn::Bilinear score = child("score", nn::Bilinear(64, 32, 1));
#pragma once

#include "graven/module.h"

namespace graven::nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
};

/// y[..., out] = x[..., in] weight[out, in]^T + bias[out]. Both start uniform in +-1/sqrt(in).
class Linear : public Module<Linear> {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions options = {});
  Tensor forward(Tensor x);
  Registered<Linear> weight, bias;
};

struct BilinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
};
/// x1 weight[out] x2 + bias of x1[..., in1_features] and x2[..., in2_features]; weight and bias start uniform in
/// +-1/sqrt(in1_features).
class Bilinear : public Module<Bilinear> {
 public:
  Bilinear(std::int64_t in1_features, std::int64_t in2_features, std::int64_t out_features,
           BilinearOptions options = {});
  Tensor forward(Tensor x1, Tensor x2);
  Registered<Bilinear> weight, bias;
};

}  // namespace graven::nn
