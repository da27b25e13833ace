// Makes one step of several parts of a batch (Graph::config, "gradient_accumulation_steps"): each part runs forward and
// backward, the gradients are added up where they lie from part to part, and behind the last part there is one update,
// by their mean.
//
//   g = linear_backward_weight(...)   ->   p = linear_backward_weight(...)
//                                          g = accumulate(sum(g), p, part, parts)      sum(g) <- g
//
// The sum takes the place of the parameter's gradient, so that only the gradients of one part that are not yet added
// wait in memory. Each is added right behind where it is made. How many parts there are the training loop says: a part
// of a batch is what the graph was recorded for. Random numbers go by the count of all parts instead of that of steps.
#include <algorithm>
#include <map>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/stages.h"

namespace graven::ir {

std::int64_t accumulation_steps(const Graph& graph) {
  const double steps = graph.number(kAccumulationSteps).value_or(1);
  if (!(steps >= 1) || steps > 1e9 || steps != static_cast<double>(static_cast<std::int64_t>(steps)))
    throw UserError("config." + std::string(kAccumulationSteps) + ": expected an integer of at least 1, found " +
                    std::to_string(steps));
  if (steps > 1 && updates_in_backward(graph))
    throw UserError(
        "the graph " + graph.name + " asks for update_in_backward, and for " +
        std::to_string(static_cast<std::int64_t>(steps)) +
        " gradient accumulation steps: gradients that are used up within backward cannot be added up; leave "
        "one of the two out");
  if (graph.flag(kDataParallel) && updates_in_backward(graph))
    throw UserError("the graph " + graph.name +
                    " asks for update_in_backward, and to be data parallel: gradients that are used up within backward "
                    "cannot be added up over ranks; leave one of the two out");
  if (has_stages(graph) && updates_in_backward(graph))
    throw UserError("the graph " + graph.name +
                    " asks for update_in_backward, and has stages (set_stage): gradients that are used up within "
                    "backward cannot be added up over the parts of a step; leave one of the two out");
  return static_cast<std::int64_t>(steps);
}

bool has_parts(const Graph& graph) {
  return accumulation_steps(graph) > 1 || graph.flag(kDataParallel) || has_stages(graph);
}

void accumulate_gradients(Graph& graph, const PassOptions&) {
  const ValueId part = graph.add_hyper(kPartName, DType::i64), parts = graph.add_hyper(kPartsName, DType::i64);
  const ValueId scale = loss_scale(graph);
  const std::size_t count = graph.nodes.size();
  const Uses uses(graph);
  std::map<NodeId, std::vector<Node>> behind;
  for (Gradient& g : graph.gradients) {
    const TensorType type = graph.type(g.value);
    const std::string parameter = graph.value(g.parameter).name;
    if (type.dtype != DType::f32 && type.dtype != DType::f64)
      throw UserError("gradient accumulation: the gradient of " + parameter + " is " + type.to_string() +
                      "; gradients are added up in f32 or f64: keep the parameter in f32");
    g.sum = graph.add_value("sum(grad(" + parameter + "))", ValueKind::sum, type);
    const NodeId maker = uses.maker(g.value);
    const Origins origins = maker >= 0 ? graph.nodes[at(maker)].origins : Origins{Origin{"optimizer", {}, 0}};
    const ValueId mean = graph.add_node(kAccumulate, {g.sum, g.value, part, parts, scale}, {}, origins, Phase::backward,
                                        "mean(grad(" + parameter + "))")[0];
    graph.donations.push_back({g.sum, mean});
    if (graph.value(g.value).name == "grad(" + parameter + ")") graph.swap_names(g.value, mean);
    if (maker >= 0) graph.value(g.value).name = parameter + ".part_gradient";
    g.value = mean;
    behind[maker].push_back(std::move(graph.nodes.back()));
    graph.nodes.pop_back();
  }
  std::vector<Node> nodes;
  nodes.reserve(count + graph.gradients.size());
  for (std::size_t n = 0; n < count; ++n) {
    nodes.push_back(std::move(graph.nodes[n]));
    if (const auto found = behind.find(static_cast<NodeId>(n)); found != behind.end())
      std::move(found->second.begin(), found->second.end(), std::back_inserter(nodes));
  }
  if (const auto found = behind.find(-1); found != behind.end())  // of what nobody makes: a gradient that is given
    std::move(found->second.begin(), found->second.end(), std::back_inserter(nodes));
  graph.nodes = std::move(nodes);
  const ValueId step = graph.find(kStepName);
  for (Node& node : graph.nodes)
    if (is_random(node))
      for (ValueId& v : node.inputs)
        if (v != kNone && v == step) v = graph.add_hyper(kDrawName, DType::i64);
  sort_by_phase(graph);
  graph.compact();
}

}  // namespace graven::ir
