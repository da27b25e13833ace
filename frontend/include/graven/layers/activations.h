// Activations, with PyTorch's names and defaults.
//
//   nn::Hardswish(), nn::PReLU(64)
#pragma once

#include <cstdint>
#include <string>

#include "graven/functional.h"
#include "graven/module.h"

namespace graven::nn {

class ReLU : public Module<ReLU> {
 public:
  Tensor forward(Tensor x);
};
class ReLU6 : public Module<ReLU6> {
 public:
  Tensor forward(Tensor x);
};
class Sigmoid : public Module<Sigmoid> {
 public:
  Tensor forward(Tensor x);
};
class Tanh : public Module<Tanh> {
 public:
  Tensor forward(Tensor x);
};
class SiLU : public Module<SiLU> {
 public:
  Tensor forward(Tensor x);
};
class GELU : public Module<GELU> {
 public:
  /// "none" or "tanh"
  explicit GELU(std::string approximate = "none");
  Tensor forward(Tensor x);

 private:
  std::string approximate_;
};
class LeakyReLU : public Module<LeakyReLU> {
 public:
  explicit LeakyReLU(double negative_slope = 0.01);
  Tensor forward(Tensor x);

 private:
  double negative_slope_;
};
class Softmax : public Module<Softmax> {
 public:
  explicit Softmax(std::int64_t dim);
  Tensor forward(Tensor x);

 private:
  std::int64_t dim_;
};
class LogSoftmax : public Module<LogSoftmax> {
 public:
  explicit LogSoftmax(std::int64_t dim);
  Tensor forward(Tensor x);

 private:
  std::int64_t dim_;
};

class Hardsigmoid : public Module<Hardsigmoid> {
 public:
  Tensor forward(Tensor x);
};
class Hardswish : public Module<Hardswish> {
 public:
  Tensor forward(Tensor x);
};
class Mish : public Module<Mish> {
 public:
  Tensor forward(Tensor x);
};
class SELU : public Module<SELU> {
 public:
  Tensor forward(Tensor x);
};
class Softsign : public Module<Softsign> {
 public:
  Tensor forward(Tensor x);
};
class Tanhshrink : public Module<Tanhshrink> {
 public:
  Tensor forward(Tensor x);
};
class LogSigmoid : public Module<LogSigmoid> {
 public:
  Tensor forward(Tensor x);
};
class ELU : public Module<ELU> {
 public:
  explicit ELU(double alpha = 1);
  Tensor forward(Tensor x);

 private:
  double alpha_;
};
class CELU : public Module<CELU> {
 public:
  explicit CELU(double alpha = 1);
  Tensor forward(Tensor x);

 private:
  double alpha_;
};
class Softplus : public Module<Softplus> {
 public:
  explicit Softplus(double beta = 1, double threshold = 20);
  Tensor forward(Tensor x);

 private:
  double beta_;
  double threshold_;
};
class Hardtanh : public Module<Hardtanh> {
 public:
  explicit Hardtanh(double min_val = -1, double max_val = 1);
  Tensor forward(Tensor x);

 private:
  double min_val_;
  double max_val_;
};
class Softshrink : public Module<Softshrink> {
 public:
  explicit Softshrink(double lambd = 0.5);
  Tensor forward(Tensor x);

 private:
  double lambd_;
};
class Hardshrink : public Module<Hardshrink> {
 public:
  explicit Hardshrink(double lambd = 0.5);
  Tensor forward(Tensor x);

 private:
  double lambd_;
};
class Threshold : public Module<Threshold> {
 public:
  explicit Threshold(double threshold, double value);
  Tensor forward(Tensor x);

 private:
  double threshold_;
  double value_;
};
class GLU : public Module<GLU> {
 public:
  explicit GLU(std::int64_t dim = -1);
  Tensor forward(Tensor x);

 private:
  std::int64_t dim_;
};
class Softmin : public Module<Softmin> {
 public:
  explicit Softmin(std::int64_t dim);
  Tensor forward(Tensor x);

 private:
  std::int64_t dim_;
};
/// x where x > 0, else weight * x: one learned weight, or one a channel.
class PReLU : public Module<PReLU> {
 public:
  explicit PReLU(std::int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(Tensor x);
  Registered<PReLU> weight;
};

}  // namespace graven::nn
