// What the three batch normalisation operators share: the channels' dimension, checks of the vectors.
#pragma once

#include "ir/ops/conv2d_shared.h"

namespace graven::ir::ops {

inline std::size_t channel_dim(const Shape& x, bool channels_last) { return channels_last ? x.rank() - 1 : 1; }

/// Checks x and gives the number of channels.
inline std::int64_t check_batch_norm_input(const InferContext& c, std::size_t i) {
  const TensorType& x = c.input(i);
  c.require(x.shape.rank() >= 2, "the input must have at least 2 dimensions, got " + x.to_string());
  c.require(c.attributes.number("eps") >= 0,
            "'eps' must not be negative, got " + ops::text_of(c.attributes.number("eps")));
  return fixed(x.shape[channel_dim(x.shape, c.attributes.flag("channels_last"))], "the number of channels");
}

/// User error unless input `i`, if present, is a vector with one element a channel.
inline void check_channel_vector(const InferContext& c, std::size_t i, std::string_view what, std::int64_t channels) {
  if (!c.has_input(i) || c.input(i).shape == Shape{channels}) return;
  c.fail(std::string(what) + " expects " +
         (c.input(i).shape.rank() == 1 ? count_of(c.input(i).shape[0], "channel") : "one dimension") + ", input has " +
         std::to_string(channels));
}

/// Of batch norms that train, and their gradients.
inline std::vector<AttributeSpec> batch_norm_attributes_of_ranks() {
  return {{"sync", AttributeType::boolean, false,
           "mean and variance are those of the batches of all ranks, where several train together"},
          {"over_ranks", AttributeType::boolean, false, "they do: each has its own batch, and hands its sums to all"}};
}

inline std::string remark_of_ranks(const NodeView& node) {
  return node.attributes().flag("over_ranks") ? "over all ranks" : "";
}

inline std::vector<AttributeSpec> batch_norm_attributes() {
  return {{"eps", AttributeType::number, 1e-5, "added to the variance"},
          {"channels_last", AttributeType::boolean, false, "channels are the last dimension, not the second"}};
}

}  // namespace graven::ir::ops
