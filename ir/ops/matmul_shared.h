// What matmul and its lowering share: the sizes behind its operands.
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

inline std::vector<AttributeSpec> matmul_attributes() {
  return {{"transpose_a", AttributeType::boolean, false, "a is stored [..., k, m]"},
          {"transpose_b", AttributeType::boolean, false, "b is stored [..., n, k]"}};
}

/// Both operands as PyTorch's matmul sees them: vectors get a second dimension, the leading dimensions are batches.
struct MatmulSides {
  bool vector_a = false, vector_b = false;
  Dim m = 1, n = 1, k_a = 1, k_b = 1;
  Shape batch_a = {}, batch_b = {};
};

inline MatmulSides matmul_sides(const Shape& a, const Shape& b, bool transpose_a, bool transpose_b) {
  MatmulSides s{.vector_a = a.rank() == 1, .vector_b = b.rank() == 1};
  s.m = s.vector_a ? Dim(1) : transpose_a ? a.back(0) : a.back(1);
  s.k_a = s.vector_a ? a[0] : transpose_a ? a.back(1) : a.back(0);
  s.n = s.vector_b ? Dim(1) : transpose_b ? b.back(1) : b.back(0);
  s.k_b = s.vector_b ? b[0] : transpose_b ? b.back(0) : b.back(1);
  for (std::size_t d = 0; d + 2 < a.rank(); ++d) s.batch_a.push_back(a[d]);
  for (std::size_t d = 0; d + 2 < b.rank(); ++d) s.batch_b.push_back(b[d]);
  return s;
}
inline MatmulSides matmul_sides(const NodeView& node) {
  return matmul_sides(node.input(0).shape, node.input(1).shape, node.attributes().flag("transpose_a"),
                      node.attributes().flag("transpose_b"));
}

}  // namespace graven::ir::ops
