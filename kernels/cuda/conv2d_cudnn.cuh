// Convolutions by cuDNN (cudnn.cuh), of half types, and of floats in TF32 that are not depthwise; of doubles, none. The
// library wants weights as [out, taps, in], images being NHWC: they are rearranged for it, unless they lie so
// (weight_by_channels), and their gradient back, which moves a weight's bytes twice more. That gradient is added up in
// float, and rounded to the type of the images before it is stored as floats.
//
//   if (conv2d_by_cudnn<relu>(context, config, y, x, w, bias, nullptr)) return;   // false: nothing has been done
#pragma once

#include "conv2d_columns.cuh"
#include "cudnn.cuh"
#include "epilogue.cuh"

#ifndef __CUDACC_RTC__

namespace graven::kernels {

namespace detail {

/// What a call of the library needs: its plan, or nullptr, room for weights in its order, and scratch.
template <class T>
struct Conv2dByCudnn {
  Conv2dByCudnn(CudaContext& context, const conv2d_config& s, CudnnResult result, bool adds_bias, bool applies_relu,
                const void* image, const void* w, const void* output, const void* bias) {
    if constexpr (!std::is_same_v<T, double>)
      if (!std::is_same_v<T, float> || (s.tf32 && !conv2d_is_depthwise(s)))
        find_plan(context, s, result, adds_bias, applies_relu, image, w, output, bias);
  }
  /// w in the library's order.
  const T* ordered(CudaContext& context, const conv2d_config& s, const T* w) const {
    if (s.weight_by_channels) return w;
    conv2d_rearrange<false>(context, s, weights, w);
    return weights;
  }
  void run(CudaContext& context, const void* image, const void* w, const void* output, const void* bias) const {
    context.library<Cudnn>().run(context, *plan, {.image = image, .weights = w, .output = output, .bias = bias},
                                 scratch);
  }

  Cudnn::Plan* plan = nullptr;
  T* weights = nullptr;
  void* scratch = nullptr;

 private:
  void find_plan(CudaContext& context, const conv2d_config& s, CudnnResult result, bool adds_bias, bool applies_relu,
                 const void* image, const void* w, const void* output, const void* bias) {
    const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    std::int64_t alignment = 16;
    const auto operands = address(image) | address(output) | address(bias) | (s.weight_by_channels ? address(w) : 0);
    while (operands % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
    plan = context.library<Cudnn>().plan(context, {.result = result,
                                                   .shape = s,
                                                   .type = cudnn_type<T>,
                                                   .adds_bias = adds_bias,
                                                   .applies_relu = applies_relu,
                                                   .alignment = alignment});
    if (plan == nullptr) return;
    const std::size_t of_weights =
        s.weight_by_channels ? 0 : (static_cast<std::size_t>(conv2d_weights(s)) * sizeof(T) + 255) / 256 * 256;
    weights = static_cast<T*>(context.workspace(of_weights + plan->workspace_bytes()));
    scratch = reinterpret_cast<char*>(weights) + of_weights;
  }
};

}  // namespace detail

/// y = epilogue(convolution of x with w + bias[, residual]). Of the epilogues, the library applies ReLU.
template <class Epilogue, class T>
bool conv2d_by_cudnn(CudaContext& context, const conv2d_config& s, T* y, const T* x, const T* w, const plain_t<T>* bias,
                     const plain_t<T>* residual) {
  constexpr bool applies = is_relu<Epilogue>, is_whole = applies || is_identity<Epilogue>;
  const bool adds_bias = is_whole && bias != nullptr;
  const detail::Conv2dByCudnn<T> library(context, s, CudnnResult::y, adds_bias, applies, x, w, y,
                                         adds_bias ? bias : nullptr);
  if (library.plan == nullptr) return false;
  library.run(context, x, library.ordered(context, s, w), y, adds_bias ? bias : nullptr);
  if constexpr (!is_whole) epilogue<Epilogue>(context, detail::conv2d_pixels(s), s.out_channels, y, bias, residual);
  return true;
}

/// dx = epilogue(gradient of the input[, residual]).
template <class Epilogue, class T>
bool conv2d_by_cudnn_backward_input(CudaContext& context, const conv2d_config& s, T* dx, const T* dy, const T* w,
                                    const plain_t<T>* residual) {
  const detail::Conv2dByCudnn<T> library(context, s, CudnnResult::dx, false, false, dx, w, dy, nullptr);
  if (library.plan == nullptr) return false;
  library.run(context, dx, library.ordered(context, s, w), dy, nullptr);
  epilogue<Epilogue, T>(context, s.batch * s.in_height * s.in_width, s.in_channels, dx, nullptr, residual);
  return true;
}

/// The gradient of w.
template <class T>
bool conv2d_by_cudnn_backward_weight(CudaContext& context, const conv2d_config& s, compute_t<T>* dw, const T* dy,
                                     const T* x) {
  const detail::Conv2dByCudnn<T> library(context, s, CudnnResult::dw, false, false, x, nullptr, dy, nullptr);
  if (library.plan == nullptr) return false;
  library.run(context, x, library.weights, dy, nullptr);
  detail::conv2d_rearrange<true>(context, s, dw, library.weights);
  return true;
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
