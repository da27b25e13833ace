// conv2d and its gradients by cuDNN: x [batch,in_height,in_width,in_channels], y
// [batch,out_height,out_width,out_channels] (NHWC), weights in PyTorch's layout
// [out_channels,in_channels/groups,kernel_height,kernel_width].
//
//   conv2d<relu>(context, config, y, x, w, bias);
//
// cuDNN's NHWC convolutions want weights [out,kernel_height,kernel_width,in]: they are rearranged into the context's
// workspace first (small beside the images). The bias, residual and epilogue follow in one pass over y. Algorithms are
// fixed and deterministic: IMPLICIT_PRECOMP_GEMM forward and ALGO_1 backward; arithmetic is float without TF32. A
// context keeps the descriptors of each convolution that it was asked for.
#pragma once

#include "../config/conv2d.h"
#include "cudnn.cuh"
#include "elementwise.cuh"
#include "epilogue.cuh"
#include "reduce.cuh"

#ifndef __CUDACC_RTC__
#include <array>
#include <map>
#include <memory>
#endif

namespace graven::kernels {

/// to [out,taps,in] from [out,in,taps], or back.
template <bool Back, class T>
__global__ void conv2d_rearrange_kernel(std::int64_t n, std::int64_t in, std::int64_t taps, T* to, const T* from) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t inner = Back ? taps : in, middle = Back ? in : taps;
    const std::int64_t o = i / inner / middle, m = i / inner % middle, e = i % inner;
    to[i] = from[(o * inner + e) * middle + m];
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// The descriptors of one convolution; making them touches no device.
class Conv2dDescriptors {
 public:
  explicit Conv2dDescriptors(const conv2d_config& s) {
    const auto i = [](std::int64_t value) {
      if (value > 0x7fffffff) throw CudaError("conv2d: cuDNN takes dimensions below 2^31");
      return static_cast<int>(value);
    };
    GRAVEN_CUDNN(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, i(s.batch), i(s.in_channels),
                                            i(s.in_height), i(s.in_width)));
    GRAVEN_CUDNN(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, i(s.batch), i(s.out_channels),
                                            i(s.out_height), i(s.out_width)));
    GRAVEN_CUDNN(cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, i(s.out_channels),
                                            i(s.in_channels / s.groups), i(s.kernel_height), i(s.kernel_width)));
    GRAVEN_CUDNN(cudnnSetConvolution2dDescriptor(convolution, i(s.padding_height), i(s.padding_width),
                                                 i(s.stride_height), i(s.stride_width), i(s.dilation_height),
                                                 i(s.dilation_width), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    GRAVEN_CUDNN(cudnnSetConvolutionGroupCount(convolution, i(s.groups)));
    GRAVEN_CUDNN(cudnnSetConvolutionMathType(convolution, CUDNN_FMA_MATH));
  }
  CudnnTensor x, y;
  CudnnFilter w;
  CudnnConvolution convolution;
};

enum class Conv2dDirection { forward, backward_input, backward_weight };
inline constexpr cudnnConvolutionFwdAlgo_t kConv2dForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
inline constexpr cudnnConvolutionBwdDataAlgo_t kConv2dBackwardInput = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
inline constexpr cudnnConvolutionBwdFilterAlgo_t kConv2dBackwardWeight = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

/// A convolution's descriptors, and the scratch that the library wants for it.
struct Conv2dPlan {
  Conv2dPlan(cudnnHandle_t handle, const conv2d_config& config, Conv2dDirection direction) : d(config) {
    switch (direction) {
      case Conv2dDirection::forward:
        GRAVEN_CUDNN(
            cudnnGetConvolutionForwardWorkspaceSize(handle, d.x, d.w, d.convolution, d.y, kConv2dForward, &bytes));
        break;
      case Conv2dDirection::backward_input:
        GRAVEN_CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, d.w, d.y, d.convolution, d.x,
                                                                  kConv2dBackwardInput, &bytes));
        break;
      case Conv2dDirection::backward_weight:
        GRAVEN_CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, d.x, d.y, d.convolution, d.w,
                                                                    kConv2dBackwardWeight, &bytes));
        break;
    }
  }
  Conv2dDescriptors d;
  std::size_t bytes = 0;
};

/// The plans of a context's convolutions, made when they are first asked for.
class Conv2dPlans {
 public:
  static constexpr int slot = 2;
  explicit Conv2dPlans(cudaStream_t) {}

  const Conv2dPlan& plan(cudnnHandle_t handle, const conv2d_config& s, Conv2dDirection direction) {
    const Key key{static_cast<std::int64_t>(direction),
                  s.batch,
                  s.in_height,
                  s.in_width,
                  s.in_channels,
                  s.out_height,
                  s.out_width,
                  s.out_channels,
                  s.kernel_height,
                  s.kernel_width,
                  s.stride_height,
                  s.stride_width,
                  s.padding_height,
                  s.padding_width,
                  s.dilation_height,
                  s.dilation_width,
                  s.groups};
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, std::make_unique<Conv2dPlan>(handle, s, direction)).first;
    return *found->second;
  }

 private:
  using Key = std::array<std::int64_t, 17>;
  std::map<Key, std::unique_ptr<const Conv2dPlan>> plans_;
};

constexpr std::int64_t conv2d_weights(const conv2d_config& s) {
  return s.out_channels * (s.in_channels / s.groups) * s.kernel_height * s.kernel_width;
}

/// The context's workspace, divided: rearranged weights, then the library's scratch.
struct Conv2dWorkspace {
  Conv2dWorkspace(CudaContext& context, const conv2d_config& config, std::size_t library_bytes) {
    const std::size_t weight_bytes =
        (static_cast<std::size_t>(conv2d_weights(config)) * sizeof(float) + 255) / 256 * 256;
    weights = static_cast<float*>(context.workspace(weight_bytes + library_bytes));
    library = static_cast<char*>(static_cast<void*>(weights)) + weight_bytes;
  }
  float* weights;
  void* library;
};

template <bool Back>
void conv2d_rearrange(CudaContext& context, const conv2d_config& s, float* to, const float* from) {
  const std::int64_t n = conv2d_weights(s);
  launch(context, "conv2d", &conv2d_rearrange_kernel<Back, float>, launch_shape(n), n, s.in_channels / s.groups,
         s.kernel_height * s.kernel_width, to, from);
}

constexpr bool conv2d_is_empty(const conv2d_config& s) {
  return s.batch * s.out_height * s.out_width * s.out_channels == 0 ||
         s.batch * s.in_height * s.in_width * s.in_channels == 0 || conv2d_weights(s) == 0;
}

}  // namespace detail

/// y = epilogue(convolution of x with w + bias[, residual]).
template <class Epilogue = identity>
void conv2d(CudaContext& context, const conv2d_config& config, float* y, const float* x, const float* w,
            const float* bias, const float* residual = nullptr) {
  const std::int64_t rows = config.batch * config.out_height * config.out_width;
  if (detail::conv2d_is_empty(config)) {
    fill(context, fill_config{.n = rows * config.out_channels, .value = 0}, y);
  } else {
    cudnnHandle_t handle = context.library<Cudnn>().handle();
    const auto& [d, bytes] =
        context.library<detail::Conv2dPlans>().plan(handle, config, detail::Conv2dDirection::forward);
    const detail::Conv2dWorkspace workspace(context, config, bytes);
    detail::conv2d_rearrange<false>(context, config, workspace.weights, w);
    const float one = 1, zero = 0;
    if (!context.rehearses())
      GRAVEN_CUDNN(cudnnConvolutionForward(handle, &one, d.x, x, d.w, workspace.weights, d.convolution,
                                           detail::kConv2dForward, workspace.library, bytes, &zero, d.y, y));
  }
  epilogue<Epilogue>(context, rows, config.out_channels, y, bias, residual);
}

/// dx = epilogue(gradient of the input[, residual]).
template <class Epilogue = identity>
void conv2d_backward_input(CudaContext& context, const conv2d_config& config, float* dx, const float* dy,
                           const float* w, const float* residual = nullptr) {
  const std::int64_t rows = config.batch * config.in_height * config.in_width;
  if (detail::conv2d_is_empty(config)) {
    fill(context, fill_config{.n = rows * config.in_channels, .value = 0}, dx);
  } else {
    cudnnHandle_t handle = context.library<Cudnn>().handle();
    const auto& [d, bytes] =
        context.library<detail::Conv2dPlans>().plan(handle, config, detail::Conv2dDirection::backward_input);
    const detail::Conv2dWorkspace workspace(context, config, bytes);
    detail::conv2d_rearrange<false>(context, config, workspace.weights, w);
    const float one = 1, zero = 0;
    if (!context.rehearses())
      GRAVEN_CUDNN(cudnnConvolutionBackwardData(handle, &one, d.w, workspace.weights, d.y, dy, d.convolution,
                                                detail::kConv2dBackwardInput, workspace.library, bytes, &zero, d.x,
                                                dx));
  }
  epilogue<Epilogue, float>(context, rows, config.in_channels, dx, nullptr, residual);
}

/// Gradients of w and of the bias ([out_channels], or nullptr).
inline void conv2d_backward_weight(CudaContext& context, const conv2d_config& config, float* dw, float* db,
                                   const float* dy, const float* x) {
  if (detail::conv2d_is_empty(config)) {
    fill(context, fill_config{.n = detail::conv2d_weights(config), .value = 0}, dw);
  } else {
    cudnnHandle_t handle = context.library<Cudnn>().handle();
    const auto& [d, bytes] =
        context.library<detail::Conv2dPlans>().plan(handle, config, detail::Conv2dDirection::backward_weight);
    const detail::Conv2dWorkspace workspace(context, config, bytes);
    const float one = 1, zero = 0;
    if (!context.rehearses())
      GRAVEN_CUDNN(cudnnConvolutionBackwardFilter(handle, &one, d.x, x, d.y, dy, d.convolution,
                                                  detail::kConv2dBackwardWeight, workspace.library, bytes, &zero, d.w,
                                                  workspace.weights));
    detail::conv2d_rearrange<true>(context, config, dw, workspace.weights);
  }
  if (db != nullptr)
    reduce_sum(
        context,
        reduce_config{
            .outer = 1, .size = config.batch * config.out_height * config.out_width, .inner = config.out_channels},
        db, dy);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
