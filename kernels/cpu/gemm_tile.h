// The micro-kernels of matrix products: a tile of C, all in registers.
//
//   C[Rows, 16 Panels] (+)= A[Rows, k] B[k, 16 Panels] (+ bias[16 Panels])
//
// A and B may lie anywhere: element (r, i) of A is a[r * a_row + i * a_k], row i of B's panel p is the 16 floats at b[p
// * b_panel + i * b_k]. So one micro-kernel serves packed weights (b_k = 16), plain row-major matrices (b_panel = 16)
// and transposed A (a_row = 1).
//
//   gemm_tile<6, 4>({.k = 784, .a = x, .a_row = 784, .a_k = 1, .b = packed, .b_k = 16, .b_panel = 784 * 16,
//                    .bias = bias, .add = false}, y, 256);
//
// Each element is one chain of multiply-adds in the order of k, whatever the tile's size: how a product is cut into
// tiles does not show in its result. Sizes: kTileRows[log2 panels] rows at most; Rows * vectors + vectors + 1
// registers, which leaves none to spill.
#pragma once

#include <cstdint>

#include "level.h"
#include "simd.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

struct gemm_operands {
  std::int64_t k;
  const float* a;
  std::int64_t a_row, a_k;  // strides in elements
  const float* b;
  std::int64_t b_k, b_panel;
  const float* bias;  // 16 floats a panel, or nullptr
  bool add;           // to what C holds
};

#if defined(__AVX512F__)
inline constexpr int kTilePanels = 4;  // at most
inline constexpr int kTileRows4 = 6, kTileRows2 = 14, kTileRows1 = 14;
#elif defined(__ARM_NEON) || (defined(__AVX2__) && defined(__FMA__))
inline constexpr int kTilePanels = 1;
inline constexpr int kTileRows4 = 0, kTileRows2 = 0, kTileRows1 = 6;
#else
inline constexpr int kTilePanels = 1;
inline constexpr int kTileRows4 = 0, kTileRows2 = 0, kTileRows1 = 2;
#endif

template <int Rows, int Panels>
[[gnu::noinline]] inline void gemm_tile(const gemm_operands& o, float* c, std::int64_t c_row) {
  constexpr int kVectors = Panels * kPanelVectors;
  vec sums[Rows][kVectors];
#pragma GCC unroll 64
  for (int v = 0; v < kVectors; ++v) {
    const vec start = o.bias != nullptr ? load(o.bias + v * kLanes) : vec{};
#pragma GCC unroll 64
    for (int r = 0; r < Rows; ++r) sums[r][v] = start;
  }
  const float* a = o.a;
  const float* b = o.b;
  const std::int64_t a_row = o.a_row, a_k = o.a_k, b_k = o.b_k, b_panel = o.b_panel;
  // Three rows share a pointer: a row's address is pointer + {0, 1, 2} row strides, which x86 adds for nothing.
  constexpr int kPointers = (Rows + 2) / 3;
  const float* rows[kPointers];
#pragma GCC unroll 64
  for (int p = 0; p < kPointers; ++p) rows[p] = a + 3 * p * a_row;
  for (std::int64_t i = 0; i < o.k; ++i) {
    vec right[kVectors];
#pragma GCC unroll 64
    for (int v = 0; v < kVectors; ++v)
      right[v] = load(b + (v / kPanelVectors) * b_panel + (v % kPanelVectors) * kLanes);
#pragma GCC unroll 64
    for (int r = 0; r < Rows; ++r) {
      const vec left = broadcast(rows[r / 3][(r % 3) * a_row]);
#pragma GCC unroll 64
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(left, right[v], sums[r][v]);
    }
#pragma GCC unroll 64
    for (int p = 0; p < kPointers; ++p) rows[p] += a_k;
    b += b_k;
  }
  if (o.add) {
#pragma GCC unroll 64
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 64
      for (int v = 0; v < kVectors; ++v)
        store(c + r * c_row + v * kLanes, load(c + r * c_row + v * kLanes) + sums[r][v]);
  } else {
#pragma GCC unroll 64
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 64
      for (int v = 0; v < kVectors; ++v) store(c + r * c_row + v * kLanes, sums[r][v]);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
