// linear: y[m,n] = epilogue(x[m,k] w[n,k]^T + bias[n]) and its gradients, by cuBLASLt; weights in PyTorch's layout.
//
//   linear<relu>(context, linear_config{.m = 64, .n = 256, .k = 784}, y, x, w, bias);
//
// In float, double and half types. cuBLASLt adds the bias, but to doubles, and applies ReLU where is_relu<Epilogue>
// says that the functor is one; any other epilogue is one more pass over y.
#pragma once

#include "../config/linear.h"
#include "cublas_lt.cuh"
#include "elementwise.cuh"
#include "epilogue.cuh"
#include "reduce.cuh"

#ifndef __CUDACC_RTC__
namespace graven::kernels {

template <class Epilogue = identity, class T>
void linear(CudaContext& context, const linear_config& config, T* y, const T* x, const T* w, const plain_t<T>* bias,
            const plain_t<T>* residual = nullptr) {
  const linear_config& s = config;
  if (s.m == 0 || s.n == 0) return;
  const ProductScope scope(context, config);
  if (s.k == 0) {
    fill(context, fill_config{.n = s.m * s.n, .value = 0}, y);
    return epilogue<Epilogue>(context, s.m, s.n, y, bias, residual);
  }
  const matrix_product_shape shape{.m = s.m, .n = s.n, .k = s.k, .transpose_b = true};
  if constexpr (fuses_epilogues<T> && is_relu<Epilogue>) {
    matrix_product(context, shape, y, x, w, bias != nullptr ? fused_epilogue::relu_bias : fused_epilogue::relu, bias);
  } else if constexpr (fuses_epilogues<T> && is_identity<Epilogue>) {
    matrix_product(context, shape, y, x, w, bias != nullptr ? fused_epilogue::bias : fused_epilogue::none, bias);
  } else {
    matrix_product(context, shape, y, x, w);
    epilogue<Epilogue>(context, s.m, s.n, y, bias, residual);
  }
}

/// dx[m,k] = epilogue(dy[m,n] w[n,k]).
template <class Epilogue = identity, class T>
void linear_backward_input(CudaContext& context, const linear_config& config, T* dx, const T* dy, const T* w,
                           const plain_t<T>* residual = nullptr) {
  const linear_config& s = config;
  if (s.m == 0 || s.k == 0) return;
  const ProductScope scope(context, config);
  if (s.n == 0)
    fill(context, fill_config{.n = s.m * s.k, .value = 0}, dx);
  else
    matrix_product(context, matrix_product_shape{.m = s.m, .n = s.k, .k = s.n}, dx, dy, w);
  epilogue<Epilogue, T>(context, s.m, s.k, dx, nullptr, residual);
}

/// dw[n,k] = dy[m,n]^T x[m,k]; db[n] = the sum of dy's rows, or nullptr. Of half types they are float.
template <class T>
void linear_backward_weight(CudaContext& context, const linear_config& config, compute_t<T>* dw, compute_t<T>* db,
                            const T* dy, const T* x) {
  const linear_config& s = config;
  const ProductScope scope(context, config);
  if (s.n > 0 && s.k > 0) {
    if (s.m == 0)
      fill(context, fill_config{.n = s.n * s.k, .value = 0}, dw);
    else
      matrix_product(context, matrix_product_shape{.m = s.n, .n = s.k, .k = s.m, .transpose_a = true}, dw, dy, x);
  }
  if (db != nullptr) reduce_sum(context, reduce_config{.outer = 1, .size = s.m, .inner = s.n}, db, dy);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
