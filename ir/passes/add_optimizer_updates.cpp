// Gives each optimizer group one update node (for each dtype) over all of its parameters that have a gradient: one pass over the weights a step,
// whatever their number. State gets the names that checkpoints use: "<parameter>-momentum", "<parameter>-m", "<parameter>-v", "<parameter>-max_v".
// The learning rate is the hyper-parameter "lr.<group>", groups counted through all optimizers; "step" counts from 1.
//
// A parameter that no loss depends on is left alone, as PyTorch leaves a parameter whose .grad is None.
//
// New running statistics of batch_norm_training that nothing writes back are assigned to their buffers.
#include <algorithm>
#include <set>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// The options of a kind of optimizer, and the attributes that the kind itself sets.
struct OptimizerKind {
  std::string_view kind, op;
  std::vector<std::string_view> flags;                   ///< options that are booleans
  std::vector<std::string_view> numbers;                 ///< options that are numbers
  std::vector<std::pair<std::string_view, bool>> fixed;  ///< attributes
};

double option(const std::map<std::string, double>& options, std::string_view name, double fallback) {
  const auto found = options.find(std::string(name));
  return found == options.end() ? fallback : found->second;
}

const std::vector<OptimizerKind>& kinds() {
  static const std::vector<OptimizerKind> table = {
      {"sgd", "sgd", {"nesterov", "maximize"}, {"momentum", "dampening", "weight_decay"}, {}},
      {"adam", "adam", {"amsgrad", "maximize"}, {"beta1", "beta2", "eps", "weight_decay"}, {{"decoupled", false}}},
      {"adamw", "adam", {"amsgrad", "maximize"}, {"beta1", "beta2", "eps", "weight_decay"}, {{"decoupled", true}}},
  };
  return table;
}

const OptimizerKind& kind_of(const Optimizer& optimizer) {
  std::string known;
  for (const OptimizerKind& k : kinds()) {
    if (k.kind == optimizer.kind) return k;
    known += (known.empty() ? "" : ", ") + std::string(k.kind);
  }
  throw UserError("expected an optimizer of kind " + known + ", found '" + optimizer.kind + "'");
}

Attributes attributes_of(const OptimizerKind& kind, const ParameterGroup& group) {
  Attributes attributes;
  for (const auto& [name, value] : group.options) {
    if (name == "lr" || name == kClipMaxNorm || name == kClipNormType) continue;
    if (std::find(kind.flags.begin(), kind.flags.end(), name) != kind.flags.end())
      attributes.set(name, value != 0);
    else if (std::find(kind.numbers.begin(), kind.numbers.end(), name) != kind.numbers.end())
      attributes.set(name, value);
    else
      throw UserError("the optimizer '" + std::string(kind.kind) + "' has no option '" + name + "'");
  }
  for (const auto& [name, value] : kind.fixed) attributes.set(name, value);
  return attributes;
}

/// A variadic input of an update operator that is optimizer state: what checkpoints append to the parameter's name, and the option without
/// which there is no such state.
struct StateInput {
  std::string_view input, suffix, option;
};

const StateInput* state_input(std::string_view input) {
  static constexpr StateInput kTable[] = {
      {"momentum_buffers", "-momentum", "momentum"}, {"m", "-m", {}}, {"v", "-v", {}}, {"max_v", "-max_v", "amsgrad"}};
  for (const StateInput& s : kTable)
    if (s.input == input) return &s;
  return nullptr;
}

ValueId hyper(Graph& graph, const std::string& name, DType dtype) {
  const ValueId known = graph.find(name);
  if (known != kNone) {
    if (graph.value(known).kind != ValueKind::hyper)
      throw UserError("the name '" + name + "' belongs to the training loop: give the graph's " + graph.type(known).to_string() +
                      " of this name another");
    return known;
  }
  return graph.add_value(name, ValueKind::hyper, {dtype, {}});
}

void add_update(Graph& graph, const OptimizerKind& kind, const ParameterGroup& group, int index, const std::vector<ValueId>& parameters,
                const std::unordered_map<ValueId, ValueId>& gradient_of) {
  const OpDef& op = get_op(kind.op);
  std::vector<ValueId> inputs;
  for (const InputSpec& spec : op.inputs) {
    if (spec.variadic) {
      const StateInput* state = state_input(spec.name);
      const bool absent = state && !state->option.empty() && option(group.options, state->option, 0) == 0;
      for (ValueId p : parameters) {
        if (absent)
          inputs.push_back(kNone);
        else if (state)
          inputs.push_back(graph.add_state(graph.value(p).name + std::string(state->suffix), graph.type(p)));
        else
          inputs.push_back(spec.mutated ? p : gradient_of.at(p));
      }
    } else if (spec.name == "lr") {
      inputs.push_back(hyper(graph, "lr." + std::to_string(index), DType::f64));
    } else {
      GRAVEN_CHECK(spec.name == "step", std::string(op.name) + " has an input '" + std::string(spec.name) + "' that no optimizer gives");
      inputs.push_back(hyper(graph, "step", DType::i64));
    }
  }
  graph.add_node(op, std::move(inputs), attributes_of(kind, group), {Origin{"optimizer", {}, 0}}, Phase::update);
}

void add_group(Graph& graph, const OptimizerKind& kind, const ParameterGroup& group, int index,
               const std::unordered_map<ValueId, ValueId>& gradient_of) {
  attributes_of(kind, group);  // an unknown option is an error even where nothing is to be updated
  for (DType dtype : kAllDTypes) {
    std::vector<ValueId> parameters;
    for (ValueId p : group.parameters)
      if (graph.type(p).dtype == dtype && gradient_of.count(p)) parameters.push_back(p);
    if (!parameters.empty()) add_update(graph, kind, group, index, parameters, gradient_of);
  }
}

/// Writes new running statistics back, where the frontend has not recorded that itself.
void assign_running_statistics(Graph& graph) {
  std::set<ValueId> assigned;
  for (const Node& n : graph.nodes)
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      if (is_mutated(n, i)) assigned.insert(n.inputs[i]);
  const std::size_t count = graph.nodes.size();
  for (std::size_t n = 0; n < count; ++n) {
    if (graph.nodes[n].op->name != "batch_norm_training") continue;
    constexpr std::size_t kRunning[][2] = {{3, 3}, {4, 4}};  // input (running mean, running variance), output that replaces it
    for (const auto& [input, output] : kRunning) {
      const Node& node = graph.nodes[n];
      if (node.inputs.size() <= input || node.outputs.size() <= output || node.inputs[input] == kNone) continue;
      const ValueId buffer = node.inputs[input];
      if (graph.value(buffer).kind != ValueKind::buffer || !assigned.insert(buffer).second) continue;
      graph.add_node(get_op("assign"), {buffer, node.outputs[output]}, {}, Origins(node.origins), Phase::update);
    }
  }
}

}  // namespace

void add_optimizer_updates(Graph& graph, const PassOptions&) {
  assign_running_statistics(graph);
  std::unordered_map<ValueId, ValueId> gradient_of;
  for (const Gradient& g : graph.gradients) gradient_of.emplace(g.parameter, g.value);
  int index = 0;
  for (const Optimizer& optimizer : std::vector<Optimizer>(graph.optimizers)) {
    const OptimizerKind& kind = kind_of(optimizer);
    for (const ParameterGroup& group : optimizer.groups) add_group(graph, kind, group, index++, gradient_of);
  }
  sort_by_phase(graph);
}

}  // namespace graven::ir
