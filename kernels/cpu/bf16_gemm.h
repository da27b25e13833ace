// C[m,n] = epilogue(A[m,k] B[k,n] + bias) of bfloat16 numbers: what linear, matmul and the convolutions share in bf16.
//
// Each element is summed up as the processor's tile product does it (TDPBF16PS: Intel, Architecture Instruction Set
// Extensions Programming Reference, chapter 3): k in groups of 32, the last one filled up with zeros. In each group the
// even and the odd products are two chains of fused multiply-adds from zero, and what the two give together is added to
// the element's sum, a float:
//
//   sum = 0;  for each group:  even = odd = 0;
//     for (i = 0; i < 32; i += 2) even = fma(a[i], b[i], even), odd = fma(a[i + 1], b[i + 1], odd);
//     sum += even + odd;
//
// Subnormal numbers are read as zeros of their sign, and what becomes subnormal becomes such a zero. Where there are
// such tiles (AMX), they are used; elsewhere the same steps are taken one by one, and the bits are the same (of a NaN,
// only that it is one). A processor's dot product of vectors (VDPBF16PS) adds the pairs up in one chain, which gives
// other bits, and is no faster than fused multiply-adds where there are tiles: it is not used.
//
// B is read in tiles of 32 rows and 16 columns: [n / 16][k / 32][16][16][2], where the last 2 are neighbours in k.
//
//   pack_bf16(threads, w, 784, true, 784, 256, packed);       // from w[n,k], packed_bf16_size(256, 784) elements
//   bf16_gemm(threads, {.m = 64, .n = 256, .k = 784, .a = x, .a_row = 784, .a_padded = padded, .b = packed,
//                       .finish = bf16_finish<relu>(y, 256, bias, residual)});
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__) && defined(__AVX512F__)
#define GRAVEN_HAS_TILES 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#define GRAVEN_HAS_TILES 0
#endif

#include "../config/linear_bf16.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "pack.h"
#include "simd.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// What becomes of finished sums, rows of C from (row, column) on: + bias, epilogue, rounding, and where they go.
struct bf16_end {
  using function_type = void (*)(const bf16_end& end, std::int64_t row, std::int64_t column, const float* sums,
                                 std::int64_t sums_row, std::int64_t rows, std::int64_t columns);
  function_type function;
  void* y;
  std::int64_t y_row;
  const void* bias;      // [n] of y's type, or nullptr
  const void* residual;  // as y lies, and may be y; of y's type
};

namespace detail {

/// Local memory that is not cleared first.
template <std::int64_t count>
union bf16_array {
  bfloat16 data[count];
  bf16_array() {}  // NOLINT: what is read is written before
};

/// y[j] = epilogue(s[j] + bias[j], residual[j]) of one row.
template <class Epilogue, class T>
GRAVEN_ALWAYS_INLINE void finish_row(std::int64_t columns, T* y, const float* s, const T* bias, const T* residual) {
  if (bias != nullptr) {
    GRAVEN_INDEPENDENT
    for (std::int64_t j = 0; j < columns; ++j)
      y[j] = static_cast<T>(apply_epilogue<Epilogue>(s[j] + static_cast<float>(bias[j]), residual, j));
  } else {
    GRAVEN_INDEPENDENT
    for (std::int64_t j = 0; j < columns; ++j) y[j] = static_cast<T>(apply_epilogue<Epilogue>(s[j], residual, j));
  }
}

template <class Epilogue, class T>
[[gnu::noinline]] void finish_bf16(const bf16_end& end, std::int64_t row, std::int64_t column, const float* sums,
                                   std::int64_t sums_row, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = (row + r) * end.y_row + column;
    T* const y = static_cast<T*>(end.y) + at;
    const T* const residual = end.residual == nullptr ? nullptr : static_cast<const T*>(end.residual) + at;
    const float* const s = sums + r * sums_row;
    const T* const bias = end.bias == nullptr ? nullptr : static_cast<const T*>(end.bias) + column;
    if (columns == 32) {  // most have so many
      finish_row<Epilogue>(32, y, s, bias, residual);
    } else {
      finish_row<Epilogue>(columns, y, s, bias, residual);
    }
  }
}

}  // namespace detail

/// y = epilogue(sums + bias, residual), rows of y_row elements of type T.
template <class Epilogue = identity, class T>
GRAVEN_ALWAYS_INLINE bf16_end bf16_finish(T* y, std::int64_t y_row, const T* bias, const T* residual) {
  return {&detail::finish_bf16<Epilogue, T>, y, y_row, bias, residual};
}

struct bf16_problem {
  std::int64_t m, n, k;
  const bfloat16* a;
  std::int64_t a_row;  // from one row to the next; where it is transposed, from one k to the next
  bool a_transposed = false;
  // Rows of bf16_depth(k) elements, m of them, where A is transposed or k not a multiple of 32: a copy is made there.
  bfloat16* a_padded = nullptr;
  const bfloat16* b;  // packed
  bf16_end finish;
};

namespace detail {

inline constexpr std::int64_t kPairs = 16;                   // of k, in a group
inline constexpr std::int64_t kTileWords = kPairs * kPanel;  // pairs in a tile of B

using words = vec_of<std::uint32_t>;
typedef std::uint16_t narrow_halves __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));

/// kLanes elements of two rows, side by side in each lane.
GRAVEN_ALWAYS_INLINE words load_pairs(const bfloat16* even, const bfloat16* odd) {
  const words low = __builtin_convertvector(*reinterpret_cast<const narrow_halves*>(even), words);
  const words high = __builtin_convertvector(*reinterpret_cast<const narrow_halves*>(odd), words);
  return low | (high << 16);
}
/// kLanes neighbouring pairs of one row.
GRAVEN_ALWAYS_INLINE words load_row_pairs(const bfloat16* row) {
  return reinterpret_cast<words>(load<std::uint16_t>(reinterpret_cast<const std::uint16_t*>(row)));
}
GRAVEN_ALWAYS_INLINE void store_words(bfloat16* to, words w) {
  store<std::uint16_t>(reinterpret_cast<std::uint16_t*>(to), reinterpret_cast<vec_of<std::uint16_t>>(w));
}

/// A whole block: 32 x 16 elements from `from` if there are so many, else a copy filled up with zeros.
struct whole_block {
  const bfloat16* data;
  std::int64_t row;
  bf16_array<2 * kPairs * kPanel> copy;

  whole_block(const bfloat16* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, std::int64_t all_rows,
              std::int64_t all_columns)
      : data(from), row(stride) {
    if (rows >= all_rows && columns >= all_columns) return;
    for (std::int64_t r = 0; r < all_rows; ++r)
      for (std::int64_t c = 0; c < all_columns; ++c)
        copy.data[r * all_columns + c] = r < rows && c < columns ? from[r * stride + c] : bfloat16();
    data = copy.data;
    row = all_columns;
  }
};

/// to[p][c] = the pair (2 p, 2 p + 1) of column c, of 32 rows x 16 columns that lie row by row; `rows` and `columns` of
/// them are there.
inline void tile_of_rows(const bfloat16* from, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                         bfloat16* to) {
  const whole_block block(from, stride, rows, columns, 2 * kPairs, kPanel);
  for (std::int64_t p = 0; p < kPairs; ++p)
    for (std::int64_t c = 0; c < kPanel; c += kLanes)
      store_words(to + 2 * (p * kPanel + c),
                  load_pairs(block.data + 2 * p * block.row + c, block.data + (2 * p + 1) * block.row + c));
}

/// Squares of words, transposed: to[j * to_row + i] = word i of row j's ... of 16 x 16.
template <class Load>
GRAVEN_ALWAYS_INLINE void transpose_words(const Load& load_words, bfloat16* to, std::int64_t to_row) {
  for (std::int64_t i = 0; i < kPanel; i += kLanes)
    for (std::int64_t j = 0; j < kPanel; j += kLanes) {
      vec square[kLanes];
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) square[l] = reinterpret_cast<vec>(load_words(i + l, j));
      transpose(square);
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) store_words(to + (j + l) * to_row + 2 * i, reinterpret_cast<words>(square[l]));
    }
}

/// The same as tile_of_rows of a block that lies column by column: 16 columns of 32.
inline void tile_of_columns(const bfloat16* from, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                            bfloat16* to) {
  const whole_block block(from, stride, columns, rows, kPanel, 2 * kPairs);
  transpose_words([&](std::int64_t c, std::int64_t p)
                      GRAVEN_INLINE_LAMBDA { return load_row_pairs(block.data + c * block.row + 2 * p); },
                  to, 2 * kPanel);
}

/// 16 rows of 32, `to_row` apart, of a block that lies as 32 lines of 16.
inline void rows_of_transposed(const bfloat16* from, std::int64_t stride, std::int64_t depth, std::int64_t rows,
                               bfloat16* to, std::int64_t to_row) {
  const whole_block block(from, stride, depth, rows, 2 * kPairs, kPanel);
  bf16_array<2 * kTileWords> stage;
  bfloat16* const into = rows >= kPanel ? to : stage.data;
  const std::int64_t into_row = rows >= kPanel ? to_row : 2 * kPairs;
  transpose_words(
      [&](std::int64_t p, std::int64_t r) GRAVEN_INLINE_LAMBDA {
        return load_pairs(block.data + 2 * p * block.row + r, block.data + (2 * p + 1) * block.row + r);
      },
      into, into_row);
  if (rows >= kPanel) return;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < 2 * kPairs; ++i) to[r * to_row + i] = stage.data[r * 2 * kPairs + i];
}

// ---- tiles of C
// ------------------------------------------------------------------------------------------------------

/// What a block of C, up to 32 x 32, is made of: rows of A, and one or two panels of B.
struct bf16_operands {
  std::int64_t groups;  // of k
  const bfloat16* a;
  std::int64_t a_row;
  const bfloat16* b;
  std::int64_t b_panel;
  int rows, panels;
  bool add = false;  // to what c holds
};

/// c[r][j], rows of 32 floats.
inline constexpr std::int64_t kStageRow = 32, kStageRows = 32;

inline void clear_block(const bf16_operands& o, float* c) {
  for (std::int64_t i = 0; i < o.rows * kStageRow; ++i) c[i] = 0;
}

#if defined(__x86_64__) && GRAVEN_HAS_FMA
// Rows and panels side by side: as many sums, even and odd, as registers hold.
#if defined(__AVX512F__)
inline constexpr int kStepRows = 4, kStepPanels = 2;
#else
inline constexpr int kStepRows = 2, kStepPanels = 1;
#endif

template <int Rows, int Panels>
[[gnu::noinline]] void bf16_steps(const bf16_operands& o, const bfloat16* a, const bfloat16* b, float* c) {
  constexpr int kVectors = Panels * kPanelVectors;
  for (std::int64_t g = 0; g < o.groups; ++g) {
    vec even[Rows][kVectors] = {}, odd[Rows][kVectors] = {};
    const bfloat16* const tile = b + g * 2 * kTileWords;
    for (std::int64_t p = 0; p < kPairs; ++p) {
      vec even_b[kVectors], odd_b[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const words pair =
            load_row_pairs(tile + v / kPanelVectors * o.b_panel + 2 * (p * kPanel + v % kPanelVectors * kLanes));
        even_b[v] = reinterpret_cast<vec>(pair << 16);
        odd_b[v] = reinterpret_cast<vec>(pair & 0xffff0000u);
      }
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const bfloat16* const x = a + r * o.a_row + g * 2 * kPairs + 2 * p;
        const vec even_a = broadcast(float(x[0])), odd_a = broadcast(float(x[1]));
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          even[r][v] = fma(even_a, even_b[v], even[r][v]);
          odd[r][v] = fma(odd_a, odd_b[v], odd[r][v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* const to = c + r * kStageRow + v * kLanes;
        store(to, load(to) + (even[r][v] + odd[r][v]));
      }
  }
}

/// The steps of a tile product, one by one. The processor's mode is that of the tiles meanwhile: subnormal numbers are
/// zeros.
[[gnu::noinline]] inline void bf16_block_by_steps(const bf16_operands& o, float* c) {
  if (!o.add) clear_block(o, c);
  const unsigned mode = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(0x9fc0);  // flush to zero, denormals are zeros, no exceptions, to nearest
  for (int r = 0; r < o.rows;) {
    const int rows = o.rows - r >= kStepRows ? kStepRows : 1;
    for (int p = 0; p < o.panels;) {
      const int panels = o.panels - p >= kStepPanels ? kStepPanels : 1;
      const bfloat16* const a = o.a + r * o.a_row;
      const bfloat16* const b = o.b + p * o.b_panel;
      float* const to = c + r * kStageRow + p * kPanel;
      if (rows == kStepRows && panels == kStepPanels) {
        bf16_steps<kStepRows, kStepPanels>(o, a, b, to);
      } else if (rows == kStepRows) {
        bf16_steps<kStepRows, 1>(o, a, b, to);
      } else if (panels == kStepPanels) {
        bf16_steps<1, kStepPanels>(o, a, b, to);
      } else {
        bf16_steps<1, 1>(o, a, b, to);
      }
      p += panels;
    }
    r += rows;
  }
  __builtin_ia32_ldmxcsr(mode);
}
#else
/// x, or a zero of its sign where it is subnormal.
GRAVEN_ALWAYS_INLINE float flushed(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
/// a * b + c rounded once, without an instruction for it: the product is exact in double; the sum is rounded to odd
/// there, and what is rounded so first may be rounded again (Boldo and Melquiond, Emulation of FMA and correctly
/// rounded sums: proved algorithms using rounding to odd, 2008). What is too small for a normal number, once it is
/// rounded to its 24 bits, is zero.
inline float bf16_multiply_add(float a, float b, float c) {
  const double product = static_cast<double>(flushed(a)) * static_cast<double>(flushed(b)), other = c;
  double sum = product + other;
  const double of_other = sum - product, of_product = sum - of_other;
  const double error = (product - of_product) + (other - of_other);
  std::uint64_t bits = __builtin_bit_cast(std::uint64_t, sum);
  if (error != 0 && (bits & 1) == 0 && error - error == 0) {
    bits += (error > 0) == (sum > 0) ? 1 : static_cast<std::uint64_t>(-1);
    sum = __builtin_bit_cast(double, bits);
  }
  const float scaled = static_cast<float>(sum * 0x1p+64);
  if (__builtin_fabsf(scaled) < 0x1p-62f) return sum < 0 || (sum == 0 && (bits >> 63) != 0) ? -0.0f : 0.0f;
  return static_cast<float>(sum);
}
[[gnu::noinline]] inline void bf16_block_by_steps(const bf16_operands& o, float* c) {
  if (!o.add) clear_block(o, c);
  for (int r = 0; r < o.rows; ++r)
    for (int j = 0; j < o.panels * kPanel; ++j) {
      float sum = c[r * kStageRow + j];
      for (std::int64_t g = 0; g < o.groups; ++g) {
        const bfloat16* const x = o.a + r * o.a_row + g * 2 * kPairs;
        const bfloat16* const y = o.b + j / kPanel * o.b_panel + g * 2 * kTileWords + 2 * (j % kPanel);
        float even = 0, odd = 0;
        for (std::int64_t p = 0; p < kPairs; ++p) {
          even = bf16_multiply_add(float(x[2 * p]), float(y[2 * p * kPanel]), even);
          odd = bf16_multiply_add(float(x[2 * p + 1]), float(y[2 * p * kPanel + 1]), odd);
        }
        sum = flushed(flushed(sum) + flushed(even + odd));
      }
      c[r * kStageRow + j] = sum;
    }
}
#endif

#if GRAVEN_HAS_TILES
/// Whether the processor has tiles of bf16 and the system lets this process use them, which is asked for once.
inline bool has_tiles() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kSystemSaves = 1u << 27, kTileState = 3u << 17;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSystemSaves) == 0) return false;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTile) == 0) return false;
    unsigned low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & kTileState) != kTileState) return false;
    constexpr long kAskForPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, kAskForPermission, kTileData) == 0;
  }();
  return has;
}

/// The shapes of the tiles of a block of so many rows: tmm0 to 3 of C, two rows of two; 4 and 5 of A, 6 and 7 of B.
struct alignas(64) tile_shapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  explicit tile_shapes(int block_rows) {
    const auto upper = static_cast<std::uint8_t>(block_rows < 16 ? block_rows : 16),
               lower = static_cast<std::uint8_t>(block_rows > 16 ? block_rows - 16 : 1);
    const std::uint8_t all[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (int t = 0; t < 8; ++t) row_bytes[t] = 64, rows[t] = all[t];
  }
};
GRAVEN_ALWAYS_INLINE void use_tiles(const tile_shapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
GRAVEN_ALWAYS_INLINE void release_tiles() { asm volatile("tilerelease"); }

#define GRAVEN_TILE_LOAD(t, from, bytes) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"(bytes) : "memory")
#define GRAVEN_TILE_STORE(t, to, bytes) \
  asm volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"(bytes) : "memory")
#define GRAVEN_TILE_ZERO(t) asm volatile("tilezero %%tmm" #t : :)
#define GRAVEN_TILE_PRODUCT(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

/// use_tiles(tile_shapes(o.rows)) goes before it.
template <bool TwoRows, bool TwoPanels>
[[gnu::noinline]] void bf16_block_in_tiles(const bf16_operands& o, float* c) {
  const std::int64_t a_bytes = o.a_row * 2;
  const bfloat16 *upper = o.a, *lower = o.a + 16 * o.a_row, *first = o.b, *second = o.b + o.b_panel;
  constexpr std::int64_t kBytes = kStageRow * 4;
  if (o.add) {
    GRAVEN_TILE_LOAD(0, c, kBytes);
    if constexpr (TwoPanels) GRAVEN_TILE_LOAD(1, c + kPanel, kBytes);
    if constexpr (TwoRows) GRAVEN_TILE_LOAD(2, c + 16 * kStageRow, kBytes);
    if constexpr (TwoRows && TwoPanels) GRAVEN_TILE_LOAD(3, c + 16 * kStageRow + kPanel, kBytes);
  } else {
    GRAVEN_TILE_ZERO(0);
    if constexpr (TwoPanels) GRAVEN_TILE_ZERO(1);
    if constexpr (TwoRows) GRAVEN_TILE_ZERO(2);
    if constexpr (TwoRows && TwoPanels) GRAVEN_TILE_ZERO(3);
  }
  for (std::int64_t g = 0; g < o.groups; ++g) {
    GRAVEN_TILE_LOAD(6, first, std::int64_t{64});
    GRAVEN_TILE_LOAD(4, upper, a_bytes);
    GRAVEN_TILE_PRODUCT(0, 4, 6);
    if constexpr (TwoPanels) {
      GRAVEN_TILE_LOAD(7, second, std::int64_t{64});
      GRAVEN_TILE_PRODUCT(1, 4, 7);
    }
    if constexpr (TwoRows) {
      GRAVEN_TILE_LOAD(5, lower, a_bytes);
      GRAVEN_TILE_PRODUCT(2, 5, 6);
      if constexpr (TwoPanels) GRAVEN_TILE_PRODUCT(3, 5, 7);
      lower += 2 * kPairs;
    }
    upper += 2 * kPairs;
    first += 2 * kTileWords;
    second += 2 * kTileWords;
  }
  GRAVEN_TILE_STORE(0, c, kBytes);
  if constexpr (TwoPanels) GRAVEN_TILE_STORE(1, c + kPanel, kBytes);
  if constexpr (TwoRows) GRAVEN_TILE_STORE(2, c + 16 * kStageRow, kBytes);
  if constexpr (TwoRows && TwoPanels) GRAVEN_TILE_STORE(3, c + 16 * kStageRow + kPanel, kBytes);
}
#undef GRAVEN_TILE_LOAD
#undef GRAVEN_TILE_STORE
#undef GRAVEN_TILE_ZERO
#undef GRAVEN_TILE_PRODUCT
#endif

/// Computes blocks, in tiles where there are such. Whoever has one leaves the tiles to others when it goes.
class bf16_blocks {
 public:
  bf16_blocks() = default;
  bf16_blocks(const bf16_blocks&) = delete;
  bf16_blocks& operator=(const bf16_blocks&) = delete;
#if GRAVEN_HAS_TILES
  ~bf16_blocks() {
    if (rows_ != 0) release_tiles();
  }
#endif

  /// c[rows][32] = the block; beyond its panels anything.
  void operator()(const bf16_operands& o, float* c) {
#if GRAVEN_HAS_TILES
    if (tiles_) {
      if (rows_ != o.rows) {
        rows_ = o.rows;
        use_tiles(tile_shapes(rows_));
      }
      if (o.rows > 16) {
        o.panels == 2 ? bf16_block_in_tiles<true, true>(o, c) : bf16_block_in_tiles<true, false>(o, c);
      } else {
        o.panels == 2 ? bf16_block_in_tiles<false, true>(o, c) : bf16_block_in_tiles<false, false>(o, c);
      }
      return;
    }
#endif
    bf16_block_by_steps(o, c);
  }

 private:
#if GRAVEN_HAS_TILES
  bool tiles_ = has_tiles();
  int rows_ = 0;
#endif
};

GRAVEN_ALWAYS_INLINE std::int64_t smaller_of(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Rows [row, row_end), columns [column, column_end) of C, of A as it lies in padded rows; column is a multiple of 16.
[[gnu::noinline]] inline void bf16_area(const bf16_problem& p, const bfloat16* a, std::int64_t a_row, std::int64_t row,
                                        std::int64_t row_end, std::int64_t column, std::int64_t column_end) {
  constexpr std::int64_t kRowsAtOnce = 128;  // which stay in the second-level cache while B's panels pass by
  const std::int64_t groups = bf16_depth(p.k) / (2 * kPairs), panel = groups * 2 * kTileWords;
  bf16_blocks blocks;
  alignas(64) float stage[kStageRows * kStageRow];
  for (std::int64_t begin = row; begin < row_end; begin += kRowsAtOnce) {
    const std::int64_t end = smaller_of(begin + kRowsAtOnce, row_end);
    for (std::int64_t j = column; j < column_end; j += 2 * kPanel)
      for (std::int64_t r = begin; r < end; r += kStageRows) {
        const std::int64_t rows = smaller_of(end - r, kStageRows), columns = smaller_of(column_end - j, 2 * kPanel);
        blocks({.groups = groups,
                .a = a + r * a_row,
                .a_row = a_row,
                .b = p.b + j / kPanel * panel,
                .b_panel = panel,
                .rows = static_cast<int>(rows),
                .panels = columns > kPanel ? 2 : 1},
               stage);
        p.finish.function(p.finish, r, j, stage, kStageRow, rows, columns);
      }
  }
}

}  // namespace detail

/// Panels [first, last) of B, from b[k,n] whose rows are `stride` apart, or from b[n,k] likewise where it lies
/// transposed.
inline void pack_bf16_panels(const bfloat16* b, std::int64_t stride, bool transposed, std::int64_t k, std::int64_t n,
                             bfloat16* packed, std::int64_t first, std::int64_t last) {
  const std::int64_t depth = bf16_depth(k);
  for (std::int64_t j = first * kPanel; j < last * kPanel; j += kPanel)
    for (std::int64_t i = 0; i < depth; i += 2 * detail::kPairs) {
      bfloat16* const to = packed + j * depth + i * kPanel;
      if (transposed) {
        detail::tile_of_columns(b + j * stride + i, stride, k - i, n - j, to);
      } else {
        detail::tile_of_rows(b + i * stride + j, stride, k - i, n - j, to);
      }
    }
}

/// All of B.
[[gnu::noinline]] inline void pack_bf16(Threads& threads, const bfloat16* b, std::int64_t stride, bool transposed,
                                        std::int64_t k, std::int64_t n, bfloat16* packed) {
  const std::int64_t panels = (n + kPanel - 1) / kPanel, each = (std::int64_t{1} << 15) / (kPanel * k + 1) + 1;
  threads.run((panels + each - 1) / each, [&](std::int64_t piece) {
    pack_bf16_panels(b, stride, transposed, k, n, packed, piece * each, detail::smaller_of(panels, (piece + 1) * each));
  });
}

[[gnu::noinline]] inline void bf16_gemm(Threads& threads, const bf16_problem& p) {
  if (p.m <= 0 || p.n <= 0) return;
  const std::int64_t depth = bf16_depth(p.k);
  const bfloat16* a = p.a;
  std::int64_t a_row = p.a_row;
  if (p.a_transposed || depth != p.k) {
    constexpr std::int64_t kRows = 32;
    a = p.a_padded;
    a_row = depth;
    threads.run((p.m + kRows - 1) / kRows, [&](std::int64_t piece) {
      for (std::int64_t r = piece * kRows; r < p.m && r < (piece + 1) * kRows; r += p.a_transposed ? kPanel : 1) {
        bfloat16* const to = p.a_padded + r * depth;
        if (p.a_transposed) {
          for (std::int64_t i = 0; i < depth; i += 2 * detail::kPairs)
            detail::rows_of_transposed(p.a + i * p.a_row + r, p.a_row, p.k - i, p.m - r, to + i, depth);
        } else {
          for (std::int64_t i = 0; i < depth; ++i) to[i] = i < p.k ? p.a[r * p.a_row + i] : bfloat16();
        }
      }
    });
  }
  // A piece is worth a region's overhead from about 2^19 multiply-adds on; more than 32 pieces balance nothing better.
  constexpr std::int64_t kRows = 64, kColumns = 2 * kPanel;
  const std::int64_t wanted = detail::smaller_of(32, 1 + ((p.m * p.n * depth) >> 19));
  const std::int64_t row_blocks = (p.m + kRows - 1) / kRows, column_blocks = (p.n + kColumns - 1) / kColumns;
  // Few columns a piece read A often, few rows B; both in second-level cache's shares.
  const std::int64_t by_columns = detail::smaller_of(column_blocks, wanted < 8 ? wanted : 8),
                     by_rows = detail::smaller_of(row_blocks, (wanted + by_columns - 1) / by_columns);
  threads.run(by_rows * by_columns, [&](std::int64_t piece) {
    const std::int64_t i = piece % by_rows, j = piece / by_rows;
    detail::bf16_area(p, a, a_row, i * row_blocks / by_rows * kRows,
                      detail::smaller_of((i + 1) * row_blocks / by_rows * kRows, p.m),
                      j * column_blocks / by_columns * kColumns,
                      detail::smaller_of((j + 1) * column_blocks / by_columns * kColumns, p.n));
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
