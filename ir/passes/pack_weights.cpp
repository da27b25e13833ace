// CPU, f32: the fast kernels of linear and conv2d read their weights in panels of 16 columns. This gives each such node
// its packed weight: a `pack_*` node, one for all users of the same weight and order. In inference the prepare phase
// runs it once; in training it runs in each step, right before the first user, since the update changes the weight.
//
// In training, linear layers of few rows read their weight as it lies, and copy blocks of it where they use them: a
// packed copy would be as large as the weight, and writing and reading it takes longer than it saves.
#include <map>
#include <tuple>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// Whether a linear layer (or its gradient) that runs in each step is faster without a packed weight: where few rows
/// meet each block, or where the weight is larger than the caches. Measured: tests/bench/bench_linear.cpp.
bool unpacked_is_faster(const Graph& graph, const Node& node, bool backward) {
  constexpr std::int64_t kFewRows = 256, kFewRowsBackward = 64, kManyRows = 1024, kLargeWeight = std::int64_t{1} << 22;
  const Shape &x = graph.type(node.inputs[0]).shape, &weight = graph.type(node.inputs[1]).shape;
  if (!backward && weight[0] == Dim(1)) return true;  // one output is a scalar product, for which nothing is packed
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < x.rank(); ++i) rows *= x[i].maximum();
  return rows <= (backward ? kFewRowsBackward : kFewRows) ||
         (rows < kManyRows && weight.numel().maximum() >= kLargeWeight);
}

}  // namespace

void pack_weights(Graph& graph, const PassOptions&) {
  const bool training = !is_inference(graph);
  Rewriter rewriter(graph);
  // By weight, the packing, and what else the order depends on.
  std::map<std::tuple<ValueId, bool, const OpDef*, Ints>, ValueId> packed;
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    const bool linear = node.is(kLinear), linear_backward = node.is(kLinearBackwardInput);
    const bool convolution = node.is(kConv2d), convolution_backward = node.is(kConv2dBackwardInput),
               winograd = node.is(kConv2dWinograd);
    if (!(linear || linear_backward || convolution || convolution_backward || winograd) ||
        node.attributes.flag("packed") || graph.type(node.inputs[0]).dtype != DType::f32 ||
        ((convolution || convolution_backward) && !node.attributes.flag("channels_last"))) {
      rewriter.keep(std::move(node));
      continue;
    }
    const ValueId weight = node.inputs[1];
    if (training && (linear || linear_backward) && unpacked_is_faster(graph, node, linear_backward)) {
      rewriter.keep(std::move(node));
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
    const OpDef& pack = linear || linear_backward ? kPackLinearWeight
                        : winograd                ? kPackConv2dWinogradWeight
                                                  : kPackConv2dWeight;
    const auto [known, fresh] = packed.emplace(std::tuple(weight, backward, &pack, key), kNone);
    if (fresh)
      known->second = rewriter.add(pack, {weight}, std::move(attributes), node.origins, node.phase,
                                   graph.value(weight).name + (backward ? ".packed_backward" : ".packed"));
    node.inputs[1] = known->second;
    node.attributes.set("packed", true);
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
