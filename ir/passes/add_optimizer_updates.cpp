// Gives each optimizer group one update node (for each dtype) over all of its parameters that have a gradient: one pass
// over the weights a step, whatever their number. State gets the names that checkpoints use: "<parameter>-momentum",
// "<parameter>-m", ... (ir/optimizer_kind.cpp). The learning rate is the hyper-parameter "lr.<group>", groups counted
// through all optimizers; "step" counts from 1.
//
// A parameter that no loss depends on is left alone, as PyTorch leaves a parameter whose .grad is None.
//
// What build() says behind the updates, nodes of the update phase that a trace has, reads a parameter as a `detach` of
// that phase: that becomes one of the value that the update gives, and these nodes, with all that read them, stand
// behind the updates.
//
// New running statistics of batch_norm_training become their buffers' where the frontend has not said what does.
#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// By parameter that build() has changed: the donation that says so. The update changes what it holds then.
using Changed = std::unordered_map<ValueId, std::size_t>;

void add_update(Graph& graph, const OptimizerKind& kind, const ParameterGroup& group, int index, ValueId step,
                const std::vector<ValueId>& parameters, const std::unordered_map<ValueId, ValueId>& gradient_of,
                const Changed& changed) {
  const OpDef& op = get_op(kind.op);
  const auto held = [&](ValueId parameter) {
    const auto known = changed.find(parameter);
    return known == changed.end() ? parameter : graph.donations[known->second].value;
  };
  std::vector<ValueId> inputs;
  for (const InputSpec& spec : op.inputs) {
    if (spec.role == InputRole::factor) continue;  // fuse_clipping's
    if (spec.variadic) {
      const OptimizerState* state = state_of(kind, spec.name);
      for (ValueId p : parameters) {
        if (!state)
          inputs.push_back(spec.role == InputRole::parameter ? held(p) : gradient_of.at(p));
        else if (const auto type = state_type(*state, group.options, graph.type(p)))
          inputs.push_back(graph.add_state(name_of_state(graph.value(p).name, state->name), *type));
        else
          inputs.push_back(kNone);
      }
    } else if (spec.role == InputRole::rate) {
      inputs.push_back(graph.add_hyper(std::string(kRatePrefix) + std::to_string(index), DType::f64));
    } else {
      GRAVEN_CHECK(spec.role == InputRole::step,
                   std::string(op.name) + " has an input '" + std::string(spec.name) + "' that no optimizer gives");
      inputs.push_back(step != kNone ? step : graph.add_hyper(kStepName, DType::i64));
    }
  }
  graph.add_node(op, std::move(inputs), update_attributes(kind, group.options), {Origin{"optimizer", {}, 0}},
                 Phase::update);
  const Node& update = graph.nodes.back();
  const std::size_t first = input_range(update, InputRole::parameter).begin;
  for (const InPlace& pair : donated_by(update)) {
    const std::size_t of_parameter = pair.input - first;
    const auto known = of_parameter < parameters.size() ? changed.find(parameters[of_parameter]) : changed.end();
    if (known != changed.end())
      graph.donations[known->second].value = update.outputs[pair.output];
    else
      graph.donations.push_back({update.inputs[pair.input], update.outputs[pair.output]});
  }
}

void add_group(Graph& graph, const OptimizerKind& kind, const ParameterGroup& group, int index, ValueId step,
               const std::unordered_map<ValueId, ValueId>& gradient_of, const Changed& changed) {
  update_attributes(kind, group.options);  // an unknown option is an error even where nothing is to be updated
  for (DType dtype : kAllDTypes) {
    std::vector<ValueId> parameters;
    for (ValueId p : group.parameters)
      if (graph.type(p).dtype == dtype && gradient_of.count(p)) parameters.push_back(p);
    if (graph.flag(kNoModelUpdateFusion)) {
      for (const ValueId p : parameters) add_update(graph, kind, group, index, step, {p}, gradient_of, changed);
      continue;
    }
    if (!parameters.empty()) add_update(graph, kind, group, index, step, parameters, gradient_of, changed);
  }
}

/// Has what reads updated parameters read what the updates from node `first` on have made of them, behind these.
void move_behind_updates(Graph& graph, std::size_t first) {
  std::unordered_map<ValueId, ValueId> updated;
  for (std::size_t n = first; n < graph.nodes.size(); ++n)
    for (const InPlace& pair : donated_by(graph.nodes[n]))
      updated.emplace(graph.nodes[n].inputs[pair.input], graph.nodes[n].outputs[pair.output]);
  ByValue<bool> is_behind, made;
  std::vector<Node> before, behind;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    bool moves = false;
    if (n < first && node.phase == Phase::update) {
      if (node.is(kDetach) && !made(node.inputs[0])) {
        moves = true;
        if (const auto value = updated.find(node.inputs[0]); value != updated.end()) node.inputs[0] = value->second;
      }
      moves = moves || std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId v) { return v != kNone && is_behind(v); });
      for (const ValueId v : node.outputs) {
        made[v] = true;
        is_behind[v] = moves;
      }
    }
    (moves ? behind : before).push_back(std::move(node));
  }
  const bool any = !behind.empty();
  std::move(behind.begin(), behind.end(), std::back_inserter(before));
  graph.nodes = std::move(before);
  if (!any) return;
  // A variable that is to hold what the update has given another holds a copy of it.
  std::unordered_map<ValueId, ValueId> lies_in;
  for (const auto& pair : updated) lies_in.emplace(pair.second, pair.second);
  for (const Node& node : graph.nodes)
    if (node.op->alias || node.is(kDetach))
      if (const auto root = lies_in.find(node.inputs[0]); root != lies_in.end())
        lies_in.emplace(node.outputs[0], root->second);
  for (Donation& d : graph.donations)
    if (const auto root = lies_in.find(d.value); root != lies_in.end() && root->second != d.value)
      d.value = graph.add_node(kCopy, {d.value}, {}, {Origin{"optimizer", {}, 0}}, Phase::update,
                               new_value_name(graph.value(d.variable).name))[0];
}

/// Keeps new running statistics, where the frontend has not recorded that itself.
void keep_running_statistics(Graph& graph) {
  std::set<ValueId> kept;
  for (const Donation& d : graph.donations) kept.insert(d.variable);
  for (const Node& node : graph.nodes) {
    if (!node.is(kBatchNormTraining)) continue;
    // Input (running mean, running variance), output that replaces it.
    constexpr std::size_t kRunning[][2] = {{3, 3}, {4, 4}};
    for (const auto& [input, output] : kRunning) {
      if (node.inputs.size() <= input || node.outputs.size() <= output || node.inputs[input] == kNone) continue;
      const ValueId buffer = node.inputs[input];
      if (graph.value(buffer).kind == ValueKind::buffer && kept.insert(buffer).second)
        graph.donations.push_back({buffer, node.outputs[output]});
    }
  }
}

}  // namespace

void add_optimizer_updates(Graph& graph, const PassOptions&) {
  keep_running_statistics(graph);
  std::unordered_map<ValueId, ValueId> gradient_of;
  for (const Gradient& g : graph.gradients) gradient_of.emplace(g.parameter, g.value);
  Changed changed;
  for (std::size_t d = 0; d < graph.donations.size(); ++d) changed.emplace(graph.donations[d].variable, d);
  int index = 0;
  const std::size_t first_update = graph.nodes.size();
  const std::vector<Optimizer> optimizers = graph.optimizers;
  for (std::size_t o = 0; o < optimizers.size(); ++o) {
    const OptimizerKind& kind = optimizer_kind(optimizers[o].kind);
    const ValueId step = finite_step_of(graph, o);
    for (const ParameterGroup& group : optimizers[o].groups)
      add_group(graph, kind, group, index++, step, gradient_of, changed);
  }
  move_behind_updates(graph, first_update);
  sort_by_phase(graph);
}

}  // namespace graven::ir
