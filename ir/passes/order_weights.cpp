// Inference: kernels that read a convolution's weight as [out, h, w, in / groups], for images as [n, h, w, c], would
// turn it in each call. Here it is a node of its own, one for all users of a weight, which the prepare phase runs once.
//
// Left as they are: weights that are not made of parameters, buffers and constants alone, which would be turned in each
// call all the same, and those that are the same in both orders.
#include "ir/ops/shared.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

bool is_convolution(const Node& node) {
  const OpDef& op = lowered(*node.op);
  return op == kLoweredConv2d || op == kLoweredConv2dBackwardInput;
}

}  // namespace

void order_weights(Graph& graph, const PassOptions&) {
  ByValue<bool> known = fixed(graph, {ValueKind::parameter, ValueKind::buffer, ValueKind::constant});
  ByValue<ValueId> ordered(kNone);
  Rewriter rewriter(graph);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    follow_fixed(node, known);
    if (is_convolution(node) && node.attributes.flag_or("channels_last", false) && known(node.inputs[1]) &&
        !ops::has_weight_by_channels(node.attributes)) {
      const ValueId weight = node.inputs[1];
      const Shape& shape = graph.type(weight).shape;
      if (shape[1] != Dim(1) && (shape[2] != Dim(1) || shape[3] != Dim(1))) {
        if (ordered(weight) == kNone)
          ordered[weight] = rewriter.add(kPermute, {weight}, {{"dims", Ints{0, 2, 3, 1}}}, node.origins, node.phase,
                                         graph.value(weight).name + ".by_channels");
        make_lowered(node);
        node.attributes.set("weight_by_channels", true);
        node.inputs[1] = ordered(weight);
      }
    }
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
