// Config of adafactor, and how it cuts up its tensors.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct adafactor_config {
  double beta2_decay = -0.8;  ///< the means move by step^beta2_decay to the new squares
  double eps1;                ///< least mean of squares, least root of the estimate
  double eps2 = 1e-3;         ///< least root mean square of a parameter that its step is relative to
  double d = 1;               ///< largest root mean square of the changes
  double weight_decay = 0;
  bool maximize = false;
};

/// A parameter of two dimensions or more is [matrices, rows, columns], another one [1, 1, columns]. The argument
/// `sizes` has these three numbers of each.
struct adafactor_shape {
  std::int64_t matrices, rows, columns;

  /// A parameter of fewer dimensions is worked on in rows of so many elements.
  static constexpr std::int64_t kSlice = 1024;
  /// Squares are added up in pieces of so many rows, in this order, whatever the number of threads.
  static constexpr std::int64_t kPieceRows = 16;

  explicit constexpr adafactor_shape(const std::int64_t* sizes)
      : matrices(sizes[0]), rows(sizes[1]), columns(sizes[2]) {}
  constexpr std::int64_t numel() const { return matrices * rows * columns; }
  /// Rows to work on. 0 where there is no element.
  constexpr std::int64_t row_count(bool factored) const {
    if (numel() == 0) return 0;
    return factored ? matrices * rows : (columns + kSlice - 1) / kSlice;
  }
  /// Elements before a row.
  constexpr std::int64_t row_begin(bool factored, std::int64_t row) const {
    return row * (factored ? columns : kSlice);
  }
  constexpr std::int64_t row_length(bool factored, std::int64_t row) const {
    if (factored) return columns;
    return columns - row * kSlice < kSlice ? columns - row * kSlice : kSlice;
  }
};

/// For tensors of so many matrices and pieces together: two sums a piece, a mean a matrix.
constexpr std::int64_t adafactor_workspace_bytes(std::int64_t matrices, std::int64_t pieces) {
  return (matrices + 2 * pieces) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace graven::kernels
