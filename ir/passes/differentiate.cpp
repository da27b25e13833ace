#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// Reverse-mode differentiation: walks the forward nodes backwards and lets each operator's entry add the nodes of its
/// gradient.
class Differentiation {
 public:
  explicit Differentiation(Graph& graph) : graph_(graph), uses_(graph), forward_count_(graph.nodes.size()) {}

  void run() {
    mark_wanted();
    mark_required();
    for (const Loss& loss : graph_.losses) seed(loss);
    for (std::size_t n = forward_count_; n-- > 0;) differentiate(n);
    for (ValueId p : graph_.parameters)
      if (wanted_(p))
        if (const ValueId gradient = total(p, origins_of(p)); gradient != kNone)
          graph_.gradients.push_back({p, gradient});
    drop_joined_pads();
    refuse_what_changed();
    name_gradients();
    // The gradients given to backward() are read; from here on the losses are results like any other.
    for (Loss& loss : graph_.losses) loss.gradient = kNone;
  }

 private:
  /// Gradients read what forward read. Of a variable that is changed in place after that, and before backward(), eager
  /// mode has kept no copy: an error there, and so here.
  void refuse_what_changed() {
    const std::vector<ValueId> memory = memory_roots(graph_, forward_count_);
    ByValue<bool> is_donated, changed;
    for (Donation& d : graph_.donations) is_donated[d.variable] = !std::exchange(d.behind_backward, false);
    for (std::size_t n = 0; n < forward_count_; ++n)
      for (const ValueId v : graph_.nodes[n].inputs)
        if (v != kNone && is_donated(memory[at(v)])) changed[memory[at(v)]] = true;
    // Rules may leave nodes behind that no gradient needs.
    ByValue<bool> needed;
    for (const Gradient& g : graph_.gradients) needed[g.value] = true;
    for (std::size_t n = graph_.nodes.size(); n-- > forward_count_;) {
      const Node& node = graph_.nodes[n];
      if (std::none_of(node.outputs.begin(), node.outputs.end(), std::cref(needed))) continue;
      for (ValueId v : node.inputs) {
        if (v == kNone) continue;
        needed[v] = true;
        const Value& of = graph_.value(memory[at(v)]);
        if (changed(memory[at(v)]))
          throw UserError("backward: '" + of.name + "' " + of.type.to_string() +
                          ", which a gradient needs, is changed in place after it is used, and before backward()")
              .note("change it behind backward(), or before it is used; or use a clone() of it")
              .at(node.origins);
      }
    }
  }

  /// The gradient of parameter "model.fc.weight" is called "grad(model.fc.weight)", whatever node makes it; and so are
  /// those of the operands of one operator that another made for each, which a number told apart, and those of slices
  /// that are put together.
  void name_gradients() {
    std::set<ValueId> named;
    for (const auto& [gradient, of] : called_after_) {
      const std::string name = "grad(" + graph_.value(of).name + ")";
      if (graph_.find(name) == kNone && named.insert(gradient).second) graph_.value(gradient).name = name;
    }
    for (const Gradient& g : graph_.gradients) {
      const std::string name = "grad(" + graph_.value(g.parameter).name + ")";
      if (graph_.value(g.value).kind == ValueKind::node && named.insert(g.value).second && graph_.find(name) == kNone)
        graph_.value(g.value).name = name;
    }
    graph_.compact();  // looks the names up anew
  }

  /// Trainable parameters; where there are optimizers, only those that one of them trains, or whose gradients are part
  /// of a norm.
  void mark_wanted() {
    if (graph_.optimizers.empty()) {
      for (ValueId p : graph_.parameters) wanted_[p] = true;
    } else {
      for (const Optimizer& o : graph_.optimizers)
        for (const ParameterGroup& g : o.groups)
          for (ValueId p : g.parameters) wanted_[p] = true;
      for (const Clip& c : graph_.clips)
        for (ValueId p : c.parameters) wanted_[p] = true;
    }
    for (ValueId p : graph_.parameters) {
      const Value& v = graph_.value(p);
      if (!v.trainable || v.kind != ValueKind::parameter || !is_floating(v.type.dtype)) wanted_[p] = false;
    }
  }
  /// Values that depend on a wanted parameter in a differentiable way.
  void mark_required() {
    required_ = wanted_;
    for (const Node& node : graph_.nodes) {
      if (node.is(kDetach)) continue;
      if (std::none_of(node.inputs.begin(), node.inputs.end(), std::cref(required_))) continue;
      for (ValueId v : node.outputs) required_[v] = is_floating(graph_.type(v).dtype);
    }
  }

  void seed(const Loss& loss) {
    if (!required_(loss.value)) {
      const Value& v = graph_.value(loss.value);
      throw UserError("backward() of '" + v.name + "': no parameter that is to be trained has part in it")
          .note("loss  " + v.type.to_string())
          .at(origins_of(loss.value));
    }
    const Value& v = graph_.value(loss.value);
    const Attributes ones{{"shape", v.type.shape}, {"value", 1.0}, {"dtype", v.type.dtype}};
    contributions_[loss.value].push_back(
        loss.gradient != kNone ? loss.gradient : add(kFull, {}, ones, origins_of(loss.value), "grad(" + v.name + ")"));
  }
  ValueId add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, Origins origins, std::string name) {
    return graph_.add_node(op, std::move(inputs), std::move(attributes), std::move(origins), Phase::backward, name)[0];
  }
  Origins origins_of(ValueId v) {
    if (const Node* const maker = uses_.maker(graph_, v)) return maker->origins;
    // A parameter: the module that owns it.
    const std::string& name = graph_.value(v).name;
    const std::size_t dot = name.rfind('.');
    return {Origin{dot == std::string::npos ? std::string() : name.substr(0, dot), {}, 0}};
  }

  /// A gradient that is zero but for a range of one dimension: a slice's.
  struct Slice {
    std::size_t part;  ///< among what flowed back into a value
    std::size_t dim;
    std::int64_t begin, end;
    ValueId inside;
  };
  std::optional<Slice> slice_of(std::size_t part, ValueId gradient) const {
    const auto found = pads_.find(gradient);
    if (found == pads_.end()) return std::nullopt;
    const Node& pad = graph_.nodes[found->second];
    const Ints& pads = pad.attributes.integers("pads");
    std::optional<std::size_t> dim;
    for (std::size_t i = 0; i < pads.size(); ++i) {
      if (pads[i] == 0) continue;
      if (pads[i] < 0 || (dim && *dim != i / 2)) return std::nullopt;
      dim = i / 2;
    }
    if (!dim || pad.attributes.number("value") != 0) return std::nullopt;
    const std::int64_t begin = pads[2 * *dim];
    return Slice{part, *dim, begin, begin + graph_.type(pad.inputs[0]).shape[*dim].value(), pad.inputs[0]};
  }
  /// Slices that lie side by side are put together instead of added up, each among zeros. What no other slice reads
  /// comes through as it is, its -0 too, as it does where there is one slice alone.
  void join_slices(ValueId v, std::vector<ValueId>& parts, const Origins& origins) {
    std::vector<Slice> slices;
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (const auto slice = slice_of(i, parts[i])) slices.push_back(*slice);
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return std::pair(a.dim, a.begin) < std::pair(b.dim, b.begin);
    });
    const std::string name = "grad(" + graph_.value(v).name + ")";
    const auto apart = [](const Slice& a, const Slice& b) { return a.dim != b.dim || a.end != b.begin; };
    for (auto first = slices.cbegin(), next = first; first != slices.cend(); first = next) {
      next = std::adjacent_find(first, slices.cend(), apart);
      if (next != slices.cend()) ++next;  // it found the last one
      if (next - first == 1) continue;
      const std::size_t dim = first->dim;
      const std::int64_t begin = first->begin, end = std::prev(next)->end;
      std::vector<ValueId> inside;
      for (auto slice = first; slice != next; ++slice) inside.push_back(slice->inside);
      ValueId joined = add(kCat, inside, {{"dim", static_cast<std::int64_t>(dim)}}, origins, name + ".cat");
      const Shape& shape = graph_.type(v).shape;
      if (const std::int64_t size = shape[dim].value(); begin != 0 || end != size) {
        Ints pads(2 * shape.rank(), 0);
        pads[2 * dim] = begin;
        pads[2 * dim + 1] = size - end;
        joined = add(kPad, {joined}, {{"pads", pads}}, origins, name + ".pad");
      }
      for (auto slice = first; slice != next; ++slice) joined_.push_back(std::exchange(parts[slice->part], kNone));
      parts[first->part] = joined;
    }
    parts.erase(std::remove(parts.begin(), parts.end(), kNone), parts.end());
    if (parts.size() == 1) called_after_.emplace_back(parts[0], v);
  }
  /// Nobody reads them now.
  void drop_joined_pads() {
    if (joined_.empty()) return;
    const Uses uses(graph_);
    std::unordered_set<std::size_t> dropped;
    for (const ValueId v : joined_)
      if (uses.readers(v).empty() && !uses.is_result(v)) dropped.insert(pads_.at(v));
    std::vector<Node> kept;
    kept.reserve(graph_.nodes.size());
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!dropped.count(n)) kept.push_back(std::move(graph_.nodes[n]));
    graph_.nodes = std::move(kept);
  }

  /// Where a value comes into a module from outside, and nothing outside reads it, what flows back out of the module is
  /// the module's own: so all of a network's blocks end alike, whatever stands in front of them. Nothing elsewhere.
  std::optional<Origin> entered(ValueId v, const Origins& maker) const {
    std::vector<std::string> modules;
    for (const NodeId n : uses_.readers(v)) modules.push_back(owner_of(graph_.nodes[at(n)].origins));
    const std::string module = common_module(modules);
    if (uses_.maker(v) < 0 || module.empty() || is_within(owner_of(maker), module)) return std::nullopt;
    for (const NodeId n : uses_.readers(v))  // its line, where the module itself reads it
      for (const Origin& o : graph_.nodes[at(n)].origins)
        if (o.module == module) return o;
    return Origin{module, {}, 0};
  }

  /// The sum of all that flowed back into `v`, in the order in which it came: from its last reader to its first.
  ValueId total(ValueId v, const Origins& origins) {
    std::vector<ValueId> parts = std::exchange(contributions_[v], {});
    if (parts.empty()) return kNone;
    if (parts.size() > 1) join_slices(v, parts, origins);
    if (parts.size() == 1) return parts[0];
    const std::optional<Origin> reader = entered(v, origins);
    const std::string name = "grad(" + (reader ? reader->module + ".x" : graph_.value(v).name) + ")";
    ValueId sum = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i)
      sum = add(kAdd, {sum, parts[i]}, {}, reader ? Origins{*reader} : origins, name);
    return sum;
  }

  /// Remembers gradients of operands that nodes of one operator made, for their names.
  void note_operands(std::size_t n, std::size_t before, const std::vector<ValueId>& gradients) {
    std::unordered_map<ValueId, const OpDef*> made;
    for (std::size_t i = before; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].outputs.size() == 1) made.emplace(graph_.nodes[i].outputs[0], graph_.nodes[i].op);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ValueId input = graph_.nodes[n].inputs[i];
      const auto own = made.find(gradients[i]);
      const std::vector<ValueId>& inputs = graph_.nodes[n].inputs;
      if (own == made.end() || uses_.readers(input).size() != 1 || std::count(inputs.begin(), inputs.end(), input) != 1)
        continue;
      for (std::size_t j = 0; j < gradients.size(); ++j)
        if (const auto other = made.find(gradients[j]);
            j != i && gradients[j] != gradients[i] && other != made.end() && other->second == own->second) {
          called_after_.emplace_back(gradients[i], input);
          break;
        }
    }
  }

  void differentiate(std::size_t n) {
    // By index: adding nodes moves the list.
    const OpDef& op = *graph_.nodes[n].op;
    bool flows = false;
    for (ValueId v : graph_.nodes[n].outputs) flows = flows || !contributions_(v).empty();
    if (!flows) return;
    std::vector<bool> needed;
    bool any = false;
    for (ValueId v : graph_.nodes[n].inputs) {
      needed.push_back(required_(v));
      any = any || needed.back();
    }
    const Origins origins = graph_.nodes[n].origins;
    std::vector<ValueId> gradients;
    for (ValueId v : std::vector<ValueId>(graph_.nodes[n].outputs)) gradients.push_back(total(v, origins));
    if (!any || op == kDetach) return;
    if (!op.gradient) {
      UserError error("has no gradient, and a loss depends on parameters through it");
      error.in(owner_of(origins), std::string(op.name));
      error.note("result  " + graph_.type(graph_.nodes[n].outputs[0]).to_string());
      error.note("detach() its inputs where no gradient is meant to flow");
      error.at(origins);
      throw error;
    }
    GradientBuilder builder(graph_, graph_.nodes[n], std::move(gradients), needed);
    const std::size_t before = graph_.nodes.size();
    op.gradient(builder);
    for (std::size_t i = before; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].is(kPad)) pads_.emplace(graph_.nodes[i].outputs[0], i);
    note_operands(n, before, builder.gradients());
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const ValueId gradient = builder.gradients()[i];
      if (!needed[i] || gradient == kNone) continue;
      const ValueId input = graph_.nodes[n].inputs[i];
      GRAVEN_CHECK(graph_.type(gradient) == graph_.type(input),
                   std::string(op.name) + ": the gradient of input " + std::to_string(i) + " is " +
                       graph_.type(gradient).to_string() + ", the input " + graph_.type(input).to_string());
      contributions_[input].push_back(gradient);
    }
  }

  Graph& graph_;
  const Uses uses_;  ///< before anything was added
  const std::size_t forward_count_;
  ByValue<bool> wanted_, required_;
  ByValue<std::vector<ValueId>> contributions_;
  std::unordered_map<ValueId, std::size_t> pads_;          ///< made by gradient rules: their nodes
  std::vector<std::pair<ValueId, ValueId>> called_after_;  ///< gradients, and what they are those of
  std::vector<ValueId> joined_;                            ///< of these, what is part of another gradient now
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
