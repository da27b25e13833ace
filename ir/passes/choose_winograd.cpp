// CPU, f32, inference: a 3x3 convolution of stride 1 becomes conv2d_winograd where that is faster
// (kernels/config/conv2d_winograd.h decides by the sizes, unless the graph says what was measured). Its transformed
// weights cost more to make than one convolution saves, so they must be such as the prepare phase makes once: computed
// from parameters, buffers and constants alone. Where the batch is symbolic, one image decides, and the largest where
// its size is.
#include "ir/ops/conv2d_shared.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

constexpr std::int64_t kTiles[] = {0, 2, 4};

std::string name_of_tile(std::int64_t tile) { return tile == 0 ? "direct" : "winograd " + std::to_string(tile); }

/// The sizes of a convolution that both forms can compute.
std::optional<kernels::conv2d_config> winograd_sizes(const NodeView& node) {
  if (lowered(*node.node.op) != kLoweredConv2d || node.input(0).dtype != DType::f32 ||
      !node.attributes().flag("channels_last"))
    return std::nullopt;
  kernels::conv2d_config s = ops::conv2d_forward_sizes(node).most;
  const Dim& batch = node.input(0).shape[0];
  s.batch = batch.is_static() ? batch.value() : 1;
  if (!kernels::conv2d_winograd_is_possible(s)) return std::nullopt;
  return s;
}

std::string winograd_key(const NodeView& node) {
  const Ints& padding = node.attributes().integers("padding");
  return "conv2d " + node.input(0).to_string() + " " +
         TensorType{DType::f32, Shape::of(ops::weight_shape(node))}.to_string() + " padding " +
         std::to_string(padding[0]) + "x" + std::to_string(padding[1]);
}

std::int64_t winograd_tile(const NodeView& node) {
  const std::optional<kernels::conv2d_config> s = winograd_sizes(node);
  if (!s) return 0;
  const std::string chosen = tuned(node.graph, winograd_key(node));
  for (const std::int64_t tile : kTiles)
    if (chosen == name_of_tile(tile)) return tile;
  return kernels::conv2d_winograd_tile(*s);
}

}  // namespace

void choose_winograd(Graph& graph, const PassOptions&) {
  // What does not change from call to call.
  ByValue<bool> known = fixed(graph, {ValueKind::parameter, ValueKind::buffer, ValueKind::constant});
  Rewriter rewriter(graph);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    follow_fixed(node, known);
    if (node.is(kConv2d) && known(node.inputs[1])) {
      if (const std::int64_t tile = winograd_tile({graph, node})) {
        node.op = &kConv2dWinograd;
        node.attributes = {{"padding", node.attributes.at("padding")}, {"tile", tile}};
        make_lowered(node);
      }
    }
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

void list_winograd_choices(const Graph& graph, std::vector<Choice>& choices) {
  if (!is_inference(graph)) return;
  const Uses uses(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool winograd = node.is(kConv2dWinograd);
    if (!winograd && !winograd_sizes({graph, node})) continue;
    const NodeId packing = uses.maker(node.inputs[1]);
    if (packing < 0 || graph.nodes[at(packing)].phase != Phase::prepare) continue;
    Choice choice{winograd_key({graph, node}), {}, name_of_tile(winograd ? node.attributes.integer("tile") : 0), {}};
    for (const std::int64_t tile : kTiles) choice.candidates.push_back(name_of_tile(tile));
    choice.nodes = {static_cast<NodeId>(n)};
    choices.push_back(std::move(choice));
  }
}

}  // namespace graven::ir
