#include <algorithm>
#include <numeric>
#include <set>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// Reverse-mode differentiation: walks the forward nodes backwards and lets each operator's entry add the nodes of its
/// gradient.
class Differentiation {
 public:
  explicit Differentiation(Graph& graph) : graph_(graph), forward_count_(graph.nodes.size()) {}

  void run() {
    mark_wanted();
    mark_required();
    contributions_.resize(graph_.values.size());
    for (const Loss& loss : graph_.losses) seed(loss);
    for (std::size_t n = forward_count_; n-- > 0;) differentiate(n);
    for (ValueId p : graph_.parameters)
      if (at(wanted_, p))
        if (const ValueId gradient = total(p, origins_of(p)); gradient != kNone)
          graph_.gradients.push_back({p, gradient});
    refuse_what_changed();
    name_gradients();
    // The gradients given to backward() are read; from here on the losses are results like any other.
    for (Loss& loss : graph_.losses) loss.gradient = kNone;
  }

 private:
  /// Gradients must read what forward read. A buffer that forward has written since holds something else by then: an
  /// error, as where a tensor is changed in place before backward().
  void refuse_what_changed() const {
    const std::size_t never = graph_.nodes.size();
    std::vector<ValueId> memory(graph_.values.size());  // by value: whose memory it is
    std::iota(memory.begin(), memory.end(), 0);
    std::vector<std::size_t> first_read(graph_.values.size(), never);
    std::vector<bool> changed(graph_.values.size(), false);
    for (std::size_t n = 0; n < forward_count_; ++n) {
      const Node& node = graph_.nodes[n];
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNone) continue;
        const auto of = static_cast<std::size_t>(memory[static_cast<std::size_t>(node.inputs[i])]);
        if (is_mutated(node, i))
          changed[of] = first_read[of] < n;
        else
          first_read[of] = std::min(first_read[of], n);
      }
      if (node.op->alias)
        memory[static_cast<std::size_t>(node.outputs[0])] = memory[static_cast<std::size_t>(node.inputs[0])];
    }
    // Rules may leave nodes behind that no gradient needs.
    std::vector<bool> needed(graph_.values.size(), false);
    for (const Gradient& g : graph_.gradients) needed[static_cast<std::size_t>(g.value)] = true;
    for (std::size_t n = graph_.nodes.size(); n-- > forward_count_;) {
      const Node& node = graph_.nodes[n];
      if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return at(needed, v); })) continue;
      for (ValueId v : node.inputs) {
        if (v == kNone) continue;
        needed[static_cast<std::size_t>(v)] = true;
        const Value& of = graph_.value(memory[static_cast<std::size_t>(v)]);
        if (changed[static_cast<std::size_t>(memory[static_cast<std::size_t>(v)])])
          throw UserError("backward: '" + of.name + "' " + of.type.to_string() +
                          ", which a gradient needs, is changed in place after it is used")
              .note("use a clone() of it, or change it before it is used")
              .at(node.origins);
      }
    }
  }

  /// The gradient of parameter "model.fc.weight" is called "grad(model.fc.weight)", whatever node makes it.
  void name_gradients() {
    std::set<ValueId> named;
    for (const Gradient& g : graph_.gradients) {
      const std::string name = "grad(" + graph_.value(g.parameter).name + ")";
      if (graph_.value(g.value).kind == ValueKind::node && named.insert(g.value).second && graph_.find(name) == kNone)
        graph_.value(g.value).name = name;
    }
    graph_.compact();  // looks the names up anew
  }

  static bool at(const std::vector<bool>& flags, ValueId v) {
    return static_cast<std::size_t>(v) < flags.size() && flags[static_cast<std::size_t>(v)];
  }

  /// Trainable parameters; where there are optimizers, only those that one of them trains, or whose gradients are part
  /// of a norm.
  void mark_wanted() {
    wanted_.assign(graph_.values.size(), false);
    if (graph_.optimizers.empty()) {
      for (ValueId p : graph_.parameters) wanted_[static_cast<std::size_t>(p)] = true;
    } else {
      for (const Optimizer& o : graph_.optimizers)
        for (const ParameterGroup& g : o.groups)
          for (ValueId p : g.parameters) wanted_[static_cast<std::size_t>(p)] = true;
      for (const Clip& c : graph_.clips)
        for (ValueId p : c.parameters) wanted_[static_cast<std::size_t>(p)] = true;
    }
    for (ValueId p : graph_.parameters) {
      const Value& v = graph_.value(p);
      if (!v.trainable || v.kind != ValueKind::parameter || !is_floating(v.type.dtype))
        wanted_[static_cast<std::size_t>(p)] = false;
    }
  }
  /// Values that depend on a wanted parameter in a differentiable way.
  void mark_required() {
    required_ = wanted_;
    for (const Node& node : graph_.nodes) {
      if (node.op->name == "detach" || node.op->has_effect()) continue;
      bool any = false;
      for (ValueId v : node.inputs) any = any || (v != kNone && required_[static_cast<std::size_t>(v)]);
      if (!any) continue;
      for (ValueId v : node.outputs) required_[static_cast<std::size_t>(v)] = is_floating(graph_.type(v).dtype);
    }
  }

  void contribute(ValueId v, ValueId gradient) {
    if (contributions_.size() <= static_cast<std::size_t>(v)) contributions_.resize(graph_.values.size());
    contributions_[static_cast<std::size_t>(v)].push_back(gradient);
  }
  void seed(const Loss& loss) {
    if (!at(required_, loss.value)) {
      const Value& v = graph_.value(loss.value);
      throw UserError("backward() of '" + v.name + "': no parameter that is to be trained has part in it")
          .note("loss  " + v.type.to_string())
          .at(origins_of(loss.value));
    }
    if (loss.gradient != kNone) return contribute(loss.value, loss.gradient);
    const Value& v = graph_.value(loss.value);
    contribute(loss.value, graph_.call("full", {}, {{"shape", v.type.shape}, {"value", 1.0}, {"dtype", v.type.dtype}},
                                       origins_of(loss.value), Phase::backward, "grad(" + v.name + ")"));
  }
  Origins origins_of(ValueId v) {
    if (makers_.empty()) {
      makers_.assign(graph_.values.size(), -1);
      for (std::size_t n = 0; n < forward_count_; ++n)
        for (ValueId o : graph_.nodes[n].outputs) makers_[static_cast<std::size_t>(o)] = static_cast<NodeId>(n);
    }
    const NodeId maker = static_cast<std::size_t>(v) < makers_.size() ? makers_[static_cast<std::size_t>(v)] : -1;
    if (maker >= 0) return graph_.nodes[static_cast<std::size_t>(maker)].origins;
    // A parameter: the module that owns it.
    const std::string& name = graph_.value(v).name;
    const std::size_t dot = name.rfind('.');
    return {Origin{dot == std::string::npos ? std::string() : name.substr(0, dot), {}, 0}};
  }

  /// The sum of all that flowed back into `v`, in the order in which it came: from its last reader to its first.
  ValueId total(ValueId v, const Origins& origins) {
    if (static_cast<std::size_t>(v) >= contributions_.size()) return kNone;
    std::vector<ValueId> parts = std::move(contributions_[static_cast<std::size_t>(v)]);
    contributions_[static_cast<std::size_t>(v)].clear();
    if (parts.empty()) return kNone;
    ValueId sum = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i)
      sum = graph_.call("add", {sum, parts[i]}, {}, origins, Phase::backward, "grad(" + graph_.value(v).name + ")");
    return sum;
  }

  void differentiate(std::size_t n) {
    // By index: adding nodes moves the list.
    const OpDef& op = *graph_.nodes[n].op;
    if (op.has_effect()) return;
    bool flows = false;
    for (ValueId v : graph_.nodes[n].outputs)
      flows = flows || (static_cast<std::size_t>(v) < contributions_.size() &&
                        !contributions_[static_cast<std::size_t>(v)].empty());
    if (!flows) return;
    std::vector<bool> needed;
    bool any = false;
    for (ValueId v : graph_.nodes[n].inputs) {
      needed.push_back(v != kNone && at(required_, v));
      any = any || needed.back();
    }
    const Origins origins = graph_.nodes[n].origins;
    std::vector<ValueId> gradients;
    for (ValueId v : std::vector<ValueId>(graph_.nodes[n].outputs)) gradients.push_back(total(v, origins));
    if (!any || op.name == "detach") return;
    if (!op.gradient) {
      UserError error("has no gradient, and a loss depends on parameters through it");
      error.in(owner_of(origins), std::string(op.name));
      error.note("result  " + graph_.type(graph_.nodes[n].outputs[0]).to_string());
      error.note("detach() its inputs where no gradient is meant to flow");
      error.at(origins);
      throw error;
    }
    GradientBuilder builder(graph_, graph_.nodes[n], std::move(gradients), needed);
    op.gradient(builder);
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const ValueId gradient = builder.gradients()[i];
      if (!needed[i] || gradient == kNone) continue;
      const ValueId input = graph_.nodes[n].inputs[i];
      GRAVEN_CHECK(graph_.type(gradient) == graph_.type(input),
                   std::string(op.name) + ": the gradient of input " + std::to_string(i) + " is " +
                       graph_.type(gradient).to_string() + ", the input " + graph_.type(input).to_string());
      contribute(input, gradient);
    }
  }

  Graph& graph_;
  const std::size_t forward_count_;
  std::vector<bool> wanted_, required_;
  std::vector<std::vector<ValueId>> contributions_;
  std::vector<NodeId> makers_;
};

}  // namespace

void differentiate(Graph& graph, const PassOptions&) {
  Differentiation(graph).run();
  sort_by_phase(graph);
}

std::set<std::string> parameters_with_gradients(const Graph& graph) {
  const Graph* source = &graph;
  Graph differentiated;
  if (graph.gradients.empty() && !graph.losses.empty()) {
    differentiated = graph;
    PassOptions options;
    options.to = "differentiate";
    options.verify = false;
    finish_passes(differentiated, options);
    source = &differentiated;
  }
  std::set<std::string> names;
  for (const Gradient& g : source->gradients) names.insert(source->value(g.parameter).name);
  return names;
}

}  // namespace graven::ir
