// Pooling layers.
//
//   nn::MaxPool1d(2), nn::AdaptiveMaxPool2d({7, 7})
#pragma once

#include "graven/functional.h"
#include "graven/module.h"

namespace graven::nn {

using graven::AvgPool1dOptions;
using graven::AvgPool2dOptions;
using graven::AvgPool3dOptions;
using graven::MaxPool1dOptions;
using graven::MaxPool2dOptions;
using graven::MaxPool3dOptions;

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

class MaxPool1d : public Module<MaxPool1d> {
 public:
  explicit MaxPool1d(std::int64_t kernel_size, MaxPool1dOptions options = {});
  Tensor forward(Tensor x);

 private:
  std::int64_t kernel_size_;
  MaxPool1dOptions options_;
};
class MaxPool3d : public Module<MaxPool3d> {
 public:
  explicit MaxPool3d(Size3 kernel_size, MaxPool3dOptions options = {});
  Tensor forward(Tensor x);

 private:
  Size3 kernel_size_;
  MaxPool3dOptions options_;
};
class AvgPool1d : public Module<AvgPool1d> {
 public:
  explicit AvgPool1d(std::int64_t kernel_size, AvgPool1dOptions options = {});
  Tensor forward(Tensor x);

 private:
  std::int64_t kernel_size_;
  AvgPool1dOptions options_;
};
class AvgPool3d : public Module<AvgPool3d> {
 public:
  explicit AvgPool3d(Size3 kernel_size, AvgPool3dOptions options = {});
  Tensor forward(Tensor x);

 private:
  Size3 kernel_size_;
  AvgPool3dOptions options_;
};
class AdaptiveAvgPool1d : public Module<AdaptiveAvgPool1d> {
 public:
  explicit AdaptiveAvgPool1d(std::int64_t output_size);
  Tensor forward(Tensor x);

 private:
  std::int64_t output_size_;
};
class AdaptiveAvgPool3d : public Module<AdaptiveAvgPool3d> {
 public:
  explicit AdaptiveAvgPool3d(Size3 output_size);
  Tensor forward(Tensor x);

 private:
  Size3 output_size_;
};
class AdaptiveMaxPool1d : public Module<AdaptiveMaxPool1d> {
 public:
  explicit AdaptiveMaxPool1d(std::int64_t output_size);
  Tensor forward(Tensor x);

 private:
  std::int64_t output_size_;
};
class AdaptiveMaxPool2d : public Module<AdaptiveMaxPool2d> {
 public:
  explicit AdaptiveMaxPool2d(Size2 output_size);
  Tensor forward(Tensor x);

 private:
  Size2 output_size_;
};
class AdaptiveMaxPool3d : public Module<AdaptiveMaxPool3d> {
 public:
  explicit AdaptiveMaxPool3d(Size3 output_size);
  Tensor forward(Tensor x);

 private:
  Size3 output_size_;
};
class LPPool1d : public Module<LPPool1d> {
 public:
  LPPool1d(double norm_type, std::int64_t kernel_size, std::optional<std::int64_t> stride = {}, bool ceil_mode = false);
  Tensor forward(Tensor x);

 private:
  double norm_type_;
  std::int64_t kernel_size_;
  std::optional<std::int64_t> stride_;
  bool ceil_mode_;
};
class LPPool2d : public Module<LPPool2d> {
 public:
  LPPool2d(double norm_type, Size2 kernel_size, std::optional<Size2> stride = {}, bool ceil_mode = false);
  Tensor forward(Tensor x);

 private:
  double norm_type_;
  Size2 kernel_size_;
  std::optional<Size2> stride_;
  bool ceil_mode_;
};

struct MaxUnpool2dLayerOptions {
  std::optional<Size2> stride = {};  ///< none: the kernel's size
  Size2 padding = 0;
};
/// Zeros, with x at the positions that max_pool2d_with_indices gave.
class MaxUnpool2d : public Module<MaxUnpool2d> {
 public:
  explicit MaxUnpool2d(Size2 kernel_size, MaxUnpool2dLayerOptions options = {});
  Tensor forward(Tensor x, Tensor indices, std::optional<Size2> output_size = {});

 private:
  Size2 kernel_;
  MaxUnpool2dLayerOptions options_;
};

}  // namespace graven::nn
