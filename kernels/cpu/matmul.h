// matmul: products of matrices, one or a batch. float only.
//
//   c[batch,m,n] = epilogue(a[batch,m,k] b[batch,k,n] + bias[n], residual[batch,m,n])
//
//   constexpr matmul_config scores{.batch = 96, .m = 128, .n = 128, .k = 64, .a_batch_stride = 128 * 64,
//                                  .b_batch_stride = 128 * 64, .transpose_a = false, .transpose_b = true};
//   matmul(threads, scores, c, queries, keys, nullptr, nullptr, workspace);   // workspace: matmul_workspace(scores)
//                                                                             // bytes
//
// A batch stride of 0 repeats a matrix. A transposed matrix is stored with its dimensions exchanged: a[k,m], b[n,k]. c
// may be residual.
#pragma once

#include <cstdint>

#include "../config/matmul.h"
#include "functor.h"
#include "gemm.h"
#include "level.h"
#include "pack.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class Epilogue = identity>
inline void matmul(Threads& threads, const matmul_config& config, float* c, const float* a, const float* b,
                   const float* bias = nullptr, const float* residual = nullptr, void* workspace = nullptr) {
  const std::int64_t m = config.m, n = config.n, k = config.k;
  if (config.batch <= 0 || m <= 0 || n <= 0) return;
  std::int64_t b_stride = config.b_batch_stride;
  const bool packs = matmul_packs(config);
  if (packs) {
    float* const packed = static_cast<float*>(workspace);
    const std::int64_t panels = (n + kPanel - 1) / kPanel, matrices = b_stride == 0 ? 1 : config.batch,
                       total = panels * matrices;
    const std::int64_t each = (std::int64_t{1} << 15) / (kPanel * k + 1) + 1;
    threads.run((total + each - 1) / each, [&](std::int64_t piece) {
      for (std::int64_t i = piece * each; i < total && i < (piece + 1) * each; ++i) {
        const std::int64_t column = i % panels * kPanel, width = n - column < kPanel ? n - column : kPanel;
        const float* const from = b + i / panels * b_stride;
        float* const to = packed + i * kPanel * k;
        if (config.transpose_b) {
          pack_rows_panel(from + column * k, k, width, k, to);
        } else {
          pack_columns_panel(from + column, n, k, width, to);
        }
      }
    });
    b = packed;
    b_stride = b_stride == 0 ? 0 : panels * kPanel * k;
  }
  const auto problem = [&](std::int64_t i) -> gemm_problem {
    return {.m = m,
            .n = n,
            .k = k,
            .a = a + i * config.a_batch_stride,
            .a_row = config.transpose_a ? 1 : k,
            .a_k = config.transpose_a ? m : 1,
            .b = b + i * b_stride,
            .b_k = packs ? kPanel : n,
            .b_panel = packs ? kPanel * k : kPanel,
            .b_row = config.transpose_b && !packs ? k : 0,
            .b_padded = packs,
            .c = c + i * m * n,
            .c_row = n,
            .bias = bias,
            .finish = gemm_finish<Epilogue>(residual == nullptr ? nullptr : residual + i * m * n),
            .add = false,
            .rows_first = false};
  };
  const std::int64_t work = m * n * (k > 0 ? k : 1);
  if (config.batch > 1 && (config.batch >= 16 || work < (std::int64_t{1} << 18))) {
    // Whole products are divided among threads, about 2^18 multiply-adds or more at a time.
    const std::int64_t each = (std::int64_t{1} << 18) / work + 1;
    threads.run((config.batch + each - 1) / each, [&](std::int64_t piece) {
      for (std::int64_t i = piece * each; i < config.batch && i < (piece + 1) * each; ++i)
        detail::gemm_block(problem(i), 0, m, 0, n);
    });
  } else {
    for (std::int64_t i = 0; i < config.batch; ++i) gemm(threads, problem(i));
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
