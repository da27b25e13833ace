// Convolution layers, with PyTorch's arguments and initialisation.
//
//   nn::Conv1d(16, 33, 3, {.stride = 2})
//   nn::ConvTranspose2d(16, 33, 3, {.stride = 2, .padding = 1, .output_padding = 1})
#pragma once

#include <string>

#include "graven/functional.h"
#include "graven/module.h"

namespace graven::nn {

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

struct Conv1dOptions {
  std::int64_t stride = 1;
  Padding1 padding = 0;
  std::int64_t dilation = 1, groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  ///< "zeros", "reflect", "replicate" or "circular"
  DType dtype = DType::f32;
};
/// x[batch, in, l] with weight[out, in / groups, kernel].
class Conv1d : public Module<Conv1d> {
 public:
  Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, Conv1dOptions options = {});
  Tensor forward(Tensor x);
  Registered<Conv1d> weight, bias;

 private:
  Conv1dOptions options_;
};

struct Conv3dOptions {
  Size3 stride = 1;
  Padding3 padding = 0;
  Size3 dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  ///< "zeros", "reflect", "replicate" or "circular"
  DType dtype = DType::f32;
};
/// x[batch, in, d, h, w] with weight[out, in / groups, kernel_d, kernel_h, kernel_w].
class Conv3d : public Module<Conv3d> {
 public:
  Conv3d(std::int64_t in_channels, std::int64_t out_channels, Size3 kernel_size, Conv3dOptions options = {});
  Tensor forward(Tensor x);
  Registered<Conv3d> weight, bias;

 private:
  Conv3dOptions options_;
};

struct ConvTranspose1dOptions {
  std::int64_t stride = 1, padding = 0, output_padding = 0, groups = 1;
  bool bias = true;
  std::int64_t dilation = 1;
  DType dtype = DType::f32;
};
/// x[batch, in, l] with weight[in, out / groups, kernel].
class ConvTranspose1d : public Module<ConvTranspose1d> {
 public:
  ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                  ConvTranspose1dOptions options = {});
  Tensor forward(Tensor x);
  Registered<ConvTranspose1d> weight, bias;

 private:
  ConvTranspose1dOptions options_;
};

struct ConvTranspose2dOptions {
  Size2 stride = 1, padding = 0, output_padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
  Size2 dilation = 1;
  DType dtype = DType::f32;
};
/// x[batch, in, h, w] with weight[in, out / groups, kernel_h, kernel_w].
class ConvTranspose2d : public Module<ConvTranspose2d> {
 public:
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Size2 kernel_size,
                  ConvTranspose2dOptions options = {});
  Tensor forward(Tensor x);
  Registered<ConvTranspose2d> weight, bias;

 private:
  ConvTranspose2dOptions options_;
};

struct ConvTranspose3dOptions {
  Size3 stride = 1, padding = 0, output_padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
  Size3 dilation = 1;
  DType dtype = DType::f32;
};
/// x[batch, in, d, h, w] with weight[in, out / groups, kernel_d, kernel_h, kernel_w].
class ConvTranspose3d : public Module<ConvTranspose3d> {
 public:
  ConvTranspose3d(std::int64_t in_channels, std::int64_t out_channels, Size3 kernel_size,
                  ConvTranspose3dOptions options = {});
  Tensor forward(Tensor x);
  Registered<ConvTranspose3d> weight, bias;

 private:
  ConvTranspose3dOptions options_;
};

}  // namespace graven::nn
