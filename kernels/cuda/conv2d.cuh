// conv2d and its gradients: x [batch,in_height,in_width,in_channels], y [batch,out_height,out_width,out_channels]
// (NHWC), weights in PyTorch's layout [out_channels,in_channels/groups,kernel_height,kernel_width].
//
//   conv2d<relu>(context, config, y, x, w, bias);
//
// Four ways, of which the first that can is taken:
//
//   pointwise   a 1x1 convolution of every pixel is a matrix product of the images as they lie.
//   cuDNN       conv2d_cudnn.cuh: half types, and floats where the config says `tf32` and it is not depthwise, where
//               the library is installed and has a plan.
//   depthwise   conv2d_depthwise.cuh: no product at all; speed is that of memory.
//   any other   conv2d_columns.cuh: the pixels under the kernel become rows of a matrix, a chunk of rows at a time, so
//               that they stay in the device's cache, and cuBLASLt multiplies them by the weights as they are stored.
//
// Floats; doubles and half types, which have no depthwise kernels, these added up in float. Products add the bias and
// apply ReLU; other epilogues are one more pass over y. Sums are in a fixed order, and in full float precision unless
// the config says `tf32` (but for depthwise kernels, which are as they are). A library's algorithm is the one that it
// recommends, or the config's `algorithm`, or, where that says `measured`, the fastest (cublas_lt.cuh): the order of
// its sums is then the choice of that run.
#pragma once

#include "../config/conv2d.h"
#include "conv2d_columns.cuh"
#include "conv2d_cudnn.cuh"
#include "conv2d_depthwise.cuh"
#include "elementwise.cuh"
#include "epilogue.cuh"
#include "linear.cuh"
#include "reduce.cuh"

#ifndef __CUDACC_RTC__

namespace graven::kernels {

namespace detail {

constexpr bool conv2d_is_empty(const conv2d_config& s) {
  return s.batch * s.out_height * s.out_width * s.out_channels == 0 ||
         s.batch * s.in_height * s.in_width * s.in_channels == 0 || s.kernel_height * s.kernel_width == 0;
}

/// Doubles and half types have no kernels of their own: each group is a product.
template <class T>
constexpr bool conv2d_goes_depthwise(const conv2d_config& s) {
  return std::is_same_v<T, float> && conv2d_is_depthwise(s);
}

}  // namespace detail

/// y = epilogue(convolution of x with w + bias[, residual]).
template <class Epilogue = identity, class T>
void conv2d(CudaContext& context, const conv2d_config& config, T* y, const T* x, const T* w, const plain_t<T>* bias,
            const plain_t<T>* residual = nullptr) {
  const ProductScope scope(context, config);
  if (conv2d_is_pointwise(config)) return linear<Epilogue>(context, conv2d_pointwise(config), y, x, w, bias, residual);
  const std::int64_t rows = config.batch * config.out_height * config.out_width;
  if (detail::conv2d_is_empty(config)) {
    fill(context, fill_config{.n = rows * config.out_channels, .value = 0}, y);
  } else if (conv2d_check_sizes(config); conv2d_by_cudnn<Epilogue>(context, config, y, x, w, bias, residual)) {
    return;
  } else if (detail::conv2d_goes_depthwise<T>(config)) {
    if constexpr (std::is_same_v<T, float>) return conv2d_depthwise<Epilogue>(context, config, y, x, w, bias, residual);
  } else if (fuses_epilogues<T> && config.groups == 1 && (is_relu<Epilogue> || is_identity<Epilogue>)) {
    const fused_epilogue fused = is_relu<Epilogue> ? bias != nullptr ? fused_epilogue::relu_bias : fused_epilogue::relu
                                 : bias != nullptr ? fused_epilogue::bias
                                                   : fused_epilogue::none;
    return conv2d_by_columns(context, config, y, x, w, fused, bias);
  } else {
    conv2d_by_columns(context, config, y, x, w, fused_epilogue::none, nullptr);
  }
  epilogue<Epilogue>(context, rows, config.out_channels, y, bias, residual);
}

/// dx = epilogue(gradient of the input[, residual]).
template <class Epilogue = identity, class T>
void conv2d_backward_input(CudaContext& context, const conv2d_config& config, T* dx, const T* dy, const T* w,
                           const plain_t<T>* residual = nullptr) {
  const ProductScope scope(context, config);
  if (conv2d_is_pointwise(config))
    return linear_backward_input<Epilogue>(context, conv2d_pointwise(config), dx, dy, w, residual);
  if (detail::conv2d_is_empty(config)) {
    const std::int64_t rows = config.batch * config.in_height * config.in_width;
    fill(context, fill_config{.n = rows * config.in_channels, .value = 0}, dx);
    epilogue<Epilogue, T>(context, rows, config.in_channels, dx, nullptr, residual);
  } else if (conv2d_check_sizes(config);
             conv2d_by_cudnn_backward_input<Epilogue>(context, config, dx, dy, w, residual)) {
    return;
  } else if (detail::conv2d_goes_depthwise<T>(config)) {
    if constexpr (std::is_same_v<T, float>)
      conv2d_depthwise_backward_input<Epilogue>(context, config, dx, dy, w, residual);
  } else {
    conv2d_by_columns_backward_input<Epilogue>(context, config, dx, dy, w, residual);
  }
}

/// Gradients of w and of the bias ([out_channels], or nullptr); of half types they are float.
template <class T>
void conv2d_backward_weight(CudaContext& context, const conv2d_config& config, compute_t<T>* dw, compute_t<T>* db,
                            const T* dy, const T* x) {
  const ProductScope scope(context, config);
  if (conv2d_is_pointwise(config)) return linear_backward_weight(context, conv2d_pointwise(config), dw, db, dy, x);
  if (detail::conv2d_is_empty(config)) {
    fill(context, fill_config{.n = conv2d_weights(config), .value = 0}, dw);
  } else if (conv2d_check_sizes(config); conv2d_by_cudnn_backward_weight(context, config, dw, dy, x)) {
    // but for the bias
  } else if (detail::conv2d_goes_depthwise<T>(config)) {
    if constexpr (std::is_same_v<T, float>) conv2d_depthwise_backward_weight(context, config, dw, dy, x);
  } else {
    conv2d_by_columns_backward_weight(context, config, dw, dy, x);
  }
  if (db != nullptr)
    reduce_sum(
        context,
        reduce_config{
            .outer = 1, .size = config.batch * config.out_height * config.out_width, .inner = config.out_channels},
        db, dy);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
