// CPU, f32, inference: a 1x1 convolution that only a depthwise one reads, which only a 1x1 convolution reads, become
// one inverted_residual where that is faster (kernels/config/inverted_residual.h decides by the sizes, unless the graph
// says what was measured): what lies between them is never stored whole.
//
//   conv2d(conv2d(conv2d(x, w1), w2, groups = channels), w3)   inverted_residual(x, w1, w2, w3)
#include <optional>

#include "ir/ops/conv2d_shared.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/passes/scalar_program.h"

namespace graven::ir {

namespace {

constexpr const char *kFused = "one pass", *kApart = "three convolutions";

std::string block_key(const Attributes& a, const TensorType& x) {
  const auto pair = [&](const char* name) {
    const Ints& of = a.integers(name);
    return std::to_string(of[0]) + "x" + std::to_string(of[1]);
  };
  return "inverted_residual " + x.to_string() + " " + std::to_string(a.integer("wide_channels")) + " wide, " +
         pair("kernel_size") + ", stride " + pair("stride") + ", padding " + pair("padding") + ", dilation " +
         pair("dilation") + " -> " + std::to_string(a.integer("out_channels"));
}

/// Finds the triples of nodes that one could be. Nodes without an operator are gone.
class InvertedResidualBlocks {
 public:
  explicit InvertedResidualBlocks(const Graph& graph) : graph_(graph), uses_(graph) {}

  struct Block {
    std::size_t expand, depthwise, project;
    Attributes attributes;  ///< of the one node
    bool is_faster;         ///< by the sizes
  };

  static ValueId input(const Node& node, std::size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNone; }

  /// The block that ends with the node.
  std::optional<Block> ending_with(std::size_t n) const {
    if (graph_.nodes[n].op == nullptr || !is_pointwise(graph_.nodes[n])) return std::nullopt;
    const std::optional<std::size_t> middle = before(graph_.nodes[n]);
    if (!middle || !is_depthwise(graph_.nodes[*middle])) return std::nullopt;
    const std::optional<std::size_t> first = before(graph_.nodes[*middle]);
    if (!first || !is_pointwise(graph_.nodes[*first])) return std::nullopt;
    const Node &expand = graph_.nodes[*first], &depthwise = graph_.nodes[*middle], &project = graph_.nodes[n];
    const Attributes& window = depthwise.attributes;
    const Ints& kernel = window.integers("weight_shape");
    Attributes attributes;
    attributes.set("kernel_size", Ints{kernel[2], kernel[3]});
    for (const char* key : {"stride", "padding", "dilation"}) attributes.set(key, window.integers(key));
    attributes.set("wide_channels", kernel[0]);
    attributes.set("out_channels", project.attributes.integers("weight_shape")[0]);
    attributes.set("packed", true);
    attributes.set("expand_epilogue", expand.attributes.program("epilogue"));
    attributes.set("depthwise_epilogue", window.program("epilogue"));
    attributes.set("epilogue", project.attributes.program("epilogue"));
    const auto sizes = ops::inverted_residual_sizes(attributes, graph_.type(expand.inputs[0]).shape);
    if (kernels::inverted_residual_rows(sizes) < 1) return std::nullopt;
    return Block{*first, *middle, n, std::move(attributes), kernels::inverted_residual_is_faster(sizes)};
  }

 private:
  /// Whether the node is a convolution with packed weights that `is` holds of.
  bool is_convolution(const Node& node, bool (*is)(const kernels::conv2d_config&)) const {
    if (!node.is(kLoweredConv2d) || !node.attributes.flag("packed") || graph_.type(node.inputs[0]).dtype != DType::f32)
      return false;
    const Shape& x = graph_.type(node.inputs[0]).shape;
    if (!x[1].is_static() || !x[2].is_static()) return false;
    return is(ops::conv2d_sizes(node.attributes, x[1], x[2], node.attributes.integers("weight_shape"), true).most);
  }
  bool is_pointwise(const Node& node) const { return is_convolution(node, kernels::conv2d_is_pointwise); }
  bool is_depthwise(const Node& node) const { return is_convolution(node, kernels::conv2d_is_depthwise); }

  /// The position of what makes input 0 of `node`, if nothing else reads that, and it has no residual.
  std::optional<std::size_t> before(const Node& node) const {
    const NodeId position = uses_.maker(node.inputs[0]);
    if (position < 0 || uses_.only_reader(node.inputs[0]) < 0) return std::nullopt;
    const Node& made = graph_.nodes[at(position)];
    if (made.op == nullptr || made.phase != node.phase || input(made, 3) != kNone) return std::nullopt;
    return at(position);
  }

  const Graph& graph_;
  Uses uses_;
};

}  // namespace

void fuse_inverted_residuals(Graph& graph, const PassOptions&) {
  using Blocks = InvertedResidualBlocks;
  const Blocks blocks(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    std::optional<Blocks::Block> found = blocks.ending_with(n);
    if (!found) continue;
    Node &expand = graph.nodes[found->expand], &depthwise = graph.nodes[found->depthwise], &project = graph.nodes[n];
    const std::string chosen = tuned(graph, block_key(found->attributes, graph.type(expand.inputs[0])));
    if (chosen == kApart || (chosen != kFused && !found->is_faster)) continue;
    Node block;
    block.op = &kInvertedResidual;
    block.attributes = std::move(found->attributes);
    block.inputs = {expand.inputs[0],
                    expand.inputs[1],
                    Blocks::input(expand, 2),
                    depthwise.inputs[1],
                    Blocks::input(depthwise, 2),
                    project.inputs[1],
                    Blocks::input(project, 2),
                    Blocks::input(project, 3)};
    block.outputs = project.outputs;
    block.phase = project.phase;
    block.origins = merge(merge(expand.origins, depthwise.origins), project.origins);
    expand.op = depthwise.op = nullptr;
    project = std::move(block);
  }
  std::erase_if(graph.nodes, [](const Node& node) { return node.op == nullptr; });
}

void list_inverted_residual_choices(const Graph& graph, std::vector<Choice>& choices) {
  if (!is_inference(graph)) return;
  const InvertedResidualBlocks blocks(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto add = [&](const Attributes& attributes, const Node& first, const char* taken,
                         std::vector<NodeId> nodes) {
      choices.push_back(
          {block_key(attributes, graph.type(first.inputs[0])), {kFused, kApart}, taken, std::move(nodes)});
    };
    if (node.is(kInvertedResidual)) {
      add(node.attributes, node, kFused, {static_cast<NodeId>(n)});
    } else if (const auto b = blocks.ending_with(n)) {
      add(b->attributes, graph.nodes[b->expand], kApart,
          {static_cast<NodeId>(b->expand), static_cast<NodeId>(b->depthwise), static_cast<NodeId>(n)});
    }
  }
}

}  // namespace graven::ir
