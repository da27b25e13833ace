// CPU, f32, inference: a 3x3 convolution of stride 1 becomes conv2d_winograd where that is faster
// (kernels/config/conv2d_winograd.h decides by the sizes). Its transformed weights cost more to make than one
// convolution saves, so they must be such as the prepare phase makes once: computed from parameters, buffers and
// constants alone. Where the batch is symbolic, one image decides, and the largest where its size is.
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "kernels/config/conv2d_winograd.h"

namespace graven::ir {

namespace {

std::int64_t tile_of(const Graph& graph, const Node& node) {
  const Attributes& a = node.attributes;
  const TensorType& x = graph.type(node.inputs[0]);
  const Ints weight = graph.type(node.inputs[1]).shape.values();
  const Ints &stride = a.integers("stride"), &padding = a.integers("padding"), &dilation = a.integers("dilation");
  if (x.dtype != DType::f32 || !a.flag("channels_last")) return 0;
  kernels::conv2d_config s;
  s.batch = x.shape[0].is_static() ? x.shape[0].value() : 1;
  s.in_height = x.shape[1].maximum(), s.in_width = x.shape[2].maximum();
  s.groups = a.integer("groups"), s.in_channels = weight[1] * s.groups, s.out_channels = weight[0];
  s.kernel_height = weight[2], s.kernel_width = weight[3];
  s.stride_height = stride[0], s.stride_width = stride[1];
  s.padding_height = padding[0], s.padding_width = padding[1];
  s.dilation_height = dilation[0], s.dilation_width = dilation[1];
  const Shape& y = graph.type(node.outputs[0]).shape;
  s.out_height = y[1].maximum(), s.out_width = y[2].maximum();
  return kernels::conv2d_winograd_tile(s);
}

}  // namespace

void choose_winograd(Graph& graph, const PassOptions&) {
  // What does not change from call to call.
  ByValue<bool> known = fixed(graph, {ValueKind::parameter, ValueKind::buffer, ValueKind::constant});
  Rewriter rewriter(graph);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    bool all = !node.op->random;
    for (ValueId v : node.inputs) all = all && (v == kNone || known(v));
    for (ValueId v : node.outputs) known[v] = all;
    if (node.is(kConv2d) && known(node.inputs[1])) {
      if (const std::int64_t tile = tile_of(graph, node)) {
        node.op = &kConv2dWinograd;
        node.attributes = {{"padding", node.attributes.at("padding")}, {"tile", tile}};
        make_lowered(node);
      }
    }
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
