#include "ir/graph.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "ir/diagnostic.h"
#include "ir/op.h"

namespace graven::ir {

std::string_view name(Phase phase) {
  constexpr std::string_view kNames[] = {"prepare", "forward", "backward", "update"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::optional<std::size_t> group_of_rate(std::string_view name) {
  if (!name.starts_with(kRatePrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kRatePrefix.size());
  std::size_t group = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), group);
  // One way of writing each number: "lr.01" would be another value of the same rate.
  if (error != std::errc() || std::to_string(group) != digits) return std::nullopt;
  return group;
}

ValueId Graph::find(std::string_view name) const {
  const auto it = names_.find(std::string(name));
  return it == names_.end() ? kNone : it->second;
}

ValueId Graph::add_value(std::string value_name, ValueKind kind, TensorType type) {
  const ValueId id = static_cast<ValueId>(values.size());
  if (!names_.emplace(value_name, id).second) {
    // Numbered within the name, never from a global counter: adding a layer renames nothing elsewhere.
    int& count = name_counts_[value_name];
    if (count == 0) count = 1;
    std::string numbered;
    do numbered = value_name + "_" + std::to_string(++count);
    while (!names_.emplace(numbered, id).second);
    value_name = std::move(numbered);
  }
  values.push_back({std::move(value_name), kind, std::move(type), false});
  return id;
}

void Graph::swap_names(ValueId a, ValueId b) {
  std::swap(value(a).name, value(b).name);
  for (const ValueId v : {a, b}) names_[value(v).name] = v;
}

ValueId Graph::add_input(std::string value_name, TensorType type) {
  const ValueId id = add_value(std::move(value_name), ValueKind::input, std::move(type));
  inputs.push_back(id);
  return id;
}

ValueId Graph::add_parameter(std::string value_name, TensorType type, bool trainable) {
  const ValueId id = add_value(std::move(value_name), ValueKind::parameter, std::move(type));
  value(id).trainable = trainable;
  parameters.push_back(id);
  return id;
}

ValueId Graph::add_buffer(std::string value_name, TensorType type) {
  const ValueId id = add_value(std::move(value_name), ValueKind::buffer, std::move(type));
  parameters.push_back(id);
  return id;
}

ValueId Graph::add_constant(std::string value_name, std::shared_ptr<const TensorData> data) {
  const ValueId id = add_value(std::move(value_name), ValueKind::constant, data->type);
  constants.emplace(id, std::move(data));
  return id;
}

ValueId Graph::add_state(std::string value_name, TensorType type) {
  const ValueId id = add_value(std::move(value_name), ValueKind::state, std::move(type));
  states.push_back(id);
  return id;
}

ValueId Graph::add_hyper(std::string_view value_name, DType dtype) {
  const ValueId known = find(value_name);
  if (known == kNone) return add_value(std::string(value_name), ValueKind::hyper, {dtype, {}});
  if (value(known).kind != ValueKind::hyper)
    throw UserError("the name '" + std::string(value_name) + "' belongs to the training loop: give the graph's " +
                    type(known).to_string() + " of this name another");
  return known;
}

std::string Graph::naming_module(const std::vector<ValueId>& node_inputs, const std::string& module) const {
  if (module.empty()) return module;
  for (const ValueId v : node_inputs) {
    if (v == kNone) continue;
    const std::string& name = value(v).name;
    if (name.size() <= module.size() || name.compare(0, module.size(), module) != 0 || name[module.size()] != '.')
      continue;
    const std::size_t end = name.find('.', module.size() + 1);
    if (end != std::string::npos) return name.substr(0, end);
  }
  return module;
}

std::vector<const TensorType*> Graph::types_of(const std::vector<ValueId>& ids) const {
  std::vector<const TensorType*> types;
  types.reserve(ids.size());
  for (const ValueId v : ids) types.push_back(v == kNone ? nullptr : &type(v));
  return types;
}

std::vector<ValueId> Graph::add_node(const OpDef& op, std::vector<ValueId> node_inputs, Attributes attributes,
                                     Origins origins, Phase phase, std::string result_name, std::string_view called) {
  std::vector<TensorType> results;
  try {
    results = infer(op, types_of(node_inputs), attributes);
  } catch (UserError& e) {
    e.in(owner_of(origins), std::string(called.empty() ? op.name : called));
    const auto note = [&](const std::string& input, ValueId v) {
      if (v != kNone) e.note(input + "  " + type(v).to_string() + " from " + value(v).name);
    };
    for (std::size_t s = 0; s < op.inputs.size(); ++s) {
      const InputRange range = input_range(op, node_inputs.size(), s);
      for (std::size_t i = 0; i < range.count && range.begin + i < node_inputs.size(); ++i)
        note(std::string(op.inputs[s].name) + (op.inputs[s].variadic ? "[" + std::to_string(i) + "]" : ""),
             node_inputs[range.begin + i]);
    }
    e.at(origins);
    throw;
  }
  const std::vector<std::size_t> donated = donated_inputs(op, node_inputs);
  const std::size_t own = results.size() - donated.size();
  GRAVEN_CHECK(own == 1 || own == op.outputs.size(), std::string(op.name) + " does not name all of its outputs");
  if (result_name.empty()) {
    result_name = naming_module(node_inputs, owner_of(origins));
    result_name = result_name.empty() ? std::string(op.name) : result_name + "." + std::string(op.name);
  }
  Node node{&op, std::move(attributes), std::move(node_inputs), {}, phase, std::move(origins)};
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::string name = i >= own ? new_value_name(value(node.inputs[donated[i - own]]).name)
                       : i == 0 ? result_name
                                : result_name + "." + std::string(op.outputs[i]);
    node.outputs.push_back(add_value(std::move(name), ValueKind::node, std::move(results[i])));
  }
  nodes.push_back(std::move(node));
  return nodes.back().outputs;
}

ValueId Graph::call(std::string_view op, std::vector<ValueId> node_inputs, Attributes attributes, Origins origins,
                    Phase phase, std::string result_name) {
  return add_node(get_op(op), std::move(node_inputs), std::move(attributes), std::move(origins), phase,
                  std::move(result_name))
      .at(0);
}

void Graph::compact() {
  std::vector<ValueId> map(values.size(), kNone);
  std::vector<Value> kept;
  auto keep = [&](ValueId v) {
    if (v == kNone || map[at(v)] != kNone) return;
    map[at(v)] = static_cast<ValueId>(kept.size());
    kept.push_back(std::move(values[at(v)]));
  };
  auto keep_all = [&](const std::vector<ValueId>& list) {
    for (ValueId v : list) keep(v);
  };
  keep_all(inputs);
  keep_all(parameters);
  keep_all(states);
  for (const Node& n : nodes) {
    keep_all(n.inputs);
    keep_all(n.outputs);
  }
  keep_all(outputs);
  for (const Loss& l : losses) {
    keep(l.value);
    keep(l.gradient);
  }
  for (const Gradient& g : gradients) {
    keep(g.parameter);
    keep(g.value);
    keep(g.sum);
  }
  for (const Donation& d : donations) {
    keep(d.variable);
    keep(d.value);
  }
  for (const Clip& c : clips) keep_all(c.parameters);
  for (const Optimizer& o : optimizers)
    for (const ParameterGroup& g : o.groups) keep_all(g.parameters);

  auto renumber = [&](ValueId& v) {
    if (v != kNone) v = map[at(v)];
  };
  auto renumber_all = [&](std::vector<ValueId>& list) {
    for (ValueId& v : list) renumber(v);
  };
  renumber_all(inputs);
  renumber_all(parameters);
  renumber_all(states);
  renumber_all(outputs);
  for (Node& n : nodes) {
    renumber_all(n.inputs);
    renumber_all(n.outputs);
  }
  for (Loss& l : losses) {
    renumber(l.value);
    renumber(l.gradient);
  }
  for (Gradient& g : gradients) {
    renumber(g.parameter);
    renumber(g.value);
    renumber(g.sum);
  }
  for (Donation& d : donations) {
    renumber(d.variable);
    renumber(d.value);
  }
  for (Clip& c : clips) renumber_all(c.parameters);
  for (Optimizer& o : optimizers)
    for (ParameterGroup& g : o.groups) renumber_all(g.parameters);
  std::unordered_map<ValueId, std::shared_ptr<const TensorData>> kept_constants;
  for (auto& [v, data] : constants)
    if (map[at(v)] != kNone) kept_constants.emplace(map[at(v)], data);
  constants = std::move(kept_constants);
  values = std::move(kept);
  names_.clear();
  name_counts_.clear();
  for (std::size_t i = 0; i < values.size(); ++i) names_.emplace(values[i].name, static_cast<ValueId>(i));
}

bool Graph::flag(std::string_view key) const {
  const auto found = config.find(std::string(key));
  if (found == config.end()) return false;
  const bool* const on = std::get_if<bool>(&found->second);
  if (on == nullptr) throw UserError("config." + found->first + ": expected true or false");
  return *on;
}

std::optional<double> Graph::number(std::string_view key) const {
  const auto found = config.find(std::string(key));
  if (found == config.end()) return std::nullopt;
  const std::optional<double> own = number_of(found->second);
  if (!own || std::holds_alternative<bool>(found->second))
    throw UserError("config." + found->first + ": expected a number");
  return own;
}

std::int64_t Graph::count(std::string_view key) const {
  const auto found = config.find(std::string(key));
  if (found == config.end()) return 0;
  const std::int64_t* const number = std::get_if<std::int64_t>(&found->second);
  if (number == nullptr || *number < 0) throw UserError("config." + found->first + ": expected a number from 0");
  return *number;
}

std::string Graph::text(std::string_view key) const {
  const auto found = config.find(std::string(key));
  if (found == config.end()) return {};
  const std::string* const value = std::get_if<std::string>(&found->second);
  if (value == nullptr) throw UserError("config." + found->first + ": expected a text");
  return *value;
}

std::vector<Symbol> Graph::symbols() const {
  std::vector<Symbol> found;
  for (ValueId v : inputs)
    for (const Dim& d : type(v).shape)
      for (const Symbol& symbol : d.symbols())
        if (std::none_of(found.begin(), found.end(), [&](const Symbol& s) { return s.name == symbol.name; }))
          found.push_back(symbol);
  return found;
}

}  // namespace graven::ir
