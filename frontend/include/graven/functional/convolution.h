// Convolutions of signals, images and volumes, and their transposes. conv1d and the transposed ones use the kernels of
// conv2d, conv3d and conv_transpose3d are sums of conv2d and conv_transpose2d over the taps
// along the depth.
//
//   // x[n, c, l], weight[o, c / groups, k]
//   Tensor y = conv1d(x, weight, bias, {.stride = 2, .padding = "valid"});
//   // x[n, i, h, w], weight[i, o / groups, kh, kw]
//   Tensor z = conv_transpose2d(x, weight, {}, {.stride = 2, .output_padding = 1});
#pragma once

#include "graven/functional/sizes.h"

namespace graven {

struct Conv2dFunctionOptions {
  Size2 stride = 1;
  Padding2 padding = 0;
  Size2 dilation = 1;
  std::int64_t groups = 1;
};
/// Cross-correlation with weight[out, in / groups, kernel_h, kernel_w].
Tensor conv2d(const Operand& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dFunctionOptions& options = {});

struct Conv1dFunctionOptions {
  std::int64_t stride = 1;
  Padding1 padding = 0;
  std::int64_t dilation = 1, groups = 1;
};
/// x[batch, in, l] or [in, l], weight[out, in / groups, k].
Tensor conv1d(const Operand& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dFunctionOptions& options = {});

struct Conv3dFunctionOptions {
  Size3 stride = 1;
  Padding3 padding = 0;
  Size3 dilation = 1;
  std::int64_t groups = 1;
};
/// x[batch, in, d, h, w] or [in, d, h, w], weight[out, in / groups, kd, kh, kw].
Tensor conv3d(const Operand& x, const Tensor& weight, const Tensor& bias = {},
              const Conv3dFunctionOptions& options = {});

struct ConvTranspose1dFunctionOptions {
  std::int64_t stride = 1, padding = 0, output_padding = 0, groups = 1, dilation = 1;
};
/// x[batch, in, l] or [in, l], weight[in, out / groups, k]; length (l - 1) stride - 2 padding + dilation (k - 1) +
/// output_padding + 1.
Tensor conv_transpose1d(const Operand& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose1dFunctionOptions& options = {});

struct ConvTranspose2dFunctionOptions {
  Size2 stride = 1, padding = 0, output_padding = 0;
  std::int64_t groups = 1;
  Size2 dilation = 1;
};
/// x[batch, in, h, w] or [in, h, w], weight[in, out / groups, kh, kw]: the gradient of conv2d with respect to its
/// input.
Tensor conv_transpose2d(const Operand& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dFunctionOptions& options = {});

struct ConvTranspose3dFunctionOptions {
  Size3 stride = 1, padding = 0, output_padding = 0;
  std::int64_t groups = 1;
  Size3 dilation = 1;
};
/// x[batch, in, d, h, w] or [in, d, h, w], weight[in, out / groups, kd, kh, kw]: the gradient of conv3d with respect to
/// its input.
Tensor conv_transpose3d(const Operand& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose3dFunctionOptions& options = {});

}  // namespace graven
