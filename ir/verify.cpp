#include "ir/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <functional>
#include <limits>
#include <map>
#include <unordered_set>

#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/op.h"
#include "ir/ops.h"
#include "ir/optimizer_kind.h"

namespace graven::ir {

namespace {

struct Violation {
  std::string text;
};

[[noreturn]] void broken(const std::string& text) { throw Violation{text}; }

/// The names of values, to find one that stands twice. There are as many after every pass: they lie in one piece of
/// memory, and only names of one hash are compared.
class NameTable {
 public:
  explicit NameTable(const std::vector<Value>& values)
      : values_(values), slots_(std::bit_ceil(2 * values.size() + 1)) {}

  /// False where a value that was inserted before has the name of value `i`.
  bool insert(std::size_t i) {
    const std::string& name = values_[i].name;
    const std::size_t hash = std::hash<std::string>()(name), mask = slots_.size() - 1;
    std::size_t s = hash & mask;
    for (; slots_[s].value != kNone; s = (s + 1) & mask)
      if (slots_[s].hash == hash && values_[at(slots_[s].value)].name == name) return false;
    slots_[s] = {hash, static_cast<ValueId>(i)};
    return true;
  }

 private:
  struct Slot {
    std::size_t hash = 0;
    ValueId value = kNone;
  };
  const std::vector<Value>& values_;
  std::vector<Slot> slots_;  ///< the first free one from a name's hash on is its own
};

class Verifier {
 public:
  Verifier(const Graph& graph, const VerifyOptions& options) : graph_(graph), options_(options) {}

  void run() {
    check_values();
    check_checkpoints();
    check_optimizers();
    check_lists();
    check_nodes();
    check_donations();
    check_symbols();
    check_updates_whole();
    check_results();
    check_stage();
  }

 private:
  std::string value_text(ValueId v) const { return "'" + graph_.value(v).name + "'"; }
  std::string node_text(std::size_t n) const {
    const Node& node = graph_.nodes[n];
    std::string text = "node " + std::to_string(n) + " (" + (node.op ? std::string(node.op->name) : "no operator");
    if (!node.outputs.empty() && in_range(node.outputs[0])) text += ", " + value_text(node.outputs[0]);
    return text + ")";
  }
  bool in_range(ValueId v) const { return v >= 0 && at(v) < graph_.values.size(); }
  /// `where` names a place, as a text or as a function that gives one: texts of places that are in order would be most
  /// of the work.
  void need_range(ValueId v, const auto& where) const {
    if (!in_range(v))
      broken(text_of(where) + " refers to value " + std::to_string(v) + " of " + std::to_string(graph_.values.size()));
  }
  void need_range_in_node(ValueId v, std::size_t n) const {
    need_range(v, [&] { return node_text(n); });
  }
  static std::string text_of(std::string_view text) { return std::string(text); }
  template <class Function>
    requires std::invocable<Function>
  static std::string text_of(const Function& f) {
    return f();
  }

  /// The type of value `v`.
  void check_type(const TensorType& type, ValueId v) {
    const auto fail = [&](const std::string& text) { broken(value_text(v) + text); };
    if (type.shape.rank() > kMaximumRank)
      fail(" has rank " + std::to_string(type.shape.rank()) + "; the maximum is " + std::to_string(kMaximumRank));
    std::int64_t bytes = static_cast<std::int64_t>(size_of(type.dtype));
    bool zero = false;
    for (const Dim& d : type.shape) {
      if (d.minimum() < 0) fail(" has a negative dimension: " + type.to_string());
      zero |= d.maximum() == 0;
    }
    for (const Dim& d : type.shape) {
      for (const Symbol& symbol : d.symbols()) {
        if (!is_symbol_name(symbol.name)) fail(": a symbol's name must be letters, digits and underscores");
        if (symbol.least < 1 || symbol.most < symbol.least)
          fail(": the symbol '" + symbol.name + "' has the range " + symbol.range());
        const Symbol& known = symbols_.emplace(symbol.name, symbol).first->second;
        if (!(known == symbol))
          fail(": the symbol '" + symbol.name + "' has two ranges, " + known.range() + " and " + symbol.range());
      }
      if (d.maximum() == std::numeric_limits<std::int64_t>::max() ||
          (!zero && __builtin_mul_overflow(bytes, d.maximum(), &bytes)))
        fail(" is too large: " + type.to_string());
    }
  }

  void check_values() {
    NameTable names(graph_.values);
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& v = graph_.values[i];
      if (v.name.empty()) broken("value " + std::to_string(i) + " has no name");
      if (std::any_of(v.name.begin(), v.name.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
        broken("the name of value " + std::to_string(i) + " holds a control character");
      if (!names.insert(i)) broken("two values are named '" + v.name + "'");
      check_type(v.type, static_cast<ValueId>(i));
    }
  }

  void check_lists() {
    listed_.assign(graph_.values.size(), false);
    auto check = [&](const std::vector<ValueId>& list, std::string_view what, auto allowed) {
      for (ValueId v : list) {
        need_range(v, [&] { return "the list of " + std::string(what); });
        if (!allowed(graph_.value(v).kind))
          broken(value_text(v) + " stands in the list of " + std::string(what) + ", but is of another kind");
        if (listed_[at(v)]) broken(value_text(v) + " stands twice in the list of " + std::string(what));
        listed_[at(v)] = true;
      }
    };
    check(graph_.inputs, "inputs", [](ValueKind k) { return k == ValueKind::input; });
    check(graph_.parameters, "parameters",
          [](ValueKind k) { return k == ValueKind::parameter || k == ValueKind::buffer; });
    check(graph_.states, "states", [](ValueKind k) { return k == ValueKind::state; });
    std::vector<ValueId> sums;
    for (const Gradient& g : graph_.gradients)
      if (g.sum != kNone) sums.push_back(g.sum);
    check(sums, "gradients' sums", [](ValueKind k) { return k == ValueKind::sum; });
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const ValueId v = static_cast<ValueId>(i);
      switch (graph_.values[i].kind) {
        case ValueKind::parameter:
        case ValueKind::buffer:
        case ValueKind::state:
        case ValueKind::sum:
          if (!graph_.type(v).shape.is_static())
            broken(value_text(v) + " is kept from call to call and has a symbolic shape");
          [[fallthrough]];
        case ValueKind::input:
          if (!listed_[i]) broken(value_text(v) + " is missing in the list of its kind");
          break;
        case ValueKind::constant: {
          const auto found = graph_.constants.find(v);
          if (found == graph_.constants.end() || !found->second)
            broken("the constant " + value_text(v) + " has no data");
          if (found->second->type != graph_.type(v))
            broken("the constant " + value_text(v) + " has data of type " + found->second->type.to_string());
          if (!graph_.type(v).shape.is_static()) broken("the constant " + value_text(v) + " has a symbolic shape");
          if (static_cast<std::int64_t>(found->second->bytes.size()) !=
              graph_.type(v).shape.numel().value() * static_cast<std::int64_t>(size_of(graph_.type(v).dtype)))
            broken("the constant " + value_text(v) + " has " + std::to_string(found->second->bytes.size()) + " bytes");
          break;
        }
        case ValueKind::hyper:
          check_hyper(v);
          break;
        case ValueKind::node:
          break;
      }
    }
    for (const auto& [v, data] : graph_.constants) {
      need_range(v, "the table of constants");
      if (graph_.value(v).kind != ValueKind::constant) broken(value_text(v) + " has constant data, but is no constant");
    }
  }

  void check_checkpoints() const {
    for (std::size_t i = 0; i < graph_.checkpoints.size(); ++i)
      if (graph_.checkpoints[i].within > i)
        broken("checkpoint " + std::to_string(i + 1) + " is within one that does not stand before it");
  }

  void check_optimizers() {
    for (const Optimizer& o : graph_.optimizers)
      for (const ParameterGroup& g : o.groups) {
        for (ValueId v : g.parameters) {
          need_range(v, "an optimizer");
          if (graph_.value(v).kind != ValueKind::parameter)
            broken("an optimizer has " + value_text(v) + ", which is no parameter");
          if (group_(v) != -1) broken("the parameter " + value_text(v) + " stands in two optimizer groups");
          group_[v] = static_cast<std::int64_t>(groups_.size());
        }
        groups_.emplace_back(&o, &g);
      }
  }

  void check_hyper(ValueId v) const {
    const std::string& name = graph_.value(v).name;
    const std::optional<std::size_t> group = group_of_rate(name);
    constexpr std::string_view kCounts[] = {kStepName, kSeedName, kPartName, kPartsName, kDrawName};
    if (!group && std::count(std::begin(kCounts), std::end(kCounts), name) == 0)
      broken("the training loop gives step, seed, part, parts, draw and the learning rates lr.0, lr.1, ..., but no " +
             value_text(v));
    const TensorType expected{group ? DType::f64 : DType::i64, {}};
    if (graph_.type(v) != expected)
      broken("the hyper-parameter " + value_text(v) + " is " + graph_.type(v).to_string() + ", not " +
             expected.to_string());
    if (group && *group >= groups_.size())
      broken(value_text(v) + " is the learning rate of group " + std::to_string(*group) + "; the optimizers have " +
             std::to_string(groups_.size()) + " groups");
  }

  /// The training loop's numbers go to kernels by value, to what asks for them and nothing else.
  void check_hypers_read(std::size_t n) const {
    const Node& node = graph_.nodes[n];
    const auto is_hyper = [&](ValueId v) { return v != kNone && graph_.value(v).kind == ValueKind::hyper; };
    if (std::none_of(node.inputs.begin(), node.inputs.end(), is_hyper)) return;
    for (std::size_t s = 0; s < node.op->inputs.size(); ++s) {
      if (node.op->inputs[s].number()) continue;
      const InputRange range = input_range(*node.op, node.inputs.size(), s);
      for (std::size_t i = range.begin; i < range.begin + range.count && i < node.inputs.size(); ++i)
        if (is_hyper(node.inputs[i]))
          broken(node_text(n) + " computes with the hyper-parameter " + value_text(node.inputs[i]));
    }
  }

  /// An update does what the group says that it belongs to: what reads the graph later relies on either.
  void check_update(std::size_t n) {
    const Node& node = graph_.nodes[n];
    if (node.phase < Phase::backward)
      broken(node_text(n) + " updates in the " + std::string(ir::name(node.phase)) + " phase");
    const auto input = [&](InputRole role) {
      const InputRange range = input_range(node, role);
      return range.begin < node.inputs.size() ? node.inputs[range.begin] : kNone;
    };
    const auto is_hyper = [&](ValueId v) { return v != kNone && graph_.value(v).kind == ValueKind::hyper; };
    const ValueId rate = input(InputRole::rate), step = input(InputRole::step);
    if (!is_hyper(rate) || !group_of_rate(graph_.value(rate).name))
      broken(node_text(n) + " has no learning rate of the training loop");
    if (!counts_steps_(step) && (!is_hyper(step) || graph_.value(step).name != kStepName))
      broken(node_text(n) + " has no step of the training loop, nor one that finite_step lets through");
    const std::size_t number = *group_of_rate(graph_.value(rate).name);  // check_hyper: there is this group
    const auto& [optimizer, group] = groups_[number];
    const OptimizerKind& kind = optimizer_kind(optimizer->kind);
    const OpDef& op = get_op(kind.op);
    if (node.op != &op && (node.op->rule == nullptr || node.op->rule != op.rule))
      broken(node_text(n) + " is no step of " + optimizer->kind + ", which its learning rate belongs to");
    for (const auto& [name, value] : update_attributes(kind, group->options)) {
      const Attribute* own = node.attributes.find(name);
      if (own == nullptr || *own != value)
        broken(node_text(n) + ": its option " + name + " is not its group's " + number_text(value));
    }
    // Whose value an input is need not say what is updated: build() may have given a parameter another's value.
    std::vector<ValueId> becomes(node.inputs.size(), kNone);
    for (const auto& [of, output] : donated_by(node)) becomes[of] = node.outputs[output];
    const InputRange params = input_range(node, InputRole::parameter);
    for (std::size_t i = params.begin; i < params.begin + params.count && i < node.inputs.size(); ++i) {
      const bool is_held = becomes[i] != kNone && variable_(becomes[i]) != kNone;
      const ValueId parameter = variable_(is_held ? becomes[i] : node.inputs[i]);
      if (parameter == kNone || group_(parameter) != static_cast<std::int64_t>(number))
        broken(node_text(n) + " updates " + (node.inputs[i] == kNone ? "nothing" : value_text(node.inputs[i])) +
               ", which is not in the group of its learning rate");
      if (updated_(parameter)) broken(value_text(parameter) + " is updated twice");
      updated_[parameter] = updates_ = true;
      check_states(n, kind, parameter, i - params.begin);
    }
  }

  /// Of the parameter that is the update's number `i`: checkpoints call its states after it.
  void check_states(std::size_t n, const OptimizerKind& kind, ValueId parameter, std::size_t i) {
    const Node& node = graph_.nodes[n];
    for (std::size_t s = 0; s < node.op->inputs.size(); ++s) {
      const OptimizerState* state = state_of(kind, node.op->inputs[s].name);
      const std::size_t place = input_range(*node.op, node.inputs.size(), s).begin + i;
      if (state == nullptr || place >= node.inputs.size() || node.inputs[place] == kNone) continue;
      const std::string name = name_of_state(graph_.value(parameter).name, state->name);
      const ValueId kept = variable_(node.inputs[place]);
      if (kept == kNone || graph_.value(kept).name != name)
        broken(node_text(n) + " keeps " + value_text(node.inputs[place]) + ", expected '" + name + "'");
      kept_[kept] = true;
    }
  }

  /// Where a graph updates, it updates every parameter that its optimizers have a gradient for, and has no states but
  /// those of its updates.
  void check_updates_whole() {
    for (const ValueId v : graph_.states)
      // The scale of losses is one before anything updates it.
      if (!kept_(v) && !(graph_.value(v).name == kLossScaleState && graph_.config.count(std::string(kLossScale))) &&
          graph_.stage != "trace")
        broken("the state " + value_text(v) + " belongs to no update");
    if (!updates_) return;
    for (const Gradient& g : graph_.gradients)
      if (in_range(g.parameter) && group_(g.parameter) != -1 && !updated_(g.parameter))
        broken(value_text(g.parameter) + " has a gradient and an optimizer, but no update");
  }

  static std::string number_text(const Attribute& value) {
    const double* number = std::get_if<double>(&value);
    return number != nullptr ? fmt::format("{}", *number) : std::get<bool>(value) ? "true" : "false";
  }

  /// Updates, and what has them fused into it.
  static bool has_rate(const Node& node) { return input_of(*node.op, InputRole::rate) < node.op->inputs.size(); }

  /// A call's inputs say what every symbol stands for.
  void check_symbols() {
    std::unordered_set<std::string> known;
    for (const ValueId v : graph_.inputs)
      for (const Dim& d : graph_.type(v).shape) {
        if (d.is_static()) continue;
        const std::optional<Dim::Linear> linear = d.linear();
        if (!linear || linear->coefficient < 1)
          broken("the input " + value_text(v) + " has the dimension " + d.to_string() +
                 ", which does not say what its symbols stand for");
        known.insert(linear->symbol.name);
      }
    const auto check = [&](const Shape& shape, const auto& where) {
      for (const Dim& d : shape)
        for (const Symbol& symbol : d.symbols())
          if (known.count(symbol.name) == 0)
            broken(text_of(where) + " has the symbol '" + symbol.name + "', which no input has");
    };
    for (std::size_t i = 0; i < graph_.values.size(); ++i)
      check(graph_.values[i].type.shape, [&] { return value_text(static_cast<ValueId>(i)); });
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      for (const auto& [key, value] : graph_.nodes[n].attributes)
        if (const Shape* shape = std::get_if<Shape>(&value)) check(*shape, [&] { return node_text(n); });
  }

  void check_nodes() {
    made_.assign(graph_.values.size(), false);
    made_in_.assign(graph_.values.size(), Phase::prepare);
    prepared_.assign(graph_.values.size(), false);
    Phase phase = Phase::prepare;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.op) broken(node_text(n) + " has no operator");
      if (node.phase < phase)
        broken(node_text(n) + " of the " + std::string(ir::name(node.phase)) + " phase stands after the " +
               std::string(ir::name(phase)) + " phase");
      phase = node.phase;
      if (phase == Phase::prepare && !depends_on_inputs_alone(node))
        broken(node_text(n) + " of the prepare phase depends on what changes from call to call");
      for (ValueId v : node.inputs) {
        if (v == kNone) continue;
        need_range_in_node(v, n);
        if (graph_.value(v).kind == ValueKind::node && !made_[at(v)])
          broken(node_text(n) + " reads " + value_text(v) + " before it is made");
        if (node.phase != Phase::prepare) continue;
        const ValueKind kind = graph_.value(v).kind;
        if (kind == ValueKind::input || kind == ValueKind::hyper || kind == ValueKind::state)
          broken(node_text(n) + " of the prepare phase reads " + value_text(v) + ", which changes from call to call");
        prepared_[at(v)] = true;
      }
      check_types(n);
      check_hypers_read(n);
      if (node.recomputes && node.phase != Phase::backward)
        broken(node_text(n) + " computes something again in the " + std::string(ir::name(node.phase)) + " phase");
      for (const Origin& o : node.origins)
        if (o.checkpoint > graph_.checkpoints.size())
          broken(node_text(n) + " comes from checkpoint " + std::to_string(o.checkpoint) + " of " +
                 std::to_string(graph_.checkpoints.size()));
      for (ValueId v : node.outputs) {
        need_range_in_node(v, n);
        if (graph_.value(v).kind != ValueKind::node)
          broken(node_text(n) + " makes " + value_text(v) + ", which is not a node's result");
        if (made_[at(v)]) broken(value_text(v) + " is made twice");
        made_[at(v)] = true;
        made_in_[at(v)] = node.phase;
      }
    }
  }

  /// What variables hold after the call, and who may say so.
  void check_donations() {
    std::unordered_set<ValueId> given;
    for (const Donation& d : graph_.donations) {
      need_range(d.variable, "the list of donations");
      need_made(d.value, "the list of donations", Phase::update);
      const ValueKind kind = graph_.value(d.variable).kind;
      if (kind != ValueKind::parameter && kind != ValueKind::buffer && kind != ValueKind::state &&
          kind != ValueKind::sum)
        broken(value_text(d.variable) + ", which is no parameter, buffer or state, is to hold " + value_text(d.value));
      if (graph_.type(d.variable) != graph_.type(d.value))
        broken(value_text(d.variable) + " is " + graph_.type(d.variable).to_string() + "; " + value_text(d.value) +
               ", which it is to hold, is " + graph_.type(d.value).to_string());
      if (!given.insert(d.variable).second) broken(value_text(d.variable) + " is to hold two values");
      if (prepared_[at(d.variable)])
        broken(value_text(d.variable) + " changes from call to call, and the prepare phase has read it");
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (const Node& node = graph_.nodes[n]; donated_inputs(*node.op, node.inputs).size() > node.outputs.size())
        broken(node_text(n) + " has " + std::to_string(node.outputs.size()) +
               " results, fewer than what it changes of its inputs");
    variable_ = variable_of(graph_);
    ByValue<bool> updated;
    ByValue<NodeId> collective{-1};
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (graph_.nodes[n].op->collective)
        for (const ValueId v : graph_.nodes[n].outputs)
          if (v != kNone) collective[v] = static_cast<NodeId>(n);
    for (const Node& node : graph_.nodes) {
      if (node.is(kFiniteStep)) counts_steps_[node.outputs[0]] = true;
      // What a scaled loss keeps belongs to no update.
      for (std::size_t i = 0; i < node.op->inputs.size(); ++i)
        if (node.op->inputs[i].role == InputRole::kept)
          for (std::size_t k = 0; k < input_range(*node.op, node.inputs.size(), i).count; ++k)
            if (const ValueId v = variable_(node.inputs[input_range(*node.op, node.inputs.size(), i).begin + k]);
                v != kNone)
              kept_[v] = true;
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (has_rate(node)) check_update(n);
      for (const ValueId v : node.inputs)
        if (v != kNone && collective(v) >= 0 && node.phase == graph_.nodes[at(collective(v))].phase)
          broken(node_text(n) + " reads " + value_text(v) + " in the phase whose end completes it");
      for (const auto& [input, output] : donated_by(node))
        if (variable_(node.outputs[output]) == kNone)
          broken(node_text(n) + " changes " + value_text(node.inputs[input]) + ", but nothing is to hold " +
                 value_text(node.outputs[output]));
        else
          updated[node.outputs[output]] = true;
    }
    for (const Donation& d : graph_.donations)
      if (graph_.value(d.variable).kind == ValueKind::state && !updated(d.value))
        broken("the state " + value_text(d.variable) + " is to hold " + value_text(d.value) +
               ", which no update makes");
  }

  void check_types(std::size_t n) {
    const Node& node = graph_.nodes[n];
    if (!options_.infer) return;
    Attributes attributes = node.attributes;
    std::vector<TensorType> results;
    try {
      results = infer(*node.op, graph_.types_of(node.inputs), attributes);
    } catch (const UserError& e) {
      broken(node_text(n) + ": " + e.message());
    }
    if (!(attributes == node.attributes))
      broken(node_text(n) + ": its attributes lack defaults, or are not in normal form");
    if (results.size() != node.outputs.size())
      broken(node_text(n) + " has " + std::to_string(node.outputs.size()) + " results; its operator gives " +
             std::to_string(results.size()));
    for (std::size_t i = 0; i < results.size(); ++i) {
      need_range_in_node(node.outputs[i], n);
      if (results[i] != graph_.type(node.outputs[i]))
        broken(node_text(n) + ": result " + value_text(node.outputs[i]) + " is " +
               graph_.type(node.outputs[i]).to_string() + "; its operator gives " + results[i].to_string());
    }
  }

  void need_made(ValueId v, std::string_view where, Phase last) {
    need_range(v, where);
    if (graph_.value(v).kind == ValueKind::hyper)
      broken(std::string(where) + " refers to the hyper-parameter " + value_text(v));
    if (graph_.value(v).kind == ValueKind::node && !made_[at(v)])
      broken(std::string(where) + " refers to " + value_text(v) + ", which nothing makes");
    if (const Phase phase = made_in_[at(v)]; phase > last)
      broken(std::string(where) + " refers to " + value_text(v) + ", which the " + std::string(ir::name(phase)) +
             " phase makes");
  }

  void check_results() {
    for (ValueId v : graph_.outputs) need_made(v, "the list of outputs", Phase::forward);
    for (const Loss& l : graph_.losses) {
      need_made(l.value, "the list of losses", Phase::forward);
      const TensorType& type = graph_.type(l.value);
      if (!is_floating(type.dtype))
        broken("the loss " + value_text(l.value) + " is " + type.to_string() + ", which has no gradient");
      if (l.gradient != kNone) {
        need_made(l.gradient, "the list of losses", Phase::backward);
        if (graph_.type(l.gradient) != type)
          broken("the loss " + value_text(l.value) + " is " + type.to_string() + ", its gradient " +
                 graph_.type(l.gradient).to_string());
      } else if (graph_.stage == "trace" && type.shape.numel() != Dim(1)) {
        broken("the loss " + value_text(l.value) + " is " + type.to_string() +
               "; without a gradient it must have one element");
      }
    }
    std::unordered_set<ValueId> differentiated;
    for (const Gradient& g : graph_.gradients) {
      need_range(g.parameter, "the list of gradients");
      need_made(g.value, "the list of gradients", g.sum == kNone ? Phase::backward : Phase::update);
      if (graph_.value(g.parameter).kind != ValueKind::parameter || !graph_.value(g.parameter).trainable)
        broken("the list of gradients has " + value_text(g.parameter) + ", which is no trainable parameter");
      if (graph_.type(g.parameter) != graph_.type(g.value))
        broken("the parameter " + value_text(g.parameter) + " is " + graph_.type(g.parameter).to_string() +
               ", its gradient " + graph_.type(g.value).to_string());
      if (!differentiated.insert(g.parameter).second)
        broken("the parameter " + value_text(g.parameter) + " has two gradients");
    }
    for (const Clip& c : graph_.clips) {
      if (!(c.limit >= 0) || !(c.norm_type > 0))
        broken("gradients are clipped to a negative limit, or by a norm whose order is not positive");
      for (ValueId v : c.parameters) {
        need_range(v, "the list of clips");
        if (graph_.value(v).kind != ValueKind::parameter)
          broken("the gradient of " + value_text(v) + ", which is no parameter, is clipped");
      }
    }
    check_tree(graph_.input_tree, graph_.inputs.size(), "input");
    check_tree(graph_.output_tree, graph_.outputs.size(), "output");
  }

  void check_tree(const Tree& tree, std::size_t leaves, const std::string& what) {
    if (tree.kind == Tree::Kind::leaf) {
      // A single leaf 0 is also what a graph has that was built without containers.
      if (tree.index < 0 || (at(tree.index) >= leaves && tree.index != 0))
        broken("the " + what + " tree refers to leaf " + std::to_string(tree.index) + " of " + std::to_string(leaves));
    }
    if (tree.kind == Tree::Kind::map && tree.keys.size() != tree.children.size())
      broken("the " + what + " tree has a map whose keys do not match");
    for (const Tree& child : tree.children) check_tree(child, leaves, what);
  }

  void check_stage() {
    if (graph_.stage != "trace") return;
    if (!graph_.gradients.empty()) broken("a traced graph has gradients");
    if (!graph_.states.empty()) broken("a traced graph has optimizer state");
    for (const Loss& loss : graph_.losses)
      for (const ValueId v : {loss.value, loss.gradient})
        if (v != kNone && made_in_[at(v)] == Phase::update)
          broken("the loss " + value_text(v) + " is made behind the update");
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      // What is done behind the update, to variables; it has neither the sizes nor the inputs of a call.
      const bool behind_update = node.phase == Phase::update && !graph_.optimizers.empty() && !is_random(node);
      if (node.phase != Phase::forward && !behind_update)
        broken(node_text(n) + " of a traced graph is of the " + std::string(ir::name(node.phase)) + " phase");
      if (behind_update)
        for (const ValueId v : node.inputs)
          if (v != kNone && (graph_.value(v).kind == ValueKind::input || !graph_.type(v).shape.numel().is_static()))
            broken(node_text(n) + " is done behind the update, and reads " + value_text(v) + ", which is of the call");
      for (const char* flag : {"packed", "channels_last"})
        if (node.attributes.flag_or(flag, false)) broken(node_text(n) + " of a traced graph is " + flag);
    }
  }

  const Graph& graph_;
  const VerifyOptions& options_;
  std::map<std::string, Symbol> symbols_;
  std::vector<std::pair<const Optimizer*, const ParameterGroup*>> groups_;  ///< of all optimizers, in order
  ByValue<std::int64_t> group_{-1};                                         ///< of a parameter: its number
  ByValue<ValueId> variable_{kNone};                                        ///< ir::variable_of
  ByValue<bool> counts_steps_;    ///< the number of a step, or 0 where it is skipped
  ByValue<bool> updated_, kept_;  ///< a parameter that an update has; a state that one keeps
  bool updates_ = false;
  std::vector<bool> listed_, made_, prepared_;
  std::vector<Phase> made_in_;
};

}  // namespace

std::optional<std::string> find_violation(const Graph& graph, const VerifyOptions& options) {
  try {
    Verifier(graph, options).run();
  } catch (const Violation& v) {
    return v.text;
  }
  return std::nullopt;
}

void verify(const Graph& graph) {
  const std::optional<std::string> violation = find_violation(graph);
  GRAVEN_CHECK(!violation, "after " + graph.stage + ": " + violation.value_or(std::string()));
}

bool is_symbol_name(std::string_view name) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= 256 && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

std::vector<Symbol> all_symbols(const Graph& graph) {
  std::map<std::string, Symbol> found;
  const auto add = [&](const Shape& shape) {
    for (const Dim& d : shape)
      for (const Symbol& symbol : d.symbols()) {
        const Symbol& known = found.emplace(symbol.name, symbol).first->second;
        if (!(known == symbol))
          throw UserError("the symbol '" + symbol.name + "' has two ranges, " + known.range() + " and " +
                          symbol.range());
      }
  };
  for (const Value& v : graph.values) add(v.type.shape);
  for (const Node& n : graph.nodes)
    for (const auto& [key, a] : n.attributes)
      if (const Shape* s = std::get_if<Shape>(&a)) add(*s);
  std::vector<Symbol> all;
  for (auto& [name, symbol] : found) all.push_back(std::move(symbol));
  return all;
}

}  // namespace graven::ir
