// What layer_norm, rms_norm and group_norm share with their gradients.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

/// The last 'dims' dimensions of input `i`: one row.
inline Shape normalized_shape(const InferContext& c, std::size_t i) {
  const TensorType& x = c.input(i);
  const std::int64_t dims = c.attributes.integer("dims");
  c.require(dims >= 1 && dims <= static_cast<std::int64_t>(x.shape.rank()),
            "'dims' must lie in [1, " + std::to_string(x.shape.rank()) + "] for " + x.to_string() + ", got " +
                std::to_string(dims));
  c.require(c.attributes.number("eps") >= 0, "'eps' must not be negative, got " + text_of(c.attributes.number("eps")));
  Shape row;
  for (std::size_t d = x.shape.rank() - static_cast<std::size_t>(dims); d < x.shape.rank(); ++d) {
    c.require(fixed(x.shape[d], "a normalised dimension") > 0,
              "a normalised dimension must not be empty, got " + x.to_string());
    row.push_back(x.shape[d]);
  }
  return row;
}
/// One number for each row of input `i`.
inline Shape row_shape(const InferContext& c, std::size_t i) {
  const Shape& x = c.input(i).shape;
  Shape rows;
  for (std::size_t d = 0; d + static_cast<std::size_t>(c.attributes.integer("dims")) < x.rank(); ++d)
    rows.push_back(x[d]);
  return rows;
}
inline void require_type(const InferContext& c, std::size_t i, std::string_view what, DType dtype, const Shape& shape) {
  if (!c.has_input(i)) return;
  const TensorType expected{dtype, shape};
  c.require(c.input(i) == expected,
            std::string(what) + " must be " + expected.to_string() + ", got " + c.input(i).to_string());
}

inline std::vector<AttributeSpec> layer_norm_attributes() {
  return {{"dims", AttributeType::integer, std::int64_t{1}, "how many of the last dimensions are normalised together"},
          {"eps", AttributeType::number, 1e-5, "added to the variance, or to the mean of squares"}};
}
/// Checks x[batch, channels, ...] and gives the number of channels.
inline std::int64_t check_group_norm_input(const InferContext& c, std::size_t i) {
  const TensorType& x = c.input(i);
  c.require(x.shape.rank() >= 2, "the input must have at least 2 dimensions, got " + x.to_string());
  const std::int64_t channels = fixed(x.shape[1], "the number of channels"), groups = c.attributes.integer("groups");
  c.require(groups >= 1 && channels % groups == 0,
            "'groups' must divide the " + std::to_string(channels) + " channels, got " + std::to_string(groups));
  c.require(c.attributes.number("eps") >= 0, "'eps' must not be negative, got " + text_of(c.attributes.number("eps")));
  return channels;
}
inline std::vector<AttributeSpec> group_norm_attributes() {
  return {{"groups",
           AttributeType::integer,
           {},
           "into which the channels are cut; as many as channels: instance normalisation"},
          {"eps", AttributeType::number, 1e-5, "added to the variance"}};
}
}  // namespace graven::ir::ops
