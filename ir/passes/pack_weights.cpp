// CPU, f32 and bf16: the fast kernels of linear and conv2d read their weights in panels of 16 columns. This gives each
// such node its packed weight: a `pack_*` node, one for all users of the same weight and order. In inference the
// prepare phase runs it once; in training it runs in each step, right before the first user, since the update changes
// the weight.
//
// In training, linear layers of f32 and few rows read their weight as it lies, and copy blocks of it where they use
// them: a packed copy would be as large as the weight, and writing and reading it takes longer than it saves. Whether
// linear layers of f32 do, the graph may say, as measured.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ir/ops/shared.h"
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

constexpr const char *kPacked = "packed", *kAsItLies = "as it lies";

/// Whether both are possible.
bool may_be_unpacked(const Graph& graph, const Node& node) {
  const OpDef& op = lowered(*node.op);
  return (op == kLoweredLinear || op == kLoweredLinearBackwardInput) && graph.type(node.inputs[0]).dtype == DType::f32;
}

std::string packing_key(const NodeView& node) {
  const OpDef& op = *lowered(*node.node.op).lowers;
  return std::string(op.name) + " " + node.input(0).to_string() + " " +
         TensorType{DType::f32, Shape::of(ops::weight_shape(node))}.to_string() +
         (is_inference(node.graph) ? "" : ", training");
}

/// Whether the weight is packed, of a node that could do without.
bool packs(const Graph& graph, const Node& node) {
  const std::string chosen = tuned(graph, packing_key({graph, node}));
  if (chosen == kPacked || chosen == kAsItLies) return chosen == kPacked;
  return is_inference(graph) || !unpacked_is_faster(graph, node, lowered(*node.op) == kLoweredLinearBackwardInput);
}

}  // namespace

void list_packing_choices(const Graph& graph, std::vector<Choice>& choices) {
  const Uses uses(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.inputs.empty() || node.inputs[0] == kNone || !may_be_unpacked(graph, node)) continue;
    const bool packed = node.attributes.flag_or("packed", false);
    Choice choice{
        packing_key({graph, node}), {kPacked, kAsItLies}, packed ? kPacked : kAsItLies, {static_cast<NodeId>(n)}};
    const NodeId packing = uses.maker(node.inputs[1]);
    if (packed && packing >= 0 && graph.nodes[at(packing)].phase != Phase::prepare) choice.nodes.push_back(packing);
    choices.push_back(std::move(choice));
  }
}

void pack_weights(Graph& graph, const PassOptions&) {
  Rewriter rewriter(graph);
  std::map<ValueId, std::vector<std::pair<Packing, ValueId>>> packed;  // by weight
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    const OpDef& op = lowered(*node.op);
    const bool is_f32 =
        !node.inputs.empty() && node.inputs[0] != kNone && graph.type(node.inputs[0]).dtype == DType::f32;
    if (op.packing == nullptr || node.attributes.flag_or("packed", false) ||
        !(is_f32 || (graph.type(node.inputs[0]).dtype == DType::bf16 && op != kConv2dWinograd)) ||
        !node.attributes.flag_or("channels_last", true) || (may_be_unpacked(graph, node) && !packs(graph, node))) {
      rewriter.keep(std::move(node));
      continue;
    }
    const ValueId weight = node.inputs[1];
    Packing packing = op.packing(node.attributes);
    auto& known = packed[weight];
    auto found = std::find_if(known.begin(), known.end(), [&](const auto& k) {
      return k.first.op == packing.op && k.first.attributes == packing.attributes;
    });
    if (found == known.end()) {
      const bool backward = op == kLoweredLinearBackwardInput || op == kLoweredConv2dBackwardInput;
      const ValueId made = rewriter.add(*packing.op, {weight}, packing.attributes, node.origins, node.phase,
                                        graph.value(weight).name + (backward ? ".packed_backward" : ".packed"));
      found = known.insert(known.end(), {std::move(packing), made});
    }
    make_lowered(node);
    node.attributes.set("packed", true);
    node.attributes.set("weight_shape", graph.type(weight).shape.values());
    node.inputs[1] = found->second;
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
