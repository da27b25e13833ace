// linear of bfloat16 numbers: what linear.h is to floats. Sums are floats (bf16_gemm.h).
//
//   pack_linear_weight(threads, hidden, packed, w);                      // packed_bf16_size(n, k) elements
//   linear<relu>(threads, hidden, y, x, packed, bias, nullptr, workspace);
//   pack_linear_weight_transposed(threads, hidden, transposed, w);       // packed_bf16_size(k, n)
//   linear_backward_input(threads, hidden, dx, dy, transposed, nullptr, workspace);
//   linear_backward_weight(threads, hidden, dw, db, dy, x, workspace);   // dw and db: float
//
// Workspaces: config/linear_bf16.h.
#pragma once

#include <cstdint>

#include "../config/linear_bf16.h"
#include "bf16_gemm.h"
#include "functor.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

inline void pack_linear_weight(Threads& threads, const linear_config& c, bfloat16* packed, const bfloat16* w) {
  pack_bf16(threads, w, c.k, true, c.k, c.n, packed);
}

inline void pack_linear_weight_transposed(Threads& threads, const linear_config& c, bfloat16* packed,
                                          const bfloat16* w) {
  pack_bf16(threads, w, c.k, false, c.n, c.k, packed);
}

template <class Epilogue = identity>
inline void linear(Threads& threads, const linear_config& c, bfloat16* y, const bfloat16* x, const bfloat16* packed,
                   const bfloat16* bias = nullptr, const bfloat16* residual = nullptr, void* workspace = nullptr) {
  bf16_gemm(threads, {.m = c.m,
                      .n = c.n,
                      .k = c.k,
                      .a = x,
                      .a_row = c.k,
                      .a_padded = static_cast<bfloat16*>(workspace),
                      .b = packed,
                      .finish = bf16_finish<Epilogue>(y, c.n, bias, residual)});
}

template <class Epilogue = identity>
inline void linear_backward_input(Threads& threads, const linear_config& c, bfloat16* dx, const bfloat16* dy,
                                  const bfloat16* packed, const bfloat16* residual = nullptr,
                                  void* workspace = nullptr) {
  bf16_gemm(threads, {.m = c.m,
                      .n = c.k,
                      .k = c.n,
                      .a = dy,
                      .a_row = c.n,
                      .a_padded = static_cast<bfloat16*>(workspace),
                      .b = packed,
                      .finish = bf16_finish<Epilogue, bfloat16>(dx, c.k, nullptr, residual)});
}

namespace detail {

/// db[j] = the sum of column j of dy[m,n]: in blocks of 128 rows, whose sums are added up.
[[gnu::noinline]] inline void bf16_bias_gradient(Threads& threads, std::int64_t m, std::int64_t n, float* db,
                                                 const bfloat16* dy) {
  constexpr std::int64_t kColumns = 64, kRows = 128;
  threads.run((n + kColumns - 1) / kColumns, [&](std::int64_t piece) {
    const std::int64_t first = piece * kColumns, columns = smaller_of(n - first, kColumns);
    float total[kColumns] = {};
    for (std::int64_t i = 0; i < m;) {
      float part[kColumns] = {};
      for (const std::int64_t end = smaller_of(i + kRows, m); i < end; ++i)
        for (std::int64_t j = 0; j < columns; ++j) part[j] += float(dy[i * n + first + j]);
      for (std::int64_t j = 0; j < columns; ++j) total[j] += part[j];
    }
    for (std::int64_t j = 0; j < columns; ++j) db[first + j] = total[j];
  });
}

}  // namespace detail

inline void linear_backward_weight(Threads& threads, const linear_config& c, float* dw, float* db, const bfloat16* dy,
                                   const bfloat16* x, void* workspace = nullptr) {
  bfloat16* const transposed = static_cast<bfloat16*>(workspace);
  bfloat16* const packed = transposed + padded_bf16_bytes(c.n, c.m, true) / 2;
  pack_bf16(threads, x, c.k, false, c.m, c.k, packed);
  bf16_gemm(threads, {.m = c.n,
                      .n = c.k,
                      .k = c.m,
                      .a = dy,
                      .a_row = c.n,
                      .a_transposed = true,
                      .a_padded = transposed,
                      .b = packed,
                      .finish = bf16_finish<identity, float>(dw, c.k, nullptr, nullptr)});
  if (db != nullptr) detail::bf16_bias_gradient(threads, c.m, c.n, db, dy);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
