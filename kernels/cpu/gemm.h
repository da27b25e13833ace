// C[m,n] = epilogue(A[m,k] B[k,n] + bias): what linear, matmul and 1x1 convolutions share. Not a kernel of its own:
// kernels fill in a gemm_problem.
//
//   gemm(threads, {.m = 64, .n = 256, .k = 784, .a = x, .a_row = 784, .a_k = 1, .b = packed, .b_k = 16,
//                  .b_panel = 784 * 16, .b_padded = true, .c = y, .c_row = 256, .bias = bias,
//                  .finish = gemm_finish<relu>(nullptr), .add = false, .rows_first = false});
//
// The product is cut into pieces of whole tiles (gemm_tile.h) whose borders depend on the sizes alone. k over 512 is
// summed in blocks, each from zero, and the blocks are added in C: B's block then stays in the second-level cache, and
// long sums are more accurate.
#pragma once

#include <cstdint>

#include "functor.h"
#include "gemm_tile.h"
#include "level.h"
#include "pack.h"
#include "simd.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// An epilogue over rows of `columns` elements: y = epilogue(x, residual); residual lies as y does and may be y. One
/// function for each epilogue, so that the product itself is compiled once for all.
using gemm_finish_function = void (*)(float* y, std::int64_t y_row, const float* x, std::int64_t x_row,
                                      const float* residual, std::int64_t rows, std::int64_t columns);
struct gemm_epilogue {
  gemm_finish_function function;  // nullptr: none
  const float* residual;          // as C lies, and may be C; nullptr unless the epilogue has two inputs
};

struct gemm_problem {
  std::int64_t m, n, k;
  const float* a;  // element (r, i) at a[r * a_row + i * a_k]
  std::int64_t a_row, a_k;
  // Where not 0: kGroupRows rows lie side by side, the next ones a_group further on, and a_row is 1.
  std::int64_t a_group = 0;
  // Element (i, j) at b[j / 16 * b_panel + i * b_k + j % 16]; where b_row is not 0: at b[j * b_row + i].
  const float* b;
  std::int64_t b_k, b_panel, b_row;
  bool b_padded;  // the last panel may be read to its 16th column
  float* c;       // row-major
  std::int64_t c_row;
  const float* bias;  // [n] or nullptr
  gemm_epilogue finish;
  bool add;         // to what C holds
  bool rows_first;  // neighbouring pieces share columns rather than rows: where C's rows are what stays on a thread
                    // from call to call
};

namespace detail {

inline constexpr std::int64_t kGemmBlock = 512;                                         // largest block of k
inline constexpr std::int64_t kGroupRows = kTilePanels == 1 ? kTileRows1 : kTileRows4;  // of a tile

inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Calls the micro-kernel of that size.
inline void call_tile(int rows, int panels, const gemm_operands& o, float* c, std::int64_t c_row) {
  const int size = rows * 8 + panels;
  switch (size) {
#if defined(__AVX512F__)
    case 6 * 8 + 4:
      return gemm_tile<6, 4>(o, c, c_row);
    case 4 * 8 + 4:
      return gemm_tile<4, 4>(o, c, c_row);
    case 2 * 8 + 4:
      return gemm_tile<2, 4>(o, c, c_row);
    case 1 * 8 + 4:
      return gemm_tile<1, 4>(o, c, c_row);
    case 14 * 8 + 2:
      return gemm_tile<14, 2>(o, c, c_row);
    case 8 * 8 + 2:
      return gemm_tile<8, 2>(o, c, c_row);
    case 4 * 8 + 2:
      return gemm_tile<4, 2>(o, c, c_row);
    case 2 * 8 + 2:
      return gemm_tile<2, 2>(o, c, c_row);
    case 1 * 8 + 2:
      return gemm_tile<1, 2>(o, c, c_row);
    case 14 * 8 + 1:
      return gemm_tile<14, 1>(o, c, c_row);
    case 8 * 8 + 1:
      return gemm_tile<8, 1>(o, c, c_row);
#elif defined(__ARM_NEON) || (defined(__AVX2__) && defined(__FMA__))
    case 6 * 8 + 1:
      return gemm_tile<6, 1>(o, c, c_row);
#endif
#if defined(__AVX512F__) || defined(__ARM_NEON) || (defined(__AVX2__) && defined(__FMA__))
    case 4 * 8 + 1:
      return gemm_tile<4, 1>(o, c, c_row);
#endif
    case 2 * 8 + 1:
      return gemm_tile<2, 1>(o, c, c_row);
    default:
      return gemm_tile<1, 1>(o, c, c_row);
  }
}

/// Rows of the next tile when `left` remain: few sizes, so that few micro-kernels are compiled.
inline int tile_rows(std::int64_t left, int panels) {
  const int most = panels == 4 ? kTileRows4 : panels == 2 ? kTileRows2 : kTileRows1;
  if (most == 14) return left >= 14 && left != 16 ? 14 : left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
  if (most == 6) return left >= 6 && left != 8 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
  return left >= 2 ? 2 : 1;
}

/// Copies rows [0, k) of `columns` columns of B into zero-padded panels [columns / 16][k][16], row by row: a row of B
/// may be a page of its own, which the processor does not foresee, so rows are asked for ahead.
inline void copy_panels(const float* b, std::int64_t b_k, std::int64_t b_panel, std::int64_t k, std::int64_t columns,
                        float* to) {
  constexpr std::int64_t kAhead = 12;
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < columns; j += kPanel) {
      const float* const from = b + j / kPanel * b_panel + i * b_k;
      float* const panel = to + j * k + i * kPanel;
      const std::int64_t width = columns - j < kPanel ? columns - j : kPanel;
      if (width == kPanel) {
        if (i + kAhead < k) prefetch(from + kAhead * b_k);
        for (int v = 0; v < kPanelVectors; ++v) store(panel + v * kLanes, load(from + v * kLanes));
      } else {
        for (std::int64_t l = 0; l < kPanel; ++l) panel[l] = l < width ? from[l] : 0.0f;
      }
    }
}

template <class Epilogue>
[[gnu::noinline]] void finish_rows(float* y, std::int64_t y_row, const float* x, std::int64_t x_row,
                                   const float* residual, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    GRAVEN_INDEPENDENT
    for (std::int64_t j = 0; j < columns; ++j)
      y[r * y_row + j] = apply_epilogue<Epilogue>(x[r * x_row + j], residual, r * y_row + j);
  }
}

inline void copy_rows(float* y, std::int64_t y_row, const float* x, std::int64_t x_row, std::int64_t rows,
                      std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t whole = columns / kLanes * kLanes;
    for (std::int64_t j = 0; j < whole; j += kLanes) store(y + r * y_row + j, load(x + r * x_row + j));
    for (std::int64_t j = whole; j < columns; ++j) y[r * y_row + j] = x[r * x_row + j];
  }
}

/// Rows [row, row_end) of the columns [column, column_end), at most kTilePanels panels, of which only the matrix's last
/// may be partial.
[[gnu::noinline]] inline void gemm_columns(const gemm_problem& p, std::int64_t row, std::int64_t row_end,
                                           std::int64_t column, std::int64_t column_end) {
  constexpr std::int64_t kColumns = kTilePanels * kPanel, kStagedRows = 84;
  const std::int64_t columns = column_end - column;
  const int panels = static_cast<int>((columns + kPanel - 1) / kPanel);
  const bool partial = columns % kPanel != 0;
  float bias[kColumns];
  if (p.bias != nullptr)
    for (std::int64_t j = 0; j < kColumns; ++j) bias[j] = j < columns ? p.bias[column + j] : 0.0f;
  const std::int64_t blocks = (p.k + kGemmBlock - 1) / kGemmBlock,
                     block = blocks <= 1 ? kGemmBlock : (p.k + blocks - 1) / blocks;
  // Tiles go to a stage on the stack where they are wider than C, and where C may hold the residual until the end.
  float stage[kStagedRows * kColumns];
  const bool staged = partial || p.finish.residual != nullptr;
  // Rows of B far apart would collide in the first-level cache, and reading beyond a partial panel is not allowed: such
  // blocks are copied, and so is what lies transposed.
  float copy[kGemmBlock * kColumns];
  const bool copied =
      p.k > 0 && (p.b_row != 0 || (!p.b_padded && (partial || (row_end - row >= 32 && p.b_k % 128 == 0))));
  const std::int64_t chunk = staged ? kStagedRows : row_end - row;
  for (std::int64_t begin = row; begin < row_end; begin += chunk) {
    const std::int64_t end = begin + chunk < row_end ? begin + chunk : row_end;
    for (std::int64_t i = 0; i == 0 || i < p.k; i += block) {
      gemm_operands o{.k = p.k - i < block ? p.k - i : block,
                      .a = nullptr,
                      .a_row = p.a_row,
                      .a_k = p.a_k,
                      .b = p.k == 0       ? nullptr
                           : p.b_row != 0 ? p.b + column * p.b_row + i
                                          : p.b + column / kPanel * p.b_panel + i * p.b_k,
                      .b_k = p.b_k,
                      .b_panel = p.b_panel,
                      .bias = i == 0 && p.bias != nullptr ? bias : nullptr,
                      .add = p.add || i != 0};
      if (p.k == 0) {
        // A and B may be nullptr, to which nothing may be added; any address will do, since nothing is read.
        o.a_row = o.b_panel = 0;
        o.b = bias;
      }
      if (copied) {
        if (p.b_row != 0) {
          for (std::int64_t j = 0; j < columns; j += kPanel)
            pack_rows_panel(o.b + j * p.b_row, p.b_row, columns - j < kPanel ? columns - j : kPanel, o.k,
                            copy + j * o.k);
        } else {
          copy_panels(o.b, o.b_k, o.b_panel, o.k, columns, copy);
        }
        o.b = copy;
        o.b_k = kPanel;
        o.b_panel = o.k * kPanel;
      }
      int tile = 0;
      for (std::int64_t r = begin; r < end; r += tile) {
        float* const c = p.c + r * p.c_row + column;
        float* const to = staged ? stage + (r - begin) * kColumns : c;
        const std::int64_t to_row = staged ? kColumns : p.c_row;
        std::int64_t left = end - r;
        if (p.k == 0) {
          o.a = bias;
        } else if (p.a_group != 0) {
          const std::int64_t lane = r % kGroupRows;
          o.a = p.a + r / kGroupRows * p.a_group + lane + i * p.a_k;
          left = left < kGroupRows - lane ? left : kGroupRows - lane;
        } else {
          o.a = p.a + r * p.a_row + i * p.a_k;
        }
        tile = tile_rows(left, panels == 3 ? 2 : panels);
        if (staged && p.add && i == 0) copy_rows(to, to_row, c, p.c_row, tile, columns);
        if (panels == 3) {
          call_tile(tile, 2, o, to, to_row);
          gemm_operands third = o;
          third.b += 2 * o.b_panel;
          if (o.bias != nullptr) third.bias += 2 * kPanel;
          call_tile(tile, 1, third, to + 2 * kPanel, to_row);
        } else {
          call_tile(tile, panels, o, to, to_row);
        }
        if (i + block < p.k) continue;
        const float* const residual = p.finish.residual == nullptr ? nullptr : p.finish.residual + r * p.c_row + column;
        if (p.finish.function != nullptr)
          p.finish.function(c, p.c_row, to, to_row, residual, tile, columns);
        else if (staged)
          copy_rows(c, p.c_row, to, to_row, tile, columns);
      }
    }
  }
}

/// Rows [row, row_end) of columns [column, column_end), column a multiple of 16.
inline void gemm_block(const gemm_problem& p, std::int64_t row, std::int64_t row_end, std::int64_t column,
                       std::int64_t column_end) {
  constexpr std::int64_t kColumns = kTilePanels * kPanel;
  for (std::int64_t j = column; j < column_end; j += kColumns)
    gemm_columns(p, row, row_end, j, column_end - j < kColumns ? column_end : j + kColumns);
}

/// Copies `rows` rows of a transposed A, from k lines, into groups [rows / kGroupRows][k][kGroupRows].
inline void copy_groups(const float* a, std::int64_t a_k, std::int64_t k, std::int64_t rows, float* to) {
  const std::int64_t whole = rows / kGroupRows * kGroupRows;
  for (std::int64_t i = 0; i < k; ++i) {
    const float* const line = a + i * a_k;
    float* group = to + i * kGroupRows;
    for (std::int64_t r = 0; r < whole; r += kGroupRows, group += k * kGroupRows)
      for (std::int64_t t = 0; t < kGroupRows; ++t) group[t] = line[r + t];
    for (std::int64_t r = whole; r < rows; ++r) group[r - whole] = line[r];
  }
}

/// The same for a transposed A, of which a tile would read a few floats of each of many lines, pages apart or such that
/// they collide in the first-level cache: blocks of A are copied, a tile's rows side by side, before they meet all
/// columns.
[[gnu::noinline]] inline void gemm_block_transposed(const gemm_problem& p, std::int64_t row, std::int64_t row_end,
                                                    std::int64_t column, std::int64_t column_end) {
  constexpr std::int64_t kFloats = kGemmBlock * 84;
  float left[kFloats];
  const std::int64_t blocks = (p.k + kGemmBlock - 1) / kGemmBlock, block = (p.k + blocks - 1) / blocks,
                     most = kFloats / block / 12 * 12;
  for (std::int64_t r = row; r < row_end; r += most) {
    const std::int64_t rows = row_end - r < most ? row_end - r : most;
    for (std::int64_t i = 0; i < p.k; i += block) {
      gemm_problem part = p;
      part.k = p.k - i < block ? p.k - i : block;
      part.a_k = kGroupRows;
      part.a_group = kGroupRows * part.k;
      copy_groups(p.a + i * p.a_k + r, p.a_k, part.k, rows, left);
      part.a = left;
      part.b += p.b_row != 0 ? i : i * p.b_k;
      part.c += r * p.c_row;
      part.bias = i == 0 ? p.bias : nullptr;
      part.add = p.add || i != 0;
      gemm_block(part, 0, rows, column, column_end);
    }
  }
}

}  // namespace detail

template <class Epilogue>
GRAVEN_ALWAYS_INLINE gemm_epilogue gemm_finish(const float* residual) {
  if constexpr (same_type<Epilogue, identity>)
    return {nullptr, nullptr};
  else
    return {&detail::finish_rows<Epilogue>, Epilogue::inputs == 2 ? residual : nullptr};
}

namespace detail {

/// How a product is cut into pieces of whole tiles.
struct gemm_cut {
  std::int64_t by_rows, by_columns;
  std::int64_t columns;  // of a tile
  bool transposed;       // pieces copy their part of A, which lies transposed
};

inline gemm_cut cut_gemm(const gemm_problem& p) {
  constexpr std::int64_t kColumns = kTilePanels * kPanel, kRows = kGroupRows;
  // A piece has two tiles' rows or more; where B's rows are read as they lie, eight tiles', through which B's columns
  // stay in the first-level cache.
  const std::int64_t least_rows = (p.rows_first ? 8 : 2) * kRows;
  // A piece is worth a region's overhead from about 2^17 multiply-adds on; more than 64 pieces balance nothing better.
  // Panels are worked on whole, and a tile's first and last steps cost as much as 4 steps of k.
  const std::int64_t work = (p.m * ((p.n + kPanel - 1) / kPanel * kPanel) * (p.k + 4) + (1 << 16)) >> 17,
                     wanted = work < 1    ? 1
                              : work < 64 ? work
                                          : 64;
  std::int64_t most_columns = (p.n + kColumns - 1) / kColumns, most_rows = (p.m + least_rows - 1) / least_rows;
  // Each piece copies its columns of B anew, which takes as long as 5 rows' multiply-adds: pieces have many rows, and
  // narrower tiles make enough of them.
  const bool copies = p.b_row != 0 || (!p.b_padded && !p.rows_first && p.b_k % 128 == 0);
  std::int64_t columns = kColumns;
  if (copies) {
    const std::int64_t many_rows = (p.m + 127) / 128, enough = least(wanted, 8);
    while (columns > kPanel && (p.n + columns - 1) / columns * many_rows < enough) columns /= 2;
    most_columns = (p.n + columns - 1) / columns;
    const std::int64_t rows = (enough + most_columns - 1) / most_columns;
    most_rows = least(most_rows, rows > many_rows ? rows : many_rows);
  }
  // A transposed A is copied for each piece: only many columns make up for that, fewer where A's lines collide in the
  // cache or miss the table of pages.
  const bool apart = p.k >= 256 && (p.a_k % 256 == 0 || p.a_k >= 4096);
  const bool transposed = p.finish.function == nullptr && p.a_row == 1 && p.k >= 32 && p.n >= (apart ? 4 : 16) * kPanel;
  if (transposed) {
    const std::int64_t wide = (p.n + 399) / 400, enough = 8 / most_rows;
    most_columns = least(most_columns, wide > enough ? wide : enough);
  }
  std::int64_t by_rows, by_columns;
  if (p.rows_first) {
    by_rows = wanted < most_rows ? wanted : most_rows;
    by_columns = (wanted + by_rows - 1) / by_rows;
    by_columns = by_columns < most_columns ? by_columns : most_columns;
  } else {
    by_columns = wanted < most_columns ? wanted : most_columns;
    by_rows = (wanted + by_columns - 1) / by_columns;
    by_rows = by_rows < most_rows ? by_rows : most_rows;
  }
  return {least(by_rows, (p.m + kRows - 1) / kRows), by_columns, columns, transposed};
}

/// A piece's rows and columns. Pieces differ by one tile at most: threads that are equally fast finish together.
struct gemm_area {
  std::int64_t row, row_end, column, column_end;
};
inline gemm_area area_of(const gemm_problem& p, const gemm_cut& cut, std::int64_t piece) {
  constexpr std::int64_t kRows = kGroupRows;
  const std::int64_t row_tiles = (p.m + kRows - 1) / kRows, column_tiles = (p.n + cut.columns - 1) / cut.columns;
  const std::int64_t i = p.rows_first ? piece / cut.by_columns : piece % cut.by_rows,
                     j = p.rows_first ? piece % cut.by_columns : piece / cut.by_rows;
  return {i * row_tiles / cut.by_rows * kRows, least((i + 1) * row_tiles / cut.by_rows * kRows, p.m),
          j * column_tiles / cut.by_columns * cut.columns,
          least((j + 1) * column_tiles / cut.by_columns * cut.columns, p.n)};
}

inline void gemm_piece(const gemm_problem& p, bool transposed, const gemm_area& area) {
  if (transposed) {
    gemm_block_transposed(p, area.row, area.row_end, area.column, area.column_end);
  } else {
    gemm_block(p, area.row, area.row_end, area.column, area.column_end);
  }
}

}  // namespace detail

[[gnu::noinline]] inline void gemm(Threads& threads, const gemm_problem& p) {
  if (p.m <= 0 || p.n <= 0) return;
  const detail::gemm_cut cut = detail::cut_gemm(p);
  threads.run(cut.by_rows * cut.by_columns,
              [&](std::int64_t piece) { detail::gemm_piece(p, cut.transposed, detail::area_of(p, cut, piece)); });
}

/// The same product, which is not kept: take(row, column, columns, values) is given pieces of rows, each value once, on
/// the thread that computed them. B must lie untransposed, and there is neither bias, epilogue nor sum.
template <class Take>
[[gnu::noinline]] void gemm_rows(Threads& threads, const gemm_problem& p, const Take& take) {
  if (p.m <= 0 || p.n <= 0) return;
  constexpr std::int64_t kStage = 16384, kMostColumns = 1024;
  static_assert(kStage / kMostColumns >= detail::kGroupRows && kMostColumns % (kTilePanels * kPanel) == 0);
  const detail::gemm_cut cut = detail::cut_gemm(p);
  threads.run(cut.by_rows * cut.by_columns, [&](std::int64_t piece) {
    const detail::gemm_area area = detail::area_of(p, cut, piece);
    float stage[kStage];
    for (std::int64_t column = area.column; column < area.column_end; column += kMostColumns) {
      const std::int64_t columns = detail::least(kMostColumns, area.column_end - column);
      const std::int64_t most = kStage / columns / detail::kGroupRows * detail::kGroupRows;
      gemm_problem part = p;
      if (p.k > 0) part.b += column / kPanel * p.b_panel;
      part.c = stage;
      part.c_row = columns;
      for (std::int64_t row = area.row; row < area.row_end; row += most) {
        const std::int64_t rows = detail::least(most, area.row_end - row);
        if (p.k > 0) part.a = p.a + row * p.a_row;
        detail::gemm_piece(part, cut.transposed, {0, rows, 0, columns});
        for (std::int64_t r = 0; r < rows; ++r) take(row + r, column, columns, stage + r * columns);
      }
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
