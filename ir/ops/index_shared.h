// What the operators that read or write at positions given by data share.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

/// gather, scatter, scatter_add: checks dim and that the index fits x (input 0) in every other dimension.
inline void check_gather(InferContext& c, std::size_t index) {
  const Shape &x = c.input(0).shape, &at = c.input(index).shape;
  require_kernel_rank(c, x.rank());
  const std::int64_t dim = normalize_dim(c, "dim", x.rank());
  c.require(at.rank() == x.rank(), "the index must have " +
                                       count_of(Dim(static_cast<std::int64_t>(x.rank())), "dimension") +
                                       " as the input has, got " + c.input(index).to_string());
  for (std::size_t d = 0; d < x.rank(); ++d) {
    const bool fits = static_cast<std::int64_t>(d) == dim || at[d] == x[d] ||
                      (at[d].is_static() && x[d].is_static() && at[d].value() <= x[d].value());
    c.require(fits, "dimension " + std::to_string(d) + " of the index must not be larger than the input's " +
                        x[d].to_string() + ", got " + at[d].to_string());
  }
}

inline AttributeSpec gather_dim_attribute() {
  return {"dim", AttributeType::integer, {}, "that the index is of; counted from the end when negative"};
}

/// Zeros of the type `to`, to which the slices of x along dim are added at their index. Slices with the index `skipped`
/// are left out.
inline ValueId added_at(GradientBuilder& g, ValueId x, ValueId index, const TensorType& to, std::int64_t dim,
                        std::int64_t skipped) {
  const Dim& size = to.shape[static_cast<std::size_t>(dim)];
  if (size.is_static())
    return g.call("index_add", {x, index}, {{"dim", dim}, {"size", size.value()}, {"skipped", skipped}});
  const ValueId zeros = g.call("full", {}, {{"shape", to.shape}, {"value", 0.0}, {"dtype", to.dtype}});
  return g.call("index_add", {x, index, zeros}, {{"dim", dim}, {"skipped", skipped}});
}

/// An index of this shape into a dimension of `size`.
inline TestCase::Input index_input(Shape shape, std::int64_t size) {
  return random(DType::i64, std::move(shape), 0, static_cast<double>(size));
}

}  // namespace graven::ir::ops
