#include "ir/ops/shared.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// All but the last two dimensions.
Shape batch_of(const Shape& shape) {
  return shape.rank() <= 2 ? Shape{} : Shape(std::vector<Dim>(shape.begin(), shape.end() - 2));
}

}  // namespace

/// Batches of a matmul that broadcast against each other in both directions ([2,1] with [3]) are expanded: the kernels
/// step through a and b with one stride each, 0 where an operand has no batches.
void decompose_matmuls(Graph& graph, const PassOptions&) {
  Rewriter rewriter(graph);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    if (node.is(kMatmul, kLoweredMatmul)) {
      const Shape batch[2] = {batch_of(graph.type(node.inputs[0]).shape), batch_of(graph.type(node.inputs[1]).shape)};
      const Dim count[2] = {batch[0].numel(), batch[1].numel()};
      if (count[0] != count[1] && count[0] != Dim(1) && count[1] != Dim(1)) {
        const Shape both = *broadcast(batch[0], batch[1]);
        for (std::size_t i = 0; i < 2; ++i) {
          if (count[i] == both.numel()) continue;
          const Shape& from = graph.type(node.inputs[i]).shape;
          Shape shape = both;
          shape.push_back(from.back(1));
          shape.push_back(from.back(0));
          node.inputs[i] = rewriter.add(kExpand, {node.inputs[i]}, {{"shape", shape}}, node.origins, node.phase,
                                        graph.value(node.outputs[0]).name + ".batches");
        }
      }
    }
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
