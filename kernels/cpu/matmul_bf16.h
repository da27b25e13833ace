// matmul of bfloat16 numbers: what matmul.h is to floats. Sums are floats (bf16_gemm.h).
//
//   matmul(threads, scores, c, queries, keys, nullptr, nullptr, workspace);   // matmul_bf16_workspace(scores) bytes
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config/matmul_bf16.h"
#include "bf16_gemm.h"
#include "functor.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class Epilogue = identity>
inline void matmul(Threads& threads, const matmul_config& config, bfloat16* c, const bfloat16* a, const bfloat16* b,
                   const bfloat16* bias, const bfloat16* residual, void* workspace = nullptr) {
  const std::int64_t m = config.m, n = config.n, k = config.k;
  if (config.batch <= 0 || m <= 0 || n <= 0) return;
  const std::int64_t packed_bytes = matmul_bf16_packed_bytes(config),
                     padded_bytes = padded_bf16_bytes(m, k, config.transpose_a);
  const bool one_b = config.b_batch_stride == 0;
  std::byte* const of_b = static_cast<std::byte*>(workspace);
  std::byte* const of_a = of_b + (one_b ? 1 : config.batch) * packed_bytes;
  const auto pack = [&](std::int64_t i) {
    pack_bf16(threads, b + i * config.b_batch_stride, config.transpose_b ? k : n, config.transpose_b, k, n,
              reinterpret_cast<bfloat16*>(of_b + i * packed_bytes));
  };
  const auto multiply = [&](std::int64_t i) {
    bf16_gemm(threads, {.m = m,
                        .n = n,
                        .k = k,
                        .a = a + i * config.a_batch_stride,
                        .a_row = config.transpose_a ? m : k,
                        .a_transposed = config.transpose_a,
                        .a_padded = reinterpret_cast<bfloat16*>(of_a + i * padded_bytes),
                        .b = reinterpret_cast<const bfloat16*>(of_b + (one_b ? 0 : i * packed_bytes)),
                        .finish = bf16_finish<Epilogue>(c + i * m * n, n, bias,
                                                        residual == nullptr ? nullptr : residual + i * m * n)});
  };
  if (one_b) pack(0);
  if (config.batch < 4) {
    for (std::int64_t i = 0; i < config.batch; ++i) {
      if (!one_b) pack(i);
      multiply(i);
    }
    return;
  }
  // Whole products are divided among threads, about 2^19 multiply-adds or more at a time.
  const std::int64_t each = (std::int64_t{1} << 19) / (m * n * (k > 0 ? k : 1)) + 1;
  threads.run((config.batch + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t i = piece * each; i < config.batch && i < (piece + 1) * each; ++i) {
      if (!one_b) pack(i);
      multiply(i);
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
