// What the ranks of a data parallel graph share instead of having it each (nn::GraphBase::enable_zero): ZeRO
// (Rajbhandari, Rasley, Ruwase, He: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020).
//
//   stage 1   states of the optimizers: each rank updates its shard of a parameter, and hands it to the others
//   stage 2   besides, gradients: a rank adds up its shard alone
//   stage 3   besides, the parameters: a rank keeps its shard alone, and has all of it while a layer computes
//
// A shard is a piece of a tensor's elements in a row (runtime_min/shard.h). In the graph every value has the shape that
// it has on one rank; what memory holds of it, when there are several, this file says.
#pragma once

#include <cstdint>

#include "ir/analysis.h"
#include "ir/graph.h"

namespace graven::ir {

class Sharding {
 public:
  /// User error where the graph's config asks for what there is not.
  explicit Sharding(const Graph& graph);

  int stage() const { return stage_; }  ///< 0: nothing is shared
  std::int64_t least() const { return least_; }
  /// Whether a tensor of this type is large enough to be shared.
  bool is_large(const TensorType& type) const { return stage_ > 0 && type.shape.numel().maximum() >= least_; }
  /// Whether a rank keeps its shard alone of a parameter of this type that has a gradient.
  bool is_kept_in_shards(const TensorType& parameter) const { return stage_ > 2 && is_large(parameter); }
  /// Gradients of which a rank has its shard alone, and what clip_grad_value_() makes of one, element by element: the
  /// memory of a gradient holds the shard in its place, from stage 2 on nothing else.
  ByValue<bool> shards_of_gradients(const Graph& graph) const;

 private:
  int stage_ = 0;
  std::int64_t least_ = 1024;
};

}  // namespace graven::ir
