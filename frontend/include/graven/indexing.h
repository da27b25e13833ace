// Indexing as in Python, by views: x.index({1, Slice(2, None, 2), "..."}) is x[1, 2::2, ...]. Tensors of integers among
// the indices pick elements, as in NumPy: a copy.
//
//   using namespace graven::indexing;
//   Tensor row = x.index({0});                  // one dimension less
//   Tensor last = x.index({Ellipsis, Slice(-3, None)});
//   Tensor wide = x.index({None, Slice()});     // a new dimension of 1 in front
//   Tensor picked = x.index({rows, columns});   // x[rows[k], columns[k]] for each k; the two are broadcast together
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "graven/tensor.h"

namespace graven {

namespace indexing {

/// A new dimension of one element; in a Slice: the bound is left out.
struct NoneType {};
inline constexpr NoneType None{};
/// All dimensions that no other index speaks of.
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis{};

/// start:stop:step. Negative bounds count from the end; the step must be positive.
struct Slice {
  struct Bound {
    std::optional<std::int64_t> value;
    Bound(NoneType) {}                           // NOLINT: Slice(None, 3)
    Bound(std::int64_t value) : value(value) {}  // NOLINT
    Bound(int value) : value(value) {}           // NOLINT
  };
  Bound start = None, stop = None, step = None;
  Slice(Bound start = None, Bound stop = None, Bound step = None) : start(start), stop(stop), step(step) {}
};

}  // namespace indexing

/// One entry of Tensor::index: a position, a slice, None, the ellipsis (also "..."), or a tensor of positions, which
/// count from the end where negative. The dimensions that tensors index become those of the tensors, broadcast
/// together: where the first one stood when they are neighbours, else in front.
class TensorIndex {
 public:
  enum class Kind : std::uint8_t { position, slice, none, ellipsis, tensor };
  TensorIndex(std::int64_t position)
      : kind_(Kind::position), position_(position) {}                        // NOLINT: implicit, like all below
  TensorIndex(int position) : kind_(Kind::position), position_(position) {}  // NOLINT
  TensorIndex(indexing::Slice slice) : kind_(Kind::slice), slice_(slice) {}  // NOLINT
  TensorIndex(indexing::NoneType) : kind_(Kind::none) {}                     // NOLINT
  TensorIndex(indexing::EllipsisType) : kind_(Kind::ellipsis) {}             // NOLINT
  TensorIndex(const char* dots);                                             // NOLINT
  TensorIndex(Tensor positions) : kind_(Kind::tensor), tensor_(std::move(positions)) {}  // NOLINT

  Kind kind() const { return kind_; }
  std::int64_t position() const { return position_; }
  const indexing::Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Kind kind_;
  std::int64_t position_ = 0;
  indexing::Slice slice_;
  Tensor tensor_;
};

}  // namespace graven
