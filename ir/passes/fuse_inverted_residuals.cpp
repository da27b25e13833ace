// CPU, f32, inference: a 1x1 convolution that only a depthwise one reads, which only a 1x1 convolution reads, become one inverted_residual where that
// is faster (kernels/config/inverted_residual.h decides by the sizes): what lies between them is never stored whole.
//
//   conv2d(conv2d(conv2d(x, w1), w2, groups = channels), w3)   inverted_residual(x, w1, w2, w3)
#include <optional>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/passes/scalar_program.h"
#include "kernels/config/inverted_residual.h"

namespace graven::ir {

namespace {

class InvertedResidualFuser {
 public:
  explicit InvertedResidualFuser(Graph& graph) : graph_(graph), uses_(graph), writes_(graph) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) fuse(n);
    std::erase_if(graph_.nodes, [](const Node& node) { return node.op == nullptr; });
  }

 private:
  static bool is_convolution(const Node& node) {
    return node.op != nullptr && node.op->name == "conv2d" && node.attributes.flag("packed") && node.attributes.flag("channels_last");
  }
  static bool all(const Ints& list, std::int64_t value) { return list[0] == value && list[1] == value; }
  static bool is_pointwise(const Node& node) {
    if (!is_convolution(node)) return false;
    const Attributes& a = node.attributes;
    const Ints& weight = a.integers("weight_shape");
    return weight[2] == 1 && weight[3] == 1 && all(a.integers("stride"), 1) && all(a.integers("padding"), 0) && a.integer("groups") == 1;
  }
  static bool is_depthwise(const Node& node) {
    if (!is_convolution(node)) return false;
    const std::int64_t groups = node.attributes.integer("groups");
    const Ints& weight = node.attributes.integers("weight_shape");
    return groups > 1 && weight[0] == groups && weight[1] == 1;
  }
  static ValueId input(const Node& node, std::size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNone; }

  /// The position of what makes input 0 of `node`, if nothing else reads that, and it has no residual.
  std::optional<std::size_t> before(const Node& node) const {
    const auto v = static_cast<std::size_t>(node.inputs[0]);
    if (uses_.producer[v] < 0 || uses_.is_output[v] || uses_.consumers[v].size() != 1) return std::nullopt;
    const auto position = static_cast<std::size_t>(uses_.producer[v]);
    const Node& made = graph_.nodes[position];
    if (made.op == nullptr || made.phase != node.phase || input(made, 3) != kNone || writes_.conflict(made, made.phase)) return std::nullopt;
    return position;
  }

  void fuse(std::size_t n) {
    if (!is_pointwise(graph_.nodes[n])) return;
    const std::optional<std::size_t> middle = before(graph_.nodes[n]);
    if (!middle || !is_depthwise(graph_.nodes[*middle])) return;
    const std::optional<std::size_t> first = before(graph_.nodes[*middle]);
    if (!first || !is_pointwise(graph_.nodes[*first])) return;
    Node &expand = graph_.nodes[*first], &depthwise = graph_.nodes[*middle], &project = graph_.nodes[n];
    const Attributes& window = depthwise.attributes;
    const Ints &narrow = project.attributes.integers("weight_shape"), &kernel = window.integers("weight_shape"), &stride = window.integers("stride"),
               &padding = window.integers("padding"), &dilation = window.integers("dilation");
    const Shape &x = graph_.type(expand.inputs[0]).shape, &y = graph_.type(project.outputs[0]).shape;
    const kernels::inverted_residual_config sizes{.in_height = x[1].value(),
                                                  .in_width = x[2].value(),
                                                  .in_channels = x[3].value(),
                                                  .wide_channels = kernel[0],
                                                  .out_height = y[1].value(),
                                                  .out_width = y[2].value(),
                                                  .out_channels = narrow[0],
                                                  .kernel_height = kernel[2],
                                                  .kernel_width = kernel[3],
                                                  .stride_height = stride[0],
                                                  .stride_width = stride[1],
                                                  .padding_height = padding[0],
                                                  .padding_width = padding[1],
                                                  .dilation_height = dilation[0],
                                                  .dilation_width = dilation[1]};
    if (!kernels::inverted_residual_is_faster(sizes)) return;

    Node block;
    block.op = &get_op("inverted_residual");
    block.inputs = {expand.inputs[0],    expand.inputs[1],  input(expand, 2),  depthwise.inputs[1],
                    input(depthwise, 2), project.inputs[1], input(project, 2), input(project, 3)};
    block.outputs = project.outputs;
    block.phase = project.phase;
    block.origins = merge(merge(expand.origins, depthwise.origins), project.origins);
    block.attributes.set("kernel_size", Ints{kernel[2], kernel[3]});
    for (const char* key : {"stride", "padding", "dilation"}) block.attributes.set(key, window.integers(key));
    block.attributes.set("wide_channels", kernel[0]);
    block.attributes.set("out_channels", narrow[0]);
    block.attributes.set("packed", true);
    block.attributes.set("expand_epilogue", expand.attributes.program("epilogue"));
    block.attributes.set("depthwise_epilogue", window.program("epilogue"));
    block.attributes.set("epilogue", project.attributes.program("epilogue"));
    expand.op = depthwise.op = nullptr;
    project = std::move(block);
  }

  Graph& graph_;
  Uses uses_;
  Writes writes_;
};

}  // namespace

void fuse_inverted_residuals(Graph& graph, const PassOptions&) { InvertedResidualFuser(graph).run(); }

}  // namespace graven::ir
