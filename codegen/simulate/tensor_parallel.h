// Which part of the work, the parameters and the activations each of several tensor parallel ranks has, and what they
// send one another: products are cut by columns and by rows, in pairs, as in Megatron-LM (Shoeybi et al. 2019).
//
//   y = linear(x, w1)      the outputs of w1 are dealt out: x is whole, y is in parts
//   z = gelu(y)            each rank its part
//   o = linear(z, w2)      the inputs of w2 are dealt out: each rank has a term of o, and forward adds them up;
//                          backward adds up the terms of x's gradient
//
// Nothing is known of transformers: what a product makes is followed through the graph, as a dimension that is in
// parts (through elementwise operators, permutes, reshapes that keep the parts whole, products of a batch, which
// attention is of heads, batch norms of channels), until products take it by rows. Where it does not come to that, the
// product stays whole, unless gathering its result takes less time than is saved. The classes of a cross entropy may be
// in parts (each rank sends its maximum, its sum and the score of the label: three numbers a row).
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/simulate/machine.h"
#include "codegen/simulate/workload.h"

namespace graven::codegen {

struct Shards {
  std::int64_t ranks = 1;
  /// By position, of 1: what a rank has of the work, of what is made there, and of the gradients of what is read there.
  std::vector<double> work, output, input;
  /// By position, bytes that are added up over the ranks: behind the forward step, and behind its backward.
  std::vector<double> forward_sum, backward_sum;
  /// By position, bytes that are gathered behind the forward step.
  std::vector<double> forward_gather;
  std::vector<double> parameter;  ///< by parameter, of 1
  std::size_t cut = 0;            ///< products that are in parts
};

/// Nothing in parts.
Shards whole(const Workload& workload);
/// `link` is that between these ranks. Nothing is cut where `cut` is 0.
Shards shard(const Workload& workload, std::int64_t ranks, const Machine& machine, const Link& link);

}  // namespace graven::codegen
