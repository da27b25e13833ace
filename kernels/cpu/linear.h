// linear: the fully connected layer, its two gradients, and the packing of its weights. float only.
//
//   y[m,n]  = epilogue(x[m,k] w[n,k]^T + bias[n], residual[m,n])
//   dx[m,k] = epilogue(dy[m,n] w[n,k], residual[m,k])
//   dw[n,k] = dy[m,n]^T x[m,k]        db[n] = the sum of dy's rows
//
//   inline constexpr linear_config hidden{.m = 64, .n = 256, .k = 784};
//   pack_linear_weight(threads, hidden, packed, w);                      // packed[n / 16][k][16], zero-padded
//   linear<relu>(threads, hidden, y, x, packed, bias);                   // or w itself, where the config says
//                                                                        // packed = false
//   pack_linear_weight_transposed(threads, hidden, transposed, w);       // transposed[k / 16][n][16], zero-padded
//   linear_backward_input(threads, hidden, dx, dy, transposed);
//   linear_backward_weight(threads, hidden, dw, db, dy, x, workspace);   // db may be nullptr
//
// y may be residual, dx may be residual. An epilogue of two inputs takes the residual as its second.
#pragma once

#include <cstdint>
#include <utility>

#include "../config/linear.h"
#include "functor.h"
#include "gemm.h"
#include "level.h"
#include "pack.h"
#include "simd.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Pieces of `rows` rows of about 2^18 multiply-adds each.
inline std::int64_t rows_per_piece(std::int64_t multiply_adds_per_row) {
  const std::int64_t rows = (std::int64_t{1} << 18) / (multiply_adds_per_row + 1);
  return rows < 64 ? 64 : rows;
}

/// One output of few inputs: K is known to the compiler, which vectorises over rows.
template <int K, class Epilogue>
[[gnu::noinline]] void linear_one_output(std::int64_t first, std::int64_t last, std::int64_t, float* y, const float* x,
                                         const float* w, std::int64_t w_k, float bias, const float* residual) {
  float weight[K];
  for (int j = 0; j < K; ++j) weight[j] = w[j * w_k];
  GRAVEN_INDEPENDENT
  for (std::int64_t i = first; i < last; ++i) {
    float s = bias;
#pragma GCC unroll 4
    for (int j = 0; j < K; ++j) s = fma(x[i * K + j], weight[j], s);
    y[i] = apply_epilogue<Epilogue>(s, residual, i);
  }
}

inline constexpr std::int64_t kLongestDot = 4096;

/// The scalar product of a row of x with one column of a panel, taken from a contiguous copy.
inline float dot(const float* x, const float* w, std::int64_t k) {
  constexpr int kVectors = 2 * kPanelVectors;
  vec sums[kVectors] = {};
  std::int64_t j = 0;
  for (; j + 2 * kPanel <= k; j += 2 * kPanel)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[v] = fma(load(x + j + v * kLanes), load(w + j + v * kLanes), sums[v]);
  float s = sum(sums);
  for (; j < k; ++j) s = fma(x[j], w[j], s);
  return s;
}

/// One output of a number of inputs that linear_one_output does not know, at most kLongestDot.
template <class Epilogue>
[[gnu::noinline]] void linear_dots(std::int64_t first, std::int64_t last, std::int64_t k, float* y, const float* x,
                                   const float* w, std::int64_t w_k, float bias, const float* residual) {
  float weight[kLongestDot];
  for (std::int64_t j = 0; j < k; ++j) weight[j] = w[j * w_k];
  for (std::int64_t i = first; i < last; ++i)
    y[i] = apply_epilogue<Epilogue>(bias + dot(x + i * k, weight, k), residual, i);
}

using one_output_function = void (*)(std::int64_t first, std::int64_t last, std::int64_t k, float* y, const float* x,
                                     const float* w, std::int64_t w_k, float bias, const float* residual);
/// What computes rows of one output, or nullptr where gemm does. Inlined where linear is called, as linear itself: of a
/// config that the compiler knows, only what it takes is compiled.
template <class Epilogue>
GRAVEN_ALWAYS_INLINE one_output_function choose_one_output(const linear_config& c) {
  if (c.n != 1) return nullptr;
  switch (c.k) {
    case 1:
      return &linear_one_output<1, Epilogue>;
    case 2:
      return &linear_one_output<2, Epilogue>;
    case 3:
      return &linear_one_output<3, Epilogue>;
    case 4:
      return &linear_one_output<4, Epilogue>;
    default:
      return c.k >= 32 && c.k <= kLongestDot ? &linear_dots<Epilogue> : nullptr;
  }
}

[[gnu::noinline]] inline void run_one_output(Threads& threads, const linear_config& c, one_output_function f, float* y,
                                             const float* x, const float* w, const float* bias, const float* residual) {
  const std::int64_t rows = rows_per_piece(c.k);
  threads.run((c.m + rows - 1) / rows, [&](std::int64_t piece) {
    const std::int64_t first = piece * rows, last = first + rows < c.m ? first + rows : c.m;
    f(first, last, c.k, y, x, w, c.packed ? kPanel : 1, bias != nullptr ? *bias : 0.0f, residual);
  });
}

/// Lane l of vector V of kLanes rows of K elements belongs to row (V kLanes + l) / K: a vector with one value a row,
/// spread to those lanes.
template <int K, int V, int... Lane>
GRAVEN_ALWAYS_INLINE vec spread_rows(vec rows, std::integer_sequence<int, Lane...>) {
  return GRAVEN_SHUFFLE(rows, rows, ((V * kLanes + Lane) / K)...);
}
template <int K, int... V>
GRAVEN_ALWAYS_INLINE void add_rows(vec (&sums)[K], const float* x, vec dy, std::integer_sequence<int, V...>) {
  ((sums[V] = fma(load(x + V * kLanes), spread_rows<K, V>(dy, std::make_integer_sequence<int, kLanes>{}), sums[V])),
   ...);
}

template <int K>
GRAVEN_ALWAYS_INLINE void add_group(vec (&sums)[kPanelVectors][K], const float* x, const float* dy) {
#pragma GCC unroll 4
  for (int g = 0; g < kPanelVectors; ++g)
    add_rows<K>(sums[g], x + g * kLanes * K, load(dy + g * kLanes), std::make_integer_sequence<int, K>{});
}

/// dw of one output of few inputs, over groups of 16 rows, whose vectors are multiplied as they lie; blocks of 1024
/// rows are added up. Even and odd groups have sums of their own: one multiply-add after the other would wait for its
/// result.
template <int K>
[[gnu::noinline]] void backward_weight_one_output(std::int64_t m, float* dw, const float* dy, const float* x) {
  vec total[kPanelVectors][K] = {};
  std::int64_t i = 0;
  while (i + kPanel <= m) {
    vec even[kPanelVectors][K] = {}, odd[kPanelVectors][K] = {};
    const std::int64_t end = m - i < 1024 ? m : i + 1024;
    for (; i + 2 * kPanel <= end; i += 2 * kPanel) {
      add_group<K>(even, x + i * K, dy + i);
      add_group<K>(odd, x + (i + kPanel) * K, dy + i + kPanel);
    }
    if (i + kPanel <= end) {
      add_group<K>(even, x + i * K, dy + i);
      i += kPanel;
    }
    for (int g = 0; g < kPanelVectors; ++g)
      for (int v = 0; v < K; ++v) total[g][v] += even[g][v] + odd[g][v];
  }
  float lanes[K * kPanel];
  for (int g = 0; g < kPanelVectors; ++g)
    for (int v = 0; v < K; ++v) store(lanes + (g * K + v) * kLanes, total[g][v]);
  for (int j = 0; j < K; ++j) {
    float s = 0;
    for (int l = 0; l < kPanel; ++l) s += lanes[l * K + j];
    for (std::int64_t r = i; r < m; ++r) s = fma(dy[r], x[r * K + j], s);
    dw[j] = s;
  }
}

/// The sum of m neighbouring floats: lanes of blocks of 2048, then the lanes in halves. As many lanes as additions in
/// flight.
inline float sum_of(std::int64_t m, const float* x) {
  constexpr int kSums = 64, kVectors = kSums / kLanes;
  vec total[kVectors] = {};
  std::int64_t i = 0;
  while (i + kSums <= m) {
    vec part[kVectors] = {};
    const std::int64_t end = i + 32 * kSums < m ? i + 32 * kSums : m;
    for (; i + kSums <= end; i += kSums)
      for (int v = 0; v < kVectors; ++v) part[v] += load(x + i + v * kLanes);
    for (int v = 0; v < kVectors; ++v) total[v] += part[v];
  }
  float lanes[kSums];
  for (int v = 0; v < kVectors; ++v) store(lanes + v * kLanes, total[v]);
  for (int l = 0; i < m; ++i, ++l) lanes[l] += x[i];
  for (int step = kSums / 2; step > 0; step /= 2)
    for (int l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  return lanes[0];
}

/// sums[j] = the sum over the m rows of dy[m, columns of stride n], for at most 64 columns.
inline void sum_columns(std::int64_t m, std::int64_t n, std::int64_t columns, const float* dy, float* sums) {
  float total[64] = {};
  for (std::int64_t i = 0; i < m;) {
    float part[64] = {};
    const std::int64_t end = i + 128 < m ? i + 128 : m;
    for (; i < end; ++i)
      for (std::int64_t j = 0; j < columns; ++j) part[j] += dy[i * n + j];
    for (std::int64_t j = 0; j < columns; ++j) total[j] += part[j];
  }
  for (std::int64_t j = 0; j < columns; ++j) sums[j] = total[j];
}

/// db of m rows of dy, on this thread.
inline void bias_gradient(std::int64_t m, std::int64_t n, float* db, const float* dy) {
  if (n == 1) {
    db[0] = sum_of(m, dy);
  } else {
    for (std::int64_t j = 0; j < n; j += 64) sum_columns(m, n, n - j < 64 ? n - j : 64, dy + j, db + j);
  }
}

/// dw of m rows of dy and x, as a product of transposed dy and x.
inline gemm_problem backward_weight_problem(std::int64_t m, std::int64_t n, std::int64_t k, float* dw, const float* dy,
                                            const float* x) {
  return {.m = n,
          .n = k,
          .k = m,
          .a = dy,
          .a_row = 1,
          .a_k = n,
          .b = x,
          .b_k = k,
          .b_panel = kPanel,
          .b_row = 0,
          .b_padded = false,
          .c = dw,
          .c_row = k,
          .bias = nullptr,
          .finish = {nullptr, nullptr},
          .add = false,
          .rows_first = true};
}

using one_output_gradient = void (*)(std::int64_t m, float* dw, const float* dy, const float* x);
/// backward_weight_one_output for so many outputs and inputs, or nullptr.
GRAVEN_ALWAYS_INLINE one_output_gradient choose_one_output_gradient(std::int64_t n, std::int64_t k) {
  if (n != 1) return nullptr;
  switch (k) {
    case 1:
      return &backward_weight_one_output<1>;
    case 2:
      return &backward_weight_one_output<2>;
    case 3:
      return &backward_weight_one_output<3>;
    case 4:
      return &backward_weight_one_output<4>;
    default:
      return nullptr;
  }
}

/// dw of m rows of dy and x, on this thread.
inline void weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k, one_output_gradient one_output, float* dw,
                            const float* dy, const float* x) {
  if (one_output != nullptr) return one_output(m, dw, dy, x);
  gemm_block(backward_weight_problem(m, n, k, dw, dy, x), 0, n, 0, k);
}

[[gnu::noinline]] inline void linear_dense(Threads& threads, const linear_config& c, float* y, const float* x,
                                           const float* w, const float* bias, gemm_epilogue finish) {
  gemm(threads, {.m = c.m,
                 .n = c.n,
                 .k = c.k,
                 .a = x,
                 .a_row = c.k,
                 .a_k = 1,
                 .b = w,
                 .b_k = kPanel,
                 .b_panel = kPanel * c.k,
                 .b_row = c.packed ? 0 : c.k,
                 .b_padded = c.packed,
                 .c = y,
                 .c_row = c.n,
                 .bias = bias,
                 .finish = finish,
                 .add = false,
                 .rows_first = false});
}

[[gnu::noinline]] inline void linear_backward_input_dense(Threads& threads, const linear_config& c, float* dx,
                                                          const float* dy, const float* w, gemm_epilogue finish) {
  gemm(threads, {.m = c.m,
                 .n = c.k,
                 .k = c.n,
                 .a = dy,
                 .a_row = c.n,
                 .a_k = 1,
                 .b = w,
                 .b_k = c.packed ? kPanel : c.k,
                 .b_panel = c.packed ? kPanel * c.n : kPanel,
                 .b_row = 0,
                 .b_padded = c.packed,
                 .c = dx,
                 .c_row = c.k,
                 .bias = nullptr,
                 .finish = finish,
                 .add = false,
                 .rows_first = false});
}

}  // namespace detail

inline void pack_linear_weight(Threads& threads, const linear_config& c, float* packed, const float* w) {
  // Pieces of a few panels, about 2^15 floats each.
  const std::int64_t panels = (c.n + kPanel - 1) / kPanel, each = (std::int64_t{1} << 15) / (kPanel * c.k + 1) + 1;
  threads.run((panels + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t p = piece * each; p < panels && p < (piece + 1) * each; ++p)
      pack_rows_panel(w + p * kPanel * c.k, c.k, c.n - p * kPanel < kPanel ? c.n - p * kPanel : kPanel, c.k,
                      packed + p * kPanel * c.k);
  });
}

inline void pack_linear_weight_transposed(Threads& threads, const linear_config& c, float* packed, const float* w) {
  const std::int64_t panels = (c.k + kPanel - 1) / kPanel, each = (std::int64_t{1} << 15) / (kPanel * c.n + 1) + 1;
  threads.run((panels + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t p = piece * each; p < panels && p < (piece + 1) * each; ++p)
      pack_columns_panel(w + p * kPanel, c.k, c.n, c.k - p * kPanel < kPanel ? c.k - p * kPanel : kPanel,
                         packed + p * kPanel * c.n);
  });
}

template <class Epilogue = identity>
GRAVEN_ALWAYS_INLINE void linear(Threads& threads, const linear_config& c, float* y, const float* x, const float* w,
                                 const float* bias = nullptr, const float* residual = nullptr) {
  const detail::one_output_function one_output = detail::choose_one_output<Epilogue>(c);
  if (one_output != nullptr) return detail::run_one_output(threads, c, one_output, y, x, w, bias, residual);
  detail::linear_dense(threads, c, y, x, w, bias, gemm_finish<Epilogue>(residual));
}

template <class Epilogue = identity>
GRAVEN_ALWAYS_INLINE void linear_backward_input(Threads& threads, const linear_config& c, float* dx, const float* dy,
                                                const float* w, const float* residual = nullptr) {
  detail::linear_backward_input_dense(threads, c, dx, dy, w, gemm_finish<Epilogue>(residual));
}

namespace detail {

[[gnu::noinline]] inline void linear_backward_weight_by(Threads& threads, const linear_config& c,
                                                        one_output_gradient one_output, float* dw, float* db,
                                                        const float* dy, const float* x, void* workspace) {
  const std::int64_t chunks = linear_backward_weight_chunks(c), rows = linear_backward_weight_rows(c);
  if (chunks == 1) {
    if (c.m * c.n * c.k < (std::int64_t{1} << 18)) {
      weight_gradient(c.m, c.n, c.k, one_output, dw, dy, x);
    } else {
      gemm(threads, backward_weight_problem(c.m, c.n, c.k, dw, dy, x));
    }
    if (db != nullptr) bias_gradient(c.m, c.n, db, dy);
    return;
  }
  float* const sums = static_cast<float*>(workspace);
  const std::int64_t size = c.n * c.k, spacing = (size + c.n + 15) / 16 * 16;
  threads.run(chunks, [&](std::int64_t chunk) {
    const std::int64_t first = chunk * rows, count = c.m - first < rows ? c.m - first : rows;
    float* const weight = chunk == 0 ? dw : sums + (chunk - 1) * spacing;
    weight_gradient(count > 0 ? count : 0, c.n, c.k, one_output, weight, dy + first * c.n, x + first * c.k);
    if (db != nullptr) bias_gradient(count > 0 ? count : 0, c.n, chunk == 0 ? db : weight + size, dy + first * c.n);
  });
  for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
    const float* const weight = sums + (chunk - 1) * spacing;
    for (std::int64_t i = 0; i < size; ++i) dw[i] += weight[i];
    if (db != nullptr)
      for (std::int64_t j = 0; j < c.n; ++j) db[j] += weight[size + j];
  }
}

}  // namespace detail

GRAVEN_ALWAYS_INLINE void linear_backward_weight(Threads& threads, const linear_config& c, float* dw, float* db,
                                                 const float* dy, const float* x, void* workspace = nullptr) {
  detail::linear_backward_weight_by(threads, c, detail::choose_one_output_gradient(c.n, c.k), dw, db, dy, x, workspace);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
