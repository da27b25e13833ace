// conv2d_winograd, plain loops: what it computes, not how. The weights are not transformed: w
// [out_channels,in_channels,3,3], PyTorch's layout.
//
//   reference::conv2d_winograd(config, y, x, w, bias);
#pragma once

#include "../config/conv2d_winograd.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"
#include "conv2d.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// y = epilogue(convolution of x with w + bias[, residual]), NHWC; residual has y's shape.
template <class Epilogue = identity, class T>
void conv2d_winograd(const conv2d_winograd_config& s, T* y, const plain_t<T>* x, const plain_t<T>* w,
                     const plain_t<T>* bias, const plain_t<T>* residual = nullptr) {
  conv2d<Epilogue>(conv2d_winograd_direct(s), y, x, w, bias, residual);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
