// What resample and its gradient share.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

inline constexpr std::string_view kResampleModes[] = {"nearest", "nearest-exact", "linear", "cubic", "area"};

inline std::int64_t resample_mode(const Attributes& a) {
  for (std::size_t i = 0; i < std::size(kResampleModes); ++i)
    if (kResampleModes[i] == a.text("mode")) return static_cast<std::int64_t>(i);
  return -1;
}

/// Checks the attributes against x's shape, fills in the scale; the shape of y.
inline Shape infer_resample(InferContext& c, Shape shape) {
  c.require(!shape.empty(), "a tensor of rank 0 cannot be resampled");
  const auto dim = static_cast<std::size_t>(normalize_dim(c, "dim", shape.rank()));
  c.require(resample_mode(c.attributes) >= 0,
            "'mode' must be nearest, nearest-exact, linear, cubic or area, got '" + c.attributes.text("mode") + "'");
  const Shape& sizes = c.attributes.shape("size");
  c.require(sizes.rank() == 1, [&] { return "'size' must have one dimension, got " + sizes.to_string(); });
  const Dim size = sizes[0], from = shape[dim];
  c.require(size.minimum() >= 1 && size.maximum() <= (1 << 30),
            [&] { return "'size' must lie in [1, 1073741824], got " + size.to_string(); });
  c.require(from.minimum() >= 1, "dimension " + std::to_string(dim) + ", which is resampled, is empty");
  const double scale = c.attributes.number("scale");
  c.require(scale >= 0 && scale <= 1e9, "'scale' must be positive, got " + text_of(scale));
  const bool is_asked = c.attributes.text("mode") != "area" && !c.attributes.flag("align_corners");
  if (scale == 0 && from.is_static() && size.is_static()) {
    c.attributes.set("scale", static_cast<double>(from.value()) / static_cast<double>(size.value()));
  } else if (scale == 0 && is_asked) {
    // The quotient of two expressions is a number where one is a multiple of the other.
    const std::optional<Dim> shrinks = divide(from, size), grows = divide(size, from);
    c.require((shrinks && shrinks->is_static()) || (grows && grows->is_static()), [&] {
      return "the scale from " + from.to_string() + " to " + size.to_string() + " is not the same at every size";
    });
    c.attributes.set("scale", shrinks && shrinks->is_static() ? static_cast<double>(shrinks->value())
                                                              : 1 / static_cast<double>(grows->value()));
  }
  shape[dim] = size;
  (void)shape.numel();
  return shape;
}

inline std::vector<AttributeSpec> resample_attributes() {
  return {{"dim", AttributeType::integer, {}, "counted from the end when negative"},
          {"size", AttributeType::shape, {}, "of y along dim, one dimension"},
          {"mode", AttributeType::text, {}, "nearest, nearest-exact, linear, cubic or area"},
          {"align_corners", AttributeType::boolean, false,
           "the centres of the elements at the ends lie at the same places, not their borders"},
          {"scale", AttributeType::number, 0.0, "elements of x for each of y; 0: the quotient of the sizes"}};
}

}  // namespace graven::ir::ops
