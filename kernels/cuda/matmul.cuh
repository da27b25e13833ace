// matmul: c[batch,m,n] = epilogue(a[batch,m,k] b[batch,k,n] + bias[n]) by cuBLASLt; a batch stride of 0 repeats one
// matrix for all.
//
//   matmul(context, matmul_config{.batch = 8, .m = 64, .n = 32, .k = 16, .a_batch_stride = 1024,
//                                 .b_batch_stride = 512}, c, a, b, bias);
//
// cuBLASLt adds the bias of one product, but of doubles, that has no other epilogue; else one more pass over c does.
#pragma once

#include "../config/matmul.h"
#include "cublas_lt.cuh"
#include "elementwise.cuh"
#include "epilogue.cuh"

#ifndef __CUDACC_RTC__
namespace graven::kernels {

template <class Epilogue = identity, class T>
void matmul(CudaContext& context, const matmul_config& config, T* c, const T* a, const T* b,
            const plain_t<T>* bias = nullptr, const plain_t<T>* residual = nullptr) {
  const matmul_config& s = config;
  if (s.batch == 0 || s.m == 0 || s.n == 0) return;
  const ProductScope scope(context, config);
  if (s.k == 0) {
    fill(context, fill_config{.n = s.batch * s.m * s.n, .value = 0}, c);
    return epilogue<Epilogue, T>(context, s.batch * s.m, s.n, c, bias, residual);
  }
  const matrix_product_shape shape{.batch = s.batch,
                                   .m = s.m,
                                   .n = s.n,
                                   .k = s.k,
                                   .a_stride = s.a_batch_stride,
                                   .b_stride = s.b_batch_stride,
                                   .c_stride = s.m * s.n,
                                   .transpose_a = s.transpose_a,
                                   .transpose_b = s.transpose_b};
  if constexpr (fuses_epilogues<T> && is_identity<Epilogue>) {
    if (bias != nullptr && s.batch == 1) return matrix_product(context, shape, c, a, b, fused_epilogue::bias, bias);
  }
  matrix_product(context, shape, c, a, b);
  epilogue<Epilogue, T>(context, s.batch * s.m, s.n, c, bias, residual);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
