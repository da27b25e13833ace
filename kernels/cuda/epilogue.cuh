// epilogue: what follows a library's matrix product or convolution, in place, in one pass: y[row, column] = F(y +
// bias[column][, residual]).
//
//   epilogue<relu>(context, rows, columns, y, bias, nullptr);   // bias or residual may be nullptr
#pragma once

#include "context.cuh"

namespace graven::kernels {

template <class F, class T>
__global__ void epilogue_kernel(std::int64_t n, std::int64_t columns, T* y, const T* bias, const T* residual) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    T value = y[i];
    if (bias != nullptr) value += bias[i % columns];
    if constexpr (F::inputs == 2)
      y[i] = F::template apply<T>(value, residual[i]);
    else
      y[i] = F::template apply<T>(value);
  }
}

#ifndef __CUDACC_RTC__

/// Whether F changes nothing.
template <class F>
inline constexpr bool is_identity = false;
template <>
inline constexpr bool is_identity<identity> = true;

template <class F, class T>
void epilogue(CudaContext& context, std::int64_t rows, std::int64_t columns, T* y, const plain_t<T>* bias,
              const plain_t<T>* residual) {
  static_assert(F::inputs <= 2, "an epilogue sees the result and at most one residual");
  if (bias == nullptr && is_identity<F>) return;
  launch(context, "epilogue", &epilogue_kernel<F, T>, launch_shape(rows * columns), rows * columns, columns, y, bias,
         residual);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
