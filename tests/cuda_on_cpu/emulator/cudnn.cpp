// cuDNN's convolutions by plain loops over any of the two layouts.
#include "cudnn.h"

#include <cstdio>

struct cudnnContext {
  cudaStream_t stream = nullptr;  // the default one, until another is set
};
struct cudnnTensorStruct {
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::int64_t n = 0, c = 0, h = 0, w = 0;
  std::int64_t at(std::int64_t in, std::int64_t ic, std::int64_t ih, std::int64_t iw) const {
    return format == CUDNN_TENSOR_NHWC ? ((in * h + ih) * w + iw) * c + ic : ((in * c + ic) * h + ih) * w + iw;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(n * c * h * w) * sizeof(float); }
};
struct cudnnFilterStruct : cudnnTensorStruct {};  // n: output channels, c: input channels of a group
struct cudnnConvolutionStruct {
  std::int64_t pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, groups = 1;
};

namespace {

constexpr std::size_t kScratch = 4096;  // asked for, and overwritten, as a real algorithm does

cudnnStatus_t not_supported(const char* what) {
  std::fprintf(stderr, "cuda_on_cpu: cudnn: %s is not emulated\n", what);
  return CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t check(const cudnnTensorStruct& x, const cudnnFilterStruct& w, const cudnnConvolutionStruct& v,
                    const cudnnTensorStruct& y) {
  if (x.type != CUDNN_DATA_FLOAT || w.type != CUDNN_DATA_FLOAT || y.type != CUDNN_DATA_FLOAT)
    return not_supported("another type than float");
  if (x.format != y.format || w.format != x.format) return not_supported("a mixture of layouts");
  const auto out = [](std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                      std::int64_t dilation) { return (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1; };
  if (x.n != y.n || x.c != w.c * v.groups || y.c != w.n || w.n % v.groups != 0) return CUDNN_STATUS_BAD_PARAM;
  if (y.h != out(x.h, w.h, v.stride_h, v.pad_h, v.dilation_h) ||
      y.w != out(x.w, w.w, v.stride_w, v.pad_w, v.dilation_w))
    return CUDNN_STATUS_BAD_PARAM;
  return CUDNN_STATUS_SUCCESS;
}

/// Calls f(offset in x, offset in w, offset in y) for every product of the convolution.
template <class F>
void for_each_product(const cudnnTensorStruct& x, const cudnnFilterStruct& w, const cudnnConvolutionStruct& v,
                      const cudnnTensorStruct& y, F f) {
  const std::int64_t group_out = w.n / v.groups;
  for (std::int64_t n = 0; n < y.n; ++n)
    for (std::int64_t oh = 0; oh < y.h; ++oh)
      for (std::int64_t ow = 0; ow < y.w; ++ow)
        for (std::int64_t kh = 0; kh < w.h; ++kh) {
          const std::int64_t ih = oh * v.stride_h - v.pad_h + kh * v.dilation_h;
          if (ih < 0 || ih >= x.h) continue;
          for (std::int64_t kw = 0; kw < w.w; ++kw) {
            const std::int64_t iw = ow * v.stride_w - v.pad_w + kw * v.dilation_w;
            if (iw < 0 || iw >= x.w) continue;
            for (std::int64_t o = 0; o < w.n; ++o)
              for (std::int64_t c = 0; c < w.c; ++c)
                f(x.at(n, o / group_out * w.c + c, ih, iw), w.at(o, c, kh, kw), y.at(n, o, oh, ow));
          }
        }
}

cudnnStatus_t check_factors(const void* alpha, const void* beta) {
  if (alpha == nullptr || beta == nullptr) return CUDNN_STATUS_BAD_PARAM;
  float a, b;
  std::memcpy(&a, alpha, sizeof a);
  std::memcpy(&b, beta, sizeof b);
  return a == 1 && b == 0 ? CUDNN_STATUS_SUCCESS : not_supported("alpha other than 1, or beta other than 0,");
}

/// Checks everything, then enqueues: clears `to` and the workspace, and adds up the products.
template <class F>
cudnnStatus_t run(const char* name, cudnnHandle_t handle, const void* alpha, const void* beta,
                  const cudnnTensorStruct& x_descriptor, const void* x, const cudnnFilterStruct& w_descriptor,
                  const void* w, const cudnnConvolutionStruct& v, const cudnnTensorStruct& y_descriptor, const void* y,
                  void* workspace, std::size_t workspace_bytes, void* to, std::size_t to_bytes, F product) {
  cudnnStatus_t status = check(x_descriptor, w_descriptor, v, y_descriptor);
  if (status == CUDNN_STATUS_SUCCESS) status = check_factors(alpha, beta);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (workspace_bytes < kScratch) return CUDNN_STATUS_BAD_PARAM;
  const std::string prefix = name;
  if (cuda_on_cpu::existing(handle->stream)->device != cuda_on_cpu::current_device())
    throw cuda_on_cpu::Failure(prefix + ": the handle's stream is another device's than the current one");
  cuda_on_cpu::require_current_device(x, x_descriptor.bytes(), prefix + ", x");
  cuda_on_cpu::require_current_device(w, w_descriptor.bytes(), prefix + ", w");
  cuda_on_cpu::require_current_device(y, y_descriptor.bytes(), prefix + ", y");
  cuda_on_cpu::require_current_device(workspace, workspace_bytes, prefix + ", workspace");
  cuda_on_cpu::count_library_call();
  cuda_on_cpu::enqueue(
      name,
      [=] {
        std::memset(workspace, 0xff, workspace_bytes);
        std::memset(to, 0, to_bytes);
        for_each_product(x_descriptor, w_descriptor, v, y_descriptor, product);
      },
      handle->stream);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  cuda_on_cpu::count_descriptor();
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  cuda_on_cpu::count_descriptor();
  *tensor = new cudnnTensorStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete tensor;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (n <= 0 || c <= 0 || h <= 0 || w <= 0) return CUDNN_STATUS_BAD_PARAM;
  *tensor = {format, type, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  cuda_on_cpu::count_descriptor();
  *filter = new cudnnFilterStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  delete filter;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return cudnnSetTensor4dDescriptor(filter, format, type, k, c, h, w);
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  cuda_on_cpu::count_descriptor();
  *convolution = new cudnnConvolutionStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete convolution;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w, int u,
                                              int v, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  if (pad_h < 0 || pad_w < 0 || u <= 0 || v <= 0 || dilation_h <= 0 || dilation_w <= 0) return CUDNN_STATUS_BAD_PARAM;
  if (mode != CUDNN_CROSS_CORRELATION) return not_supported("a convolution with a flipped kernel");
  if (compute != CUDNN_DATA_FLOAT) return not_supported("another compute type than float");
  *convolution = {pad_h, pad_w, u, v, dilation_h, dilation_w, 1};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  if (groups <= 0) return CUDNN_STATUS_BAD_PARAM;
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t math) {
  return math == CUDNN_FMA_MATH ? CUDNN_STATUS_SUCCESS : not_supported("other than float arithmetic (CUDNN_FMA_MATH)");
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t convolution,
                                                      const cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t,
                                                      std::size_t* bytes) {
  *bytes = kScratch;
  return check(*x, *w, *convolution, *y);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t convolution,
                                                           const cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm,
                                                           std::size_t* bytes) {
  *bytes = kScratch;
  if (algorithm != CUDNN_CONVOLUTION_BWD_DATA_ALGO_1) return not_supported("an algorithm that is not deterministic");
  return check(*dx, *w, *convolution, *dy);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t convolution,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                                             std::size_t* bytes) {
  *bytes = kScratch;
  if (algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1) return not_supported("an algorithm that is not deterministic");
  return check(*x, *dw, *convolution, *dy);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                      const cudnnFilterDescriptor_t w_descriptor, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t,
                                      void* workspace, std::size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_descriptor, void* y) {
  const auto *from_x = static_cast<const float*>(x), *from_w = static_cast<const float*>(w);
  auto* to = static_cast<float*>(y);
  return run("cudnnConvolutionForward", handle, alpha, beta, *x_descriptor, x, *w_descriptor, w, *convolution,
             *y_descriptor, y, workspace, workspace_bytes, y, y_descriptor->bytes(),
             [=](std::int64_t ix, std::int64_t iw, std::int64_t iy) { to[iy] += from_x[ix] * from_w[iw]; });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_descriptor, const void* w,
                                           const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t, void* workspace, std::size_t workspace_bytes,
                                           const void* beta, const cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  const auto *from_dy = static_cast<const float*>(dy), *from_w = static_cast<const float*>(w);
  auto* to = static_cast<float*>(dx);
  return run("cudnnConvolutionBackwardData", handle, alpha, beta, *dx_descriptor, dx, *w_descriptor, w, *convolution,
             *dy_descriptor, dy, workspace, workspace_bytes, dx, dx_descriptor->bytes(),
             [=](std::int64_t ix, std::int64_t iw, std::int64_t iy) { to[ix] += from_dy[iy] * from_w[iw]; });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                             const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t, void* workspace,
                                             std::size_t workspace_bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_descriptor, void* dw) {
  const auto *from_x = static_cast<const float*>(x), *from_dy = static_cast<const float*>(dy);
  auto* to = static_cast<float*>(dw);
  return run("cudnnConvolutionBackwardFilter", handle, alpha, beta, *x_descriptor, x, *dw_descriptor, dw, *convolution,
             *dy_descriptor, dy, workspace, workspace_bytes, dw, dw_descriptor->bytes(),
             [=](std::int64_t ix, std::int64_t iw, std::int64_t iy) { to[iw] += from_x[ix] * from_dy[iy]; });
}
