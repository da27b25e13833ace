// conv2d_winograd, plain loops: what it computes, not how. The weights are not transformed: w [out_channels,in_channels,3,3], PyTorch's layout.
//
//   reference::conv2d_winograd<double>(config, y, x, w, bias);
#pragma once

#include "../config/conv2d_winograd.h"
#include "conv2d.h"

namespace graven::kernels::reference {

/// y = epilogue(convolution of x with w + bias[, residual]), NHWC; residual has y's shape.
template <class T, class Epilogue = unchanged>
void conv2d_winograd(const conv2d_winograd_config& s, T* y, const T* x, const T* w, const T* bias, const T* residual = nullptr) {
  const conv2d_config config{.batch = s.batch,
                             .in_height = s.in_height,
                             .in_width = s.in_width,
                             .in_channels = s.in_channels,
                             .out_height = s.out_height,
                             .out_width = s.out_width,
                             .out_channels = s.out_channels,
                             .kernel_height = 3,
                             .kernel_width = 3,
                             .padding_height = s.padding_height,
                             .padding_width = s.padding_width};
  conv2d<T, Epilogue>(config, y, x, w, bias, residual);
}

}  // namespace graven::kernels::reference
