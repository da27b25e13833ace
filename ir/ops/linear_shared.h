// What linear, its gradients and the packing of its weights share: the attributes, the sizes behind them.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

/// Weights of a linear layer as a node sees them: w[n,k], or panels of 16.
struct LinearSizes {
  Dim m = 1;  ///< the leading dimensions of x or dy
  std::int64_t n = 0, k = 0;
};

/// in_features, out_features, packed: the sizes come from the weight unless it is packed.
inline std::vector<AttributeSpec> linear_attributes() {
  return {{"packed", AttributeType::boolean, false, "the weight is in panels of 16, made by pack_linear_weight"},
          {"in_features", AttributeType::integer, std::int64_t{0}, "k; taken from the weight when it is not packed"},
          {"out_features", AttributeType::integer, std::int64_t{0}, "n; taken from the weight when it is not packed"},
          epilogue_attribute()};
}

/// Checks the weight (input `weight`) and sets in_features and out_features.
inline LinearSizes linear_weight(InferContext& c, std::size_t weight, bool transposed) {
  const TensorType& w = c.input(weight);
  LinearSizes s{.n = c.attributes.integer("out_features"), .k = c.attributes.integer("in_features")};
  if (!c.attributes.flag("packed")) {
    require_rank(c, weight, 2, "weight");
    const std::int64_t n = fixed(w.shape[0], "the weight's out_features"),
                       k = fixed(w.shape[1], "the weight's in_features");
    c.require((s.n == 0 || s.n == n) && (s.k == 0 || s.k == k), [&] {
      return "the weight is " + w.to_string() + ", the attributes say out_features " + std::to_string(s.n) +
             ", in_features " + std::to_string(s.k);
    });
    s.n = n, s.k = k;
    c.attributes.set("out_features", n);
    c.attributes.set("in_features", k);
    return s;
  }
  c.require(s.n >= 0 && s.k >= 0, "in_features and out_features must not be negative");
  const Shape expected = transposed ? Shape{(s.k + 15) / 16, s.n, 16} : Shape{(s.n + 15) / 16, s.k, 16};
  c.require(w.dtype == DType::f32 && w.shape == expected,
            [&] { return "the packed weight must be " + describe(DType::f32, expected) + ", got " + w.to_string(); });
  return s;
}

/// Leading dimensions of input or output `shape`, flattened.
inline Dim rows_of(const Shape& shape) { return product(shape, 0, shape.rank() - 1); }

}  // namespace graven::ir::ops
