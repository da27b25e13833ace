// Gives each optimizer group one update node over all of its parameters that have a gradient: one pass over the weights a step, whatever
// their number. State gets the names that checkpoints use: "<parameter>-momentum", "<parameter>-m", "<parameter>-v", "<parameter>-max_v".
// The learning rate is the hyper-parameter "lr.<group>", groups counted through all optimizers; "step" counts from 1.
//
// A parameter that no loss depends on is left alone, as PyTorch leaves a parameter whose .grad is None.
//
// New running statistics of batch_norm_training that nothing writes back are assigned to their buffers.
#include <algorithm>
#include <array>
#include <set>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// An option of a group and the attribute that it becomes; a group may leave out what has a default.
struct OptimizerKind {
  std::string_view kind;
  /// The operator for these options.
  std::string_view (*op)(const std::map<std::string, double>& options);
  std::vector<std::string_view> flags;                   ///< options that are booleans
  std::vector<std::string_view> numbers;                 ///< options that are numbers
  std::vector<std::pair<std::string_view, bool>> fixed;  ///< attributes that the kind itself sets
};

double option(const std::map<std::string, double>& options, std::string_view name, double fallback) {
  const auto found = options.find(std::string(name));
  return found == options.end() ? fallback : found->second;
}

const std::vector<OptimizerKind>& kinds() {
  static const std::vector<OptimizerKind> table = {
      {"sgd",
       [](const auto& o) -> std::string_view { return option(o, "momentum", 0) != 0 ? "sgd_momentum" : "sgd"; },
       {"nesterov", "maximize"},
       {"momentum", "dampening", "weight_decay"},
       {}},
      {"adam",
       [](const auto& o) -> std::string_view { return option(o, "amsgrad", 0) != 0 ? "adam_amsgrad" : "adam"; },
       {"amsgrad", "maximize"},
       {"beta1", "beta2", "eps", "weight_decay"},
       {{"decoupled", false}}},
      {"adamw",
       [](const auto& o) -> std::string_view { return option(o, "amsgrad", 0) != 0 ? "adam_amsgrad" : "adam"; },
       {"amsgrad", "maximize"},
       {"beta1", "beta2", "eps", "weight_decay"},
       {{"decoupled", true}}},
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

Attributes attributes_of(const OptimizerKind& kind, const OpDef& op, const ParameterGroup& group) {
  Attributes attributes;
  auto declared = [&](std::string_view name) {
    return std::any_of(op.attributes.begin(), op.attributes.end(), [&](const AttributeSpec& a) { return a.name == name; });
  };
  for (const auto& [name, value] : group.options) {
    if (name == "lr") continue;
    if (std::find(kind.flags.begin(), kind.flags.end(), name) != kind.flags.end()) {
      if (declared(name)) attributes.set(name, value != 0);
    } else if (std::find(kind.numbers.begin(), kind.numbers.end(), name) != kind.numbers.end()) {
      if (declared(name)) attributes.set(name, value);
    } else {
      throw UserError("the optimizer '" + std::string(kind.kind) + "' has no option '" + name + "'");
    }
  }
  for (const auto& [name, value] : kind.fixed)
    if (declared(name)) attributes.set(name, value);
  return attributes;
}

/// What checkpoints append to a parameter's name for the operator's variadic input `input`; empty when it is not optimizer state.
std::string_view state_suffix(std::string_view input) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kSuffixes = {
      {{"momentum", "-momentum"}, {"momentums", "-momentum"}, {"momentum_buffers", "-momentum"}, {"m", "-m"}, {"v", "-v"}, {"max_v", "-max_v"}}};
  for (const auto& [name, suffix] : kSuffixes)
    if (name == input) return suffix;
  return {};
}

ValueId hyper(Graph& graph, const std::string& name, DType dtype) {
  const ValueId known = graph.find(name);
  if (known != kNone) {
    GRAVEN_CHECK(graph.value(known).kind == ValueKind::hyper, "the name '" + name + "' belongs to a hyper-parameter");
    return known;
  }
  return graph.add_value(name, ValueKind::hyper, {dtype, {}});
}

void add_group(Graph& graph, const OptimizerKind& kind, const ParameterGroup& group, int index,
               const std::unordered_map<ValueId, ValueId>& gradient_of) {
  std::vector<ValueId> parameters;
  for (ValueId p : group.parameters)
    if (gradient_of.count(p)) parameters.push_back(p);
  if (parameters.empty()) return;
  const OpDef& op = get_op(kind.op(group.options));
  std::vector<ValueId> inputs;
  for (const InputSpec& spec : op.inputs) {
    if (spec.variadic) {
      const std::string_view suffix = state_suffix(spec.name);
      for (ValueId p : parameters) {
        if (!suffix.empty())
          inputs.push_back(graph.add_state(graph.value(p).name + std::string(suffix), graph.type(p)));
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
  graph.add_node(op, std::move(inputs), attributes_of(kind, op, group), {Origin{"optimizer", {}, 0}}, Phase::update);
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
