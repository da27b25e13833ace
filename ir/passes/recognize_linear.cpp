// Inference: matmul(x, w) with a matrix w that depends on weights alone is a linear layer. As `linear` its weight is
// packed once. In training the product stays a matmul: its weight changes in each step, and its gradients are matmuls.
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

void recognize_linear(Graph& graph, const PassOptions&) {
  ByValue<bool> weight = fixed(graph, {ValueKind::parameter});  // depends on parameters only
  Rewriter rewriter(graph);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    if (!node.inputs.empty()) {
      follow_fixed(node, weight);
    }
    const bool fits = node.is(kMatmul) && weight(node.inputs[1]) && graph.type(node.inputs[1]).shape.rank() == 2 &&
                      !weight(node.inputs[0]) && !node.attributes.flag("transpose_a") && node.inputs.size() == 2;
    if (!fits) {
      rewriter.keep(std::move(node));
      continue;
    }
    ValueId w = node.inputs[1];
    if (!node.attributes.flag("transpose_b"))
      w = rewriter.add(kPermute, {w}, {{"dims", Ints{1, 0}}}, node.origins, node.phase,
                       graph.value(w).name + ".transposed");
    const std::string name = graph.value(node.outputs[0]).name;
    rewriter.replace(node.outputs[0], rewriter.add(kLinear, {node.inputs[0], w}, {}, node.origins, node.phase, name));
  }
  rewriter.finish();
}

}  // namespace graven::ir
