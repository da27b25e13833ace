#include "ir/passes/derive_evaluation.h"

#include <algorithm>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// batch_norm_training(x, weight, bias, mean, var) -> batch_norm of the same inputs; without running statistics a batch
/// is all that is known, so the node stays, as in PyTorch.
bool use_running_statistics(Rewriter& rewriter, Node& node) {
  if (!node.is(kBatchNormTraining) || node.inputs.size() < 5 || node.inputs[3] == kNone || node.inputs[4] == kNone)
    return false;
  Attributes attributes{{"eps", node.attributes.at("eps")}, {"channels_last", node.attributes.at("channels_last")}};
  constexpr std::string_view kSuffix = "_training";
  std::string name = rewriter.graph().value(node.outputs[0]).name;  // "model.norm.batch_norm_training"
  if (name.size() > kSuffix.size() && name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0)
    name.resize(name.size() - kSuffix.size());
  const ValueId y = rewriter.add(kBatchNorm, node.inputs, std::move(attributes), node.origins, Phase::forward, name);
  rewriter.replace(node.outputs[0], y);
  if (node.outputs.size() > 4) {  // nobody writes them back, but somebody may look at them
    rewriter.replace(node.outputs[3], node.inputs[3]);
    rewriter.replace(node.outputs[4], node.inputs[4]);
  }
  return true;
}

/// dropout(x) -> x, as in PyTorch's evaluation mode; attention drops none of its weights.
bool skip_dropout(Rewriter& rewriter, Node& node) {
  if (node.is(kAttention) && is_random(node)) {
    node.inputs.resize(input_range(node, InputRole::seed).begin);
    for (const char* of_dropout : {"p", "stream"})
      node.attributes.set(of_dropout, kAttention.find_attribute(of_dropout)->fallback.value());
  }
  if (!node.is(kDropout)) return false;
  rewriter.replace(node.outputs[0], node.inputs[0]);
  return true;
}

/// What else is drawn is drawn in evaluation too: the numbers of seed 0 and step 0, so that every evaluation sees the
/// same.
void fix_random_inputs(Rewriter& rewriter, Node& node) {
  if (!is_random(node)) return;
  for (ValueId& v : node.inputs)
    if (v != kNone && rewriter.graph().value(v).kind == ValueKind::hyper)
      v = rewriter.add(kFull, {}, {{"shape", Shape{}}, {"value", 0.0}, {"dtype", DType::i64}}, node.origins,
                       Phase::forward, rewriter.graph().value(v).name + ".evaluation");
}

const Node* cross_entropy_of(const Graph& graph) {
  for (std::size_t n = graph.nodes.size(); n-- > 0;)
    if (graph.nodes[n].is(kCrossEntropy)) return &graph.nodes[n];
  return nullptr;
}

}  // namespace

Graph evaluation_graph(const Graph& traced) {
  if (traced.losses.empty()) throw UserError("the graph '" + traced.name + "' has no loss to evaluate");
  GRAVEN_CHECK(traced.stage == "trace", "evaluation is derived from the trace");
  Graph graph = traced;
  graph.training = false;
  graph.clips.clear();
  graph.donations.clear();
  graph.optimizers.clear();
  graph.outputs.clear();
  for (const Loss& loss : traced.losses)
    if (traced.type(loss.value).shape.numel() == Dim(1)) graph.outputs.push_back(loss.value);
  if (graph.outputs.empty()) throw UserError("the graph '" + traced.name + "' has no scalar loss to evaluate");
  graph.losses.clear();
  Rewriter rewriter(graph);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    if (use_running_statistics(rewriter, node) || skip_dropout(rewriter, node)) continue;
    fix_random_inputs(rewriter, node);
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
  remove_dead_nodes(graph, {});
  if (const Node* loss = cross_entropy_of(graph)) graph.outputs.push_back(loss->inputs[0]);
  graph.output_tree = {};
  graph.output_tree.kind = Tree::Kind::map;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    Tree leaf;
    leaf.index = static_cast<std::int32_t>(i);
    graph.output_tree.children.push_back(leaf);
    const bool scores = i + 1 == graph.outputs.size() && cross_entropy_of(graph) != nullptr;
    graph.output_tree.keys.push_back(scores ? "scores" : i == 0 ? "loss" : "loss_" + std::to_string(i + 1));
  }
  return graph;
}

ValueId scores_of(const Graph& evaluation) {
  const std::vector<std::string>& keys = evaluation.output_tree.keys;
  const bool is_evaluation = !evaluation.training && evaluation.losses.empty() && !keys.empty();
  return is_evaluation && keys.size() == evaluation.outputs.size() && keys.back() == "scores"
             ? evaluation.outputs.back()
             : kNone;
}

bool evaluation_differs(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    if (node.phase != Phase::forward) return false;
    return is_random(node) || (node.is(kBatchNormTraining) && node.inputs.size() > 4 && node.inputs[3] != kNone &&
                               node.inputs[4] != kNone);
  });
}

}  // namespace graven::ir
