// CPU, f32: the fast kernels of linear and conv2d read their weights in panels of 16 columns. This gives each such node its packed weight: a
// `pack_*` node, one for all users of the same weight and order. In inference the prepare phase runs it once; in training it runs in each step,
// right before the first user, since the update changes the weight.
//
// In training, linear layers without a bias and gradients of inputs whose weight is larger than the caches become plain products, which copy blocks
// of the weight where they use them: a packed copy would be as large as the weight, and reading and writing it takes longer than it saves.
#include <map>
#include <tuple>
#include <unordered_map>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

constexpr std::int64_t kLargeWeight = std::int64_t{1} << 22;  // elements

/// Input `i`, if the node has it and it is given.
bool given(const Node& node, std::size_t i) { return node.inputs.size() > i && node.inputs[i] != kNone; }

}  // namespace

void pack_weights(Graph& graph, const PassOptions&) {
  const bool training = !is_inference(graph);
  Rewriter rewriter(graph);
  std::unordered_map<ValueId, int> version;  // of weights that are written into: what was packed before is stale
  // By weight, its version, the packing, and what else the order depends on.
  std::map<std::tuple<ValueId, int, bool, std::string_view, Ints>, ValueId> packed;
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    const std::string_view op = node.op->name;
    const bool linear = op == "linear", linear_backward = op == "linear_backward_input";
    const bool convolution = op == "conv2d", convolution_backward = op == "conv2d_backward_input", winograd = op == "conv2d_winograd";
    if (node.op->has_effect())
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (is_mutated(node, i) && node.inputs[i] != kNone) ++version[node.inputs[i]];
    if (!(linear || linear_backward || convolution || convolution_backward || winograd) || node.attributes.flag("packed") ||
        graph.type(node.inputs[0]).dtype != DType::f32 || ((convolution || convolution_backward) && !node.attributes.flag("channels_last"))) {
      rewriter.keep(std::move(node));
      continue;
    }
    const ValueId weight = node.inputs[1];
    const bool plain = node.attributes.program("epilogue").empty() && !given(node, 2) && !given(node, 3);
    if (training && (linear || linear_backward) && plain && graph.type(weight).shape.numel().maximum() >= kLargeWeight) {
      const std::string name = graph.value(node.outputs[0]).name;
      rewriter.replace(node.outputs[0],
                       rewriter.add_one("matmul", {node.inputs[0], weight}, {{"transpose_b", linear}}, node.origins, node.phase, name));
      continue;
    }
    Attributes attributes;
    Ints key;
    if (linear || linear_backward) {
      attributes.set("transposed", linear_backward);
    } else if (winograd) {
      attributes.set("tile", node.attributes.integer("tile"));
      key = {node.attributes.integer("tile")};
    } else {
      attributes.set("backward", convolution_backward);
      for (const char* window : {"stride", "padding", "dilation"}) {
        const Ints& list = node.attributes.integers(window);
        attributes.set(window, list);
        key.insert(key.end(), list.begin(), list.end());
      }
      attributes.set("groups", node.attributes.integer("groups"));
      key.push_back(node.attributes.integer("groups"));
    }
    const bool backward = linear_backward || convolution_backward;
    const std::string_view pack = linear || linear_backward ? "pack_linear_weight" : winograd ? "pack_conv2d_winograd_weight" : "pack_conv2d_weight";
    const auto [known, fresh] = packed.emplace(std::tuple(weight, version.count(weight) ? version[weight] : 0, backward, pack, key), kNone);
    if (fresh)
      known->second = rewriter.add_one(pack, {weight}, std::move(attributes), node.origins, node.phase,
                                       graph.value(weight).name + (backward ? ".packed_backward" : ".packed"));
    node.inputs[1] = known->second;
    node.attributes.set("packed", true);
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
