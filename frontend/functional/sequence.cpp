#include "graven/functional/sequence.h"

#include <cmath>
#include <limits>

#include "frontend/dispatch.h"
#include "frontend/trace.h"
#include "graven/functional.h"

namespace graven {

using detail::fail;

namespace {

/// 0 where a query sees a key, -infinity elsewhere: [queries, keys]. All layers of a graph share one.
Tensor causal_mask(const Tensor& q, std::int64_t keys, Location where) {
  const ir::Attributes attributes{{"queries", q.size(-2)}, {"keys", keys}, {"dtype", q.dtype()}};
  const ir::OpDef& op = ir::get_op("causal_mask");
  return detail::would_record({q}) ? detail::active_trace()->record(op, {}, attributes, where).at(0) : detail::apply(op, {}, attributes, where).at(0);
}

}  // namespace

Tensor scaled_dot_product_attention(const Operand& query, const Tensor& all_keys, const Tensor& all_values, const AttentionOptions& o) {
  const Location where = query.where();
  const Tensor& q = query.tensor();
  constexpr const char* kName = "scaled_dot_product_attention";
  const auto at = [where](const Tensor& t) { return Operand(t, where); };
  Tensor key = all_keys, value = all_values;
  if (o.enable_gqa) {
    for (Tensor* t : {&key, &value}) {
      if (q.dim() < 3 || t->dim() < 3 || t->size(-3) < 1 || q.size(-3) % t->size(-3) != 0)
        fail(kName, "with enable_gqa the heads of key and value must divide the query's, got " + q.describe() + " and " + t->describe(), where);
      if (t->size(-3) != q.size(-3)) *t = repeat_interleave(at(*t), q.size(-3) / t->size(-3), -3);
    }
  }
  if (q.dim() < 2 || key.dim() < 2 || value.dim() < 2)
    fail(kName, "expects [..., length, size], got " + q.describe() + ", " + key.describe() + ", " + value.describe(), where);
  if (q.shape().back() != key.shape().back()) fail(kName, "query and key must have one size, got " + q.describe() + " and " + key.describe(), where);
  if (key.shape().back(1) != value.shape().back(1))
    fail(kName, "key and value must have one length, got " + key.describe() + " and " + value.describe(), where);
  if (o.is_causal && o.attn_mask.defined()) fail(kName, "takes attn_mask or is_causal, not both", where);
  const std::int64_t size = q.size(-1);
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(size)));
  // The queries are the smaller tensor, so the scale goes there.
  const Tensor scaled = mul(at(q), Operand(scale, where));
  Tensor scores = matmul(at(scaled), at(key.transpose(-2, -1, where)));
  if (o.is_causal) {
    scores = add(at(scores), at(causal_mask(q, key.size(-2), where)));
  } else if (o.attn_mask.defined() && o.attn_mask.dtype() == DType::boolean) {
    scores = graven::where(at(o.attn_mask), at(scores), Operand(-std::numeric_limits<double>::infinity(), where));
  } else if (o.attn_mask.defined()) {
    if (!ir::is_floating(o.attn_mask.dtype())) fail(kName, "attn_mask must be bool or floating, got " + o.attn_mask.describe(), where);
    scores = add(at(scores), at(o.attn_mask.to(q.dtype(), where)));
  }
  // A query whose keys are all masked attends to nothing: zeros, as in PyTorch.
  Tensor weights = o.attn_mask.defined() ? detail::apply("softmax", {scores}, {{"dim", scores.dim() - 1}, {"masked_to_zero", true}}, where)
                                         : softmax(at(scores), -1);
  weights = dropout(at(weights), o.dropout_p);
  return matmul(at(weights), at(value));
}

}  // namespace graven
