// cudnn: the library's handle and the descriptors of convolutions, with one owner each. Used by conv2d.cuh.
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <cudnn.h>

namespace graven::kernels {

inline void check_cudnn(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status != CUDNN_STATUS_SUCCESS) throw_cuda_error("cuDNN", cudnnGetErrorString(status), call, file, line);
}
#define GRAVEN_CUDNN(call) ::graven::kernels::check_cudnn((call), #call, __FILE__, __LINE__)

/// The library's handle, bound to the context's stream.
class Cudnn {
 public:
  static constexpr int slot = 1;
  explicit Cudnn(cudaStream_t stream) {
    GRAVEN_CUDNN(cudnnCreate(&handle_));
    GRAVEN_CUDNN(cudnnSetStream(handle_, stream));
  }
  ~Cudnn() { (void)cudnnDestroy(handle_); }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;
  cudnnHandle_t handle() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

/// A descriptor: created, destroyed.
template <class Descriptor, cudnnStatus_t (*Create)(Descriptor*), cudnnStatus_t (*Destroy)(Descriptor)>
class CudnnDescriptor {
 public:
  CudnnDescriptor() { GRAVEN_CUDNN(Create(&descriptor_)); }
  ~CudnnDescriptor() { (void)Destroy(descriptor_); }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
  operator Descriptor() const { return descriptor_; }

 private:
  Descriptor descriptor_ = nullptr;
};
using CudnnTensor = CudnnDescriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using CudnnFilter = CudnnDescriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using CudnnConvolution =
    CudnnDescriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor>;

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
