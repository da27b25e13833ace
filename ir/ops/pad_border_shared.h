// What pad_border and its gradient share.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

/// Checks the attributes against x's shape; the shape of y.
inline Shape infer_border(const InferContext& c, Shape shape) {
  require_kernel_rank(c, shape.rank());
  const std::string& mode = c.attributes.text("mode");
  c.require(mode == "reflect" || mode == "replicate" || mode == "circular",
            "'mode' must be reflect, replicate or circular, got '" + mode + "'");
  const Ints& pads = c.attributes.integers("pads");
  c.require(pads.size() == 2 * shape.rank(), "'pads' takes " + std::to_string(2 * shape.rank()) +
                                                 " integers (before and after, for each dimension), got " +
                                                 std::to_string(pads.size()));
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const std::int64_t before = pads[2 * d], after = pads[2 * d + 1];
    if (before == 0 && after == 0) continue;
    const std::string where = "dimension " + std::to_string(d) + " of " + c.input(0).to_string();
    const Dim size = shape[d];
    // What a dimension of unknown size may be padded with goes by the least that it is.
    const std::int64_t least = size.minimum(), most = mode == "reflect"    ? least - 1
                                                      : mode == "circular" ? least
                                                                           : (std::int64_t{1} << 32);
    c.require(least >= 1, where + " is empty: there is nothing to pad it with");
    c.require(before <= most && after <= most, "the pads " + std::to_string(before) + " and " + std::to_string(after) +
                                                   " of " + where + " may be at most " + std::to_string(most) +
                                                   " with mode " + mode + at_least(size));
    c.require(before > -least && after > -least && least + before + after >= 1,
              "the pads " + std::to_string(before) + " and " + std::to_string(after) + " leave nothing of " + where +
                  at_least(size));
    shape[d] = size + Dim(before) + Dim(after);
  }
  (void)shape.numel();
  return shape;
}

inline std::vector<AttributeSpec> border_attributes() {
  return {{"pads", AttributeType::integers, {}, "before and after, for each dimension, the first one first"},
          {"mode",
           AttributeType::text,
           {},
           "reflect (mirrored without the border itself), replicate (the border) or circular (the other end)"}};
}

}  // namespace graven::ir::ops
