// Attention.
//
//   Tensor y = scaled_dot_product_attention(q, k, v, {.is_causal = true});
#pragma once

#include <optional>

#include "graven/tensor.h"

namespace graven {

struct AttentionOptions {
  /// bool: true takes part; floating: is added to the scores. Broadcast to [..., queries, keys].
  Tensor attn_mask = {};
  double dropout_p = 0;    ///< of the attention's weights; 0 in evaluation is the caller's affair, as in PyTorch
  bool is_causal = false;  ///< query i sees keys 0 to i; excludes attn_mask
  std::optional<double> scale = {};  ///< none: 1 / sqrt(size)
  bool enable_gqa = false;  ///< key and value, [batch, heads, ...], have fewer heads, each of which serves as many of
                            ///< the query's in a row
};
/// softmax(query key^T scale + mask) value, of query[..., queries, size], key[..., keys, size], value[..., keys,
/// value_size] (Vaswani et al. 2017; torch.nn.functional.scaled_dot_product_attention).
Tensor scaled_dot_product_attention(const Operand& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace graven
