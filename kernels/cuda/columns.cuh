// How the threads of blocks share what is summed down the columns of matrices x [outer, rows, columns], so that
// neighbours read neighbours and the device is busy whatever the sizes.
//
//   const column_cut cut = cut_columns(outer, rows, columns, width);             // on the host
//   launch(context, name, &kernel<4, T>, column_shape(cut, 4), cut, ...);
//
//   for (std::int64_t first = first_matrix(cut); first < cut.outer; first += matrix_stride(cut)) {   // in the kernel
//     const column_place at = place_in_columns<4>(cut, first);
//     T sums[4];
//     reduce_lines<sum_of>(cut, at, sums, x);
//     if (at.stores()) ...
//   }
//
// A block is lanes x lines x groups of threads, each a power of 2: lanes lie side by side in a row (64 or 128 bytes of
// it where there are many lines), lines take one row in turn each, groups one matrix each. Lines are joined in halves
// through shared memory. Long columns are cut into pieces of `piece_rows`, each of which leaves a result of its own.
// Lines and pieces depend on the sizes alone: so does the order of a sum.
#pragma once

#include "block.cuh"
#include "context.cuh"
#include "vector.cuh"

namespace graven::kernels {

/// The most threads of a block that works on columns.
inline constexpr int kColumnBlock = 512;
/// Rows that a thread asks for before it uses the first.
inline constexpr int kRowsAhead = 4;

struct column_cut {
  std::int64_t outer = 1, rows = 0, columns = 0;
  std::int64_t piece_rows = 0, pieces = 1;
  int lane_bits = 0, line_bits = 0, group_bits = 0;

  GRAVEN_DEVICE constexpr int lines() const { return 1 << line_bits; }
  /// Elements between two rows that a thread reads one after the other.
  GRAVEN_DEVICE constexpr std::int64_t step() const { return columns << line_bits; }
};

/// A thread's part: `W` columns from `column` on, and the rows begin + line, begin + line + lines, ... before `end`, of
/// matrix `outer`. Without a part of its own it has no rows and is not `present`.
struct column_place {
  std::int64_t outer, column, begin, end;
  int line;
  bool present;

  /// Whether this thread has a result to store: of the lines the first.
  __device__ bool stores() const { return present && line == 0; }
};

/// The first matrix of a block, and how far it is to its next.
__device__ inline std::int64_t first_matrix(const column_cut& cut) {
  return static_cast<std::int64_t>(blockIdx.z) << cut.group_bits;
}
__device__ inline std::int64_t matrix_stride(const column_cut& cut) {
  return static_cast<std::int64_t>(gridDim.z) << cut.group_bits;
}

template <int W>
__device__ inline column_place place_in_columns(const column_cut& cut, std::int64_t first) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread & ((1 << cut.lane_bits) - 1);
  column_place at;
  at.line = (thread >> cut.lane_bits) & (cut.lines() - 1);
  at.outer = first + (thread >> (cut.lane_bits + cut.line_bits));
  at.column = ((static_cast<std::int64_t>(blockIdx.x) << cut.lane_bits) + lane) * W;
  at.present = at.outer < cut.outer && at.column < cut.columns;
  at.begin = blockIdx.y * cut.piece_rows;
  at.end = at.begin + cut.piece_rows;
  if (at.end > cut.rows) at.end = cut.rows;
  if (!at.present) at.end = at.begin;
  return at;
}

/// Asks for the rows row, row + lines, ... of `from` that lie before `end`; the others are `missing`.
template <int W, int Rows, class T>
__device__ inline void load_rows(T (&rows)[Rows][W], const column_cut& cut, std::int64_t row, std::int64_t end,
                                 const T* from, T missing) {
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    if (row + r * cut.lines() < end)
      load_vector(rows[r], from + r * cut.step());
    else
      fill_vector(rows[r], missing);
  }
}

/// join(values, others) brings each thread of line 0 what all its lines have. Every thread of the block comes here.
template <int N, class T, class Join>
__device__ inline void join_lines(const column_cut& cut, int line, T (&values)[N], const Join& join) {
  __shared__ T partial[N][kColumnBlock];
  for (int half = cut.lines() / 2; half > 0; half /= 2) {
    if (line >= half && line < 2 * half) {
#pragma unroll
      for (int i = 0; i < N; ++i) partial[i][threadIdx.x] = values[i];
    }
    __syncthreads();
    if (line < half) {
      T others[N];
#pragma unroll
      for (int i = 0; i < N; ++i) others[i] = partial[i][threadIdx.x + (static_cast<unsigned>(half) << cut.lane_bits)];
      join(values, others);
    }
  }
  __syncthreads();  // before the next use of `partial`
}

/// The sum, in T, of rows begin to end of x, in a thread's columns; then of all its lines in line 0.
template <class Op, int W, class T, class X>
__device__ inline void reduce_lines(const column_cut& cut, const column_place& at, T (&values)[W], const X* x) {
  fill_vector(values, Op::template start<T>());
  const X* from = x + ((at.outer * cut.rows + at.begin + at.line) * cut.columns + at.column);
  for (std::int64_t row = at.begin + at.line; row < at.end; row += kRowsAhead * cut.lines()) {
    X rows[kRowsAhead][W];
    load_rows(rows, cut, row, at.end, from, static_cast<X>(Op::template start<T>()));
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const auto read = [&](int r) { return static_cast<T>(rows[r][w]); };
      values[w] = Op::join(values[w], Op::join(Op::join(read(0), read(1)), Op::join(read(2), read(3))));
    }
    from += kRowsAhead * cut.step();
  }
  join_lines(cut, at.line, values, [](T(&a)[W], const T(&b)[W]) {
#pragma unroll
    for (int w = 0; w < W; ++w) a[w] = Op::join(a[w], b[w]);
  });
}

#ifndef __CUDACC_RTC__

namespace detail {

/// The least b with 2^b >= n.
constexpr int bits_for(std::int64_t n) {
  int bits = 0;
  while ((std::int64_t{1} << bits) < n) ++bits;
  return bits;
}

}  // namespace detail

/// How [outer, rows, columns] is cut where a thread takes `width` columns. Up to 1024 rows a column is one piece: a
/// block reads 128 KiB sooner than another kernel starts. Longer ones are pieces of 256 rows at least, as many as make
/// two blocks for each of the 132 multiprocessors of a large device.
constexpr column_cut cut_columns(std::int64_t outer, std::int64_t rows, std::int64_t columns, int width,
                                 bool one_piece = false) {
  column_cut cut;
  cut.outer = outer, cut.rows = rows, cut.columns = columns;
  const int across = detail::bits_for(divide_up(columns, width));
  cut.lane_bits = across < 5 ? across : 5;
  if ((width > 1 || one_piece) && cut.lane_bits > 3) cut.lane_bits = 3;
  const std::int64_t blocks = outer * divide_up(columns, std::int64_t{width} << cut.lane_bits);
  // 64 bytes of a row where that makes more blocks of what is one piece.
  if (width > 1 && cut.lane_bits == 3 && rows <= 1024 && blocks < 66) cut.lane_bits = 2;
  std::int64_t pieces = 1;
  if (!one_piece && rows > 1024 && blocks > 0) {
    pieces = rows / 256;
    if (pieces > 264 / blocks) pieces = 264 / blocks;
    if (pieces < 1) pieces = 1;
  }
  cut.piece_rows = divide_up(rows, pieces);
  cut.pieces = rows > 0 ? divide_up(rows, cut.piece_rows) : 1;
  const int most = detail::bits_for(kColumnBlock) - cut.lane_bits,
            lines = detail::bits_for(divide_up(cut.piece_rows, kRowsAhead));
  cut.line_bits = lines < most ? lines : most;
  // Few lines leave room for more lanes, and then for more matrices.
  while (cut.lane_bits < across && cut.lane_bits + cut.line_bits < 8) ++cut.lane_bits;
  while (cut.lane_bits + cut.line_bits + cut.group_bits < 8 &&
         ((std::int64_t{1} << cut.group_bits) < outer || cut.lane_bits + cut.line_bits + cut.group_bits < 5))
    ++cut.group_bits;
  return cut;
}

/// Blocks of a kernel whose threads take `width` columns: [tiles of columns, pieces, matrices].
inline LaunchShape column_shape(const column_cut& cut, int width) {
  const std::int64_t tiles = divide_up(cut.columns, std::int64_t{width} << cut.lane_bits),
                     matrices = divide_up(cut.outer, std::int64_t{1} << cut.group_bits);
  return {dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(cut.pieces),
               static_cast<unsigned>(matrices < 65535 ? matrices : 65535)),
          dim3(1u << (cut.lane_bits + cut.line_bits + cut.group_bits)), cut.outer == 0 || cut.columns == 0};
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
