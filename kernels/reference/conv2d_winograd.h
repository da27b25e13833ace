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
  conv2d<T, Epilogue>(conv2d_winograd_direct(s), y, x, w, bias, residual);
}

}  // namespace graven::kernels::reference
