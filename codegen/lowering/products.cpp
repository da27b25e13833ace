#include "codegen/lowering/families.h"
#include "ir/ops/attention_shared.h"
#include "ir/ops/linear_shared.h"
#include "ir/ops/matmul_shared.h"

namespace graven::codegen::lowering {

namespace {

KernelCall linear_call(std::string name, const Dim& m, const Dim& n, const Dim& k, bool packed) {
  return {.name = std::move(name),
          .file = "linear",
          .config = {{"m", m}, {"n", n}, {"k", k}, {"packed", packed}, {"tf32", false}, {"algorithm", Dim(0)}}};
}

KernelCall by_weight(const NodeView& node, std::string name) {
  const Ints weight = ops::weight_shape(node);
  return linear_call(std::move(name), ops::rows_of(node.input(0).shape), weight[0], weight[1],
                     node.attributes().flag_or("packed", false));
}

KernelCall linear(const NodeView& node) { return by_weight(node, "linear"); }
KernelCall linear_backward_input(const NodeView& node) { return by_weight(node, "linear_backward_input"); }

KernelCall linear_backward_weight(const NodeView& node) {
  const Shape &dy = node.input(0).shape, &x = node.input(1).shape;
  return linear_call("linear_backward_weight", ops::rows_of(dy), dy.back(), x.back(), false);
}

KernelCall pack_linear_weight(const NodeView& node) {
  const Shape& w = node.input(0).shape;
  return linear_call(node.attributes().flag("transposed") ? "pack_linear_weight_transposed" : "pack_linear_weight", 0,
                     w[0], w[1], false);
}

KernelCall matmul(const NodeView& node) {
  const bool ta = node.attributes().flag("transpose_a"), tb = node.attributes().flag("transpose_b");
  const ops::MatmulSides s = ops::matmul_sides(node);
  const Dim of_a = s.batch_a.numel(), of_b = s.batch_b.numel();
  Dim batch = of_a == Dim(1) ? of_b : of_a, m = s.m;
  Dim stride_a = of_a == Dim(1) ? Dim(0) : s.m * s.k_a, stride_b = of_b == Dim(1) ? Dim(0) : s.k_b * s.n;
  GRAVEN_CHECK(of_a == of_b || of_a == Dim(1) || of_b == Dim(1), "a matmul with mixed broadcasting reached lowering");
  if (of_b == Dim(1) && !ta) {
    m = of_a * m;  // one b for all: a's batches are more rows
    batch = 1;
    stride_a = 0;
  }
  return {.name = "matmul",
          .config = {{"batch", batch},
                     {"m", m},
                     {"n", s.n},
                     {"k", s.k_a},
                     {"a_batch_stride", stride_a},
                     {"b_batch_stride", stride_b},
                     {"transpose_a", ta},
                     {"transpose_b", tb},
                     {"tf32", false},
                     {"algorithm", Dim(0)}}};
}

/// `first`: the input that is q, behind which k, v and the mask stand.
KernelCall attention_call(const NodeView& node, std::string name, std::size_t first) {
  const Shape &q = node.input(first).shape, &k = node.input(first + 1).shape;
  const std::int64_t groups = ops::attention_groups(q, k, node.input(first + 2).shape).value();
  ops::AttentionMask mask;
  if (node.has_input(first + 3)) mask = ops::attention_mask(node.input(first + 3).shape, q, k.back(1)).value();
  const Attributes& a = node.attributes();
  return {.name = std::move(name),
          .file = "attention",
          .config = {{"matrices", ops::product(q, 0, q.rank() - 2)},
                     {"groups", Dim(groups)},
                     {"queries", q.back(1)},
                     {"keys", k.back(1)},
                     {"size", q.back()},
                     {"scale", a.number("scale")},
                     {"causal", a.flag("causal")},
                     {"offset", Dim(a.integer("offset"))},
                     {"masked_to_zero", a.flag("masked_to_zero")},
                     {"mask_repeats", mask.repeats},
                     {"mask_rows", mask.rows},
                     {"p", a.number("p")},
                     {"stream", Dim(a.integer("stream"))},
                     {"ranks", Dim(a.integer("ranks"))},
                     {"run", Dim(a.integer("run"))}}};
}

KernelCall attention(const NodeView& node) { return attention_call(node, "attention", 0); }
KernelCall attention_backward(const NodeView& node) { return attention_call(node, "attention_backward", 1); }

}  // namespace

std::span<const Row> products() {
  static constexpr Row kRows[] = {
      {&ir::kAttention, attention},
      {&ir::kAttentionBackward, attention_backward},
      {&ir::kLinear, linear},
      {&ir::kLinearBackwardInput, linear_backward_input},
      {&ir::kLinearBackwardWeight, linear_backward_weight},
      {&ir::kMatmul, matmul},
      {&ir::kPackLinearWeight, pack_linear_weight},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
