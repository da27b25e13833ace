// |-x| is |x|.
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

void drop_signs_below_abs(Graph& graph, const PassOptions&) {
  Rewriter rewriter(graph);
  ByValue<ValueId> negated(kNone);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    if (node.is(kNeg)) negated[node.outputs[0]] = node.inputs[0];
    if (node.is(kAbs) && negated(node.inputs[0]) != kNone) node.inputs[0] = negated(node.inputs[0]);
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
