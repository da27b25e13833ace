// Layers and losses, with PyTorch's names, defaults, shapes and initialisation.
//
//   nn::Conv2d(1, 6, 5, {.padding = 2})        // weight f32[6,1,5,5], bias f32[6], both uniform in +-1/sqrt(fan_in)
//   nn::Linear(400, 120, {.bias = false})
//   nn::CrossEntropyLoss()(logits, labels)
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "graven/functional.h"
#include "graven/module.h"

namespace graven::nn {

using graven::AvgPool2dOptions;
using graven::MaxPool2dOptions;

struct Conv2dOptions {
  Size2 stride = 1;
  Padding2 padding = 0;
  Size2 dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  ///< "zeros", "reflect", "replicate" or "circular"
  DType dtype = DType::f32;
};

/// Cross-correlation: x[batch, in, h, w] with weight[out, in / groups, kernel_h, kernel_w]. Both parameters start
/// uniform in +-1/sqrt(fan_in).
class Conv2d : public Module<Conv2d> {
 public:
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2 kernel_size, Conv2dOptions options = {});
  Tensor forward(Tensor x);
  Registered<Conv2d> weight, bias;

 private:
  Conv2dOptions options_;
};

class MaxPool2d : public Module<MaxPool2d> {
 public:
  explicit MaxPool2d(Size2 kernel_size, MaxPool2dOptions options = {});
  Tensor forward(Tensor x);

 private:
  Size2 kernel_size_;
  MaxPool2dOptions options_;
};

class AvgPool2d : public Module<AvgPool2d> {
 public:
  explicit AvgPool2d(Size2 kernel_size, AvgPool2dOptions options = {});
  Tensor forward(Tensor x);

 private:
  Size2 kernel_size_;
  AvgPool2dOptions options_;
};

/// The mean over windows that divide the image as evenly as it goes.
class AdaptiveAvgPool2d : public Module<AdaptiveAvgPool2d> {
 public:
  explicit AdaptiveAvgPool2d(Size2 output_size);
  Tensor forward(Tensor x);

 private:
  Size2 output_size_;
};

class Flatten : public Module<Flatten> {
 public:
  explicit Flatten(std::int64_t start_dim = 1, std::int64_t end_dim = -1);
  Tensor forward(Tensor x);

 private:
  std::int64_t start_dim_, end_dim_;
};

class Identity : public Module<Identity> {
 public:
  Tensor forward(Tensor x) { return x; }
};
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

}  // namespace graven::nn

// ---- families ----
#include "graven/layers/activations.h"    // IWYU pragma: export
#include "graven/layers/containers.h"     // IWYU pragma: export
#include "graven/layers/convolution.h"    // IWYU pragma: export
#include "graven/layers/distances.h"      // IWYU pragma: export
#include "graven/layers/indexing.h"       // IWYU pragma: export
#include "graven/layers/losses.h"         // IWYU pragma: export
#include "graven/layers/normalization.h"  // IWYU pragma: export
#include "graven/layers/padding.h"        // IWYU pragma: export
#include "graven/layers/pooling.h"        // IWYU pragma: export
#include "graven/layers/products.h"       // IWYU pragma: export
#include "graven/layers/random.h"         // IWYU pragma: export
#include "graven/layers/sequence.h"       // IWYU pragma: export
#include "graven/layers/shapes.h"         // IWYU pragma: export
#include "graven/layers/transformer.h"    // IWYU pragma: export
#include "graven/layers/upsampling.h"     // IWYU pragma: export
