// Inference: matmul(x, w) with a matrix w that depends on weights alone is a linear layer. As `linear` its weight is
// packed once, and a bias that is added later becomes part of it. In training the product stays a matmul: its weight
// changes in each step, and its gradients are matmuls.
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

void recognize_linear(Graph& graph, const PassOptions&) {
  std::vector<bool> weight(graph.values.size(), false);  // depends on parameters only
  for (std::size_t v = 0; v < graph.values.size(); ++v) weight[v] = graph.values[v].kind == ValueKind::parameter;
  Rewriter rewriter(graph);
  for (const Node& node : rewriter.old())
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (is_mutated(node, i)) weight[static_cast<std::size_t>(node.inputs[i])] = false;
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    if (!node.op->has_effect() && !node.inputs.empty()) {
      bool all = true;
      for (ValueId v : node.inputs)
        all = all && v != kNone && static_cast<std::size_t>(v) < weight.size() && weight[static_cast<std::size_t>(v)];
      for (ValueId v : node.outputs) weight[static_cast<std::size_t>(v)] = all;
    }
    const bool fits =
        node.op->name == "matmul" && static_cast<std::size_t>(node.inputs[1]) < weight.size() &&
        weight[static_cast<std::size_t>(node.inputs[1])] && graph.type(node.inputs[1]).shape.rank() == 2 &&
        !weight[static_cast<std::size_t>(node.inputs[0])] && !node.attributes.flag("transpose_a") &&
        (node.inputs.size() < 3 || node.inputs[2] == kNone) && node.attributes.program("epilogue").empty();
    if (!fits) {
      rewriter.keep(std::move(node));
      continue;
    }
    ValueId w = node.inputs[1];
    if (!node.attributes.flag("transpose_b"))
      w = rewriter.add_one("permute", {w}, {{"dims", Ints{1, 0}}}, node.origins, node.phase,
                           graph.value(w).name + ".transposed");
    const std::string name = graph.value(node.outputs[0]).name;
    rewriter.replace(node.outputs[0],
                     rewriter.add_one("linear", {node.inputs[0], w}, {}, node.origins, node.phase, name));
  }
  rewriter.finish();
}

}  // namespace graven::ir
