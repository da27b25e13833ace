#include "graven/functional/sequence.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "frontend/dispatch.h"
#include "frontend/trace.h"
#include "graven/functional.h"
#include "ir/ops.h"

namespace graven {

using detail::fail;

namespace {

/// 0 where a query sees a key, -infinity elsewhere: [queries, keys]. All layers of a graph share one.
Tensor causal_mask(const Tensor& q, const Dim& keys, Location where) {
  const ir::Attributes attributes{{"shape", Shape{q.shape().back(1), keys}}, {"dtype", q.dtype()}};
  const ir::OpDef& op = ir::kCausalMask;
  return detail::would_record({q}) ? detail::active_trace()->record(op, {}, attributes, where).at(0)
                                   : detail::beside(detail::apply(op, {}, attributes, where).at(0), q);
}

}  // namespace

Tensor scaled_dot_product_attention(const Operand& query, const Tensor& all_keys, const Tensor& all_values,
                                    const AttentionOptions& o) {
  const Location where = query.where().in("scaled_dot_product_attention");
  const Tensor& q = query.tensor();
  constexpr const char* kName = "scaled_dot_product_attention";
  const auto at = [where](const Tensor& t) { return Operand(t, where); };
  Tensor key = all_keys, value = all_values;
  detail::require_defined(key, kName, where, "key");
  detail::require_defined(value, kName, where, "value");
  if (o.enable_gqa) {
    for (Tensor* t : {&key, &value}) {
      if (q.dim() < 3 || t->dim() < 3)
        fail(kName, "enable_gqa is for [..., heads, length, size], got " + q.describe(), where);
      const std::int64_t queries = detail::fixed_size(q, -3, kName, where),
                         heads = detail::fixed_size(*t, -3, kName, where);
      if (heads < 1 || queries % heads != 0)
        fail(kName,
             "with enable_gqa the heads of key and value must divide the query's, got " + q.describe() + " and " +
                 t->describe(),
             where);
      if (heads != queries) *t = repeat_interleave(at(*t), queries / heads, -3);
    }
  }
  if (q.dim() < 2 || key.dim() < 2 || value.dim() < 2)
    fail(kName, "expects [..., length, size], got " + q.describe() + ", " + key.describe() + ", " + value.describe(),
         where);
  if (q.shape().back() != key.shape().back())
    fail(kName, "query and key must have one size, got " + q.describe() + " and " + key.describe(), where);
  if (key.shape().back(1) != value.shape().back(1))
    fail(kName, "key and value must have one length, got " + key.describe() + " and " + value.describe(), where);
  if (o.is_causal && o.attn_mask.defined()) fail(kName, "takes attn_mask or is_causal, not both", where);
  // The queries are the smaller tensor, so the scale goes there.
  const Dim& size = q.shape().back();
  const Operand scale = o.scale ? Operand(*o.scale, where)
                        : size.is_static()
                            ? Operand(1 / std::sqrt(static_cast<double>(size.value())), where)
                            : Operand(rsqrt(at(detail::size_value(size, q.dtype(), kName, where))), where);
  const Tensor scaled = mul(at(q), scale);
  std::optional<detail::Role> role(std::in_place, "k_transposed");
  const Tensor columns = key.transpose(-2, -1, where);
  role.emplace("scores");
  Tensor scores = matmul(at(scaled), at(columns));
  if (o.is_causal) {
    scores = add(at(scores), at(causal_mask(q, key.shape().back(1), where)));
  } else if (o.attn_mask.defined() && o.attn_mask.dtype() == DType::boolean) {
    scores = graven::where(at(o.attn_mask), at(scores), Operand(-std::numeric_limits<double>::infinity(), where));
  } else if (o.attn_mask.defined()) {
    if (!ir::is_floating(o.attn_mask.dtype()))
      fail(kName, "attn_mask must be bool or floating, got " + o.attn_mask.describe(), where);
    scores = add(at(scores), at(o.attn_mask.to(q.dtype(), where)));
  }
  role.emplace("weights");
  // A query whose keys are all masked attends to nothing: zeros, as in PyTorch.
  Tensor weights = o.attn_mask.defined() ? detail::apply("softmax", {scores},
                                                         {{"dim", scores.dim() - 1}, {"masked_to_zero", true}}, where)
                                         : softmax(at(scores), -1);
  weights = dropout(at(weights), o.dropout_p);
  role.emplace("context");
  return matmul(at(weights), at(value));
}

}  // namespace graven
