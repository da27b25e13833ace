// Clips gradients before anything is updated. First what build() asks for (Graph::clips), in its order: a norm over any
// parameters, or a largest magnitude of each element. Then the gradients of each optimizer group that has the option
// clip_grad_max_norm. A norm is that of all these gradients as one vector:
//
//   factor = min(max_norm / (norm + 1e-6), 1)          gradient <- gradient * factor
//
// of the order clip_grad_norm_type (2 by default; infinity: the largest magnitude): torch.nn.utils.clip_grad_norm_.
// From here on the clipped gradient is the parameter's gradient, as .grad is after clip_grad_norm_. Gradients narrower
// than f32 are added up in f32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "ir/diagnostic.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// Adds nodes behind the gradients, in the backward phase. They are named after parameters: another layer leaves these
/// names as they are.
class Clipping {
 public:
  Clipping(Graph& graph, DType dtype, double order) : graph_(graph), dtype_(dtype), order_(order) {}

  /// What the gradient of that name adds to the norm, [1].
  void add(const std::string& name, ValueId gradient) {
    name_ = name + ".gradient_norm";
    const ValueId g = cast(gradient, dtype_);
    ValueId terms = order_ == 2 ? call(kMul, {g, g}) : call(kAbs, {g});
    if (order_ != 1 && order_ != 2 && !largest()) terms = call(kPow, {terms, number(order_)});
    parts_.push_back(call(kReshape, {over_all_dimensions(terms)}, {{"shape", Shape{1}}}));
  }
  /// min(max_norm / (norm of all that was added + 1e-6), 1)
  ValueId factor(const std::string& name, double max_norm) {
    name_ = name;
    ValueId norm = over_all_dimensions(parts_.size() == 1 ? parts_[0] : call(kCat, parts_, {{"dim", std::int64_t{0}}}));
    if (order_ == 2)
      norm = call(kSqrt, {norm});
    else if (!largest() && order_ != 1)
      norm = call(kPow, {norm, number(1 / order_)});
    return call(kMinimum, {call(kDiv, {number(max_norm), call(kAdd, {norm, number(1e-6)})}), number(1)});
  }
  ValueId scale(const std::string& name, ValueId gradient, ValueId factor) {
    name_ = name;
    return call(kMul, {gradient, cast(factor, graph_.type(gradient).dtype)});
  }

 private:
  bool largest() const { return std::isinf(order_); }
  ValueId call(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return graph_.add_node(op, std::move(inputs), std::move(attributes), {Origin{"optimizer", {}, 0}}, Phase::backward,
                           name_ + "." + std::string(op.name))[0];
  }
  ValueId number(double value) { return call(kFull, {}, {{"shape", Shape{}}, {"value", value}, {"dtype", dtype_}}); }
  ValueId cast(ValueId v, DType dtype) {
    return graph_.type(v).dtype == dtype ? v : call(kCast, {v}, {{"dtype", dtype}});
  }
  ValueId over_all_dimensions(ValueId v) {
    Ints dims;
    for (std::size_t d = 0; d < graph_.type(v).shape.rank(); ++d) dims.push_back(static_cast<std::int64_t>(d));
    return dims.empty() ? v : call(largest() ? kAmax : kSum, {v}, {{"dims", dims}});
  }

  Graph& graph_;
  const DType dtype_;
  const double order_;
  std::string name_;
  std::vector<ValueId> parts_;
};

/// The option of that name: positive, a norm also 0. From a graph's file it may be anything.
double option(const ParameterGroup& group, std::string_view name, double fallback) {
  const auto found = group.options.find(std::string(name));
  if (found == group.options.end()) return fallback;
  if (!(found->second > 0) && !(found->second == 0 && name == kClipMaxNorm))
    throw UserError("an optimizer's option " + std::string(name) + ": expected a positive number, found " +
                    std::to_string(found->second));
  return found->second;
}

/// The gradients of a graph, by parameter, and what is made of them.
class Gradients {
 public:
  explicit Gradients(Graph& graph) : graph_(graph) {
    for (Gradient& g : graph.gradients) of_.emplace(g.parameter, &g);
  }

  void clip_norm(const std::string& name, const std::vector<ValueId>& parameters, double max_norm, double order) {
    const std::vector<Gradient*> clipped = of(parameters);
    if (clipped.empty() || std::isinf(max_norm)) return;
    const bool wide = std::any_of(clipped.begin(), clipped.end(),
                                  [&](const Gradient* g) { return graph_.type(g->value).dtype == DType::f64; });
    Clipping clipping(graph_, wide ? DType::f64 : DType::f32, order);
    for (const Gradient* g : clipped) clipping.add(name_of(*g), g->value);
    const ValueId factor = clipping.factor(name, max_norm);
    for (Gradient* g : clipped) replace(*g, clipping.scale(name_of(*g) + ".clipped_gradient", g->value, factor));
  }
  void clip_values(const std::vector<ValueId>& parameters, double most) {
    for (Gradient* g : of(parameters))
      replace(*g, graph_.add_node(kClamp, {g->value}, {{"min", -most}, {"max", most}}, {Origin{"optimizer", {}, 0}},
                                  Phase::backward, name_of(*g) + ".clipped_gradient.clamp")[0]);
  }

 private:
  /// Those of the parameters that have one. Of a gradient without elements there is nothing to clip, and no largest
  /// element.
  std::vector<Gradient*> of(const std::vector<ValueId>& parameters) const {
    std::vector<Gradient*> found;
    for (const ValueId p : parameters)
      if (const auto it = of_.find(p); it != of_.end() && graph_.type(p).shape.numel() != Dim(0))
        found.push_back(it->second);
    return found;
  }
  const std::string& name_of(const Gradient& g) const { return graph_.value(g.parameter).name; }
  /// The name "grad(p)" goes with what is the gradient now.
  void replace(Gradient& gradient, ValueId clipped) {
    std::string &before = graph_.value(gradient.value).name, &now = graph_.value(clipped).name;
    gradient.value = clipped;
    if (before != "grad(" + name_of(gradient) + ")") return;
    std::swap(before, now);
    if (clipped_once_.insert(gradient.parameter).second) before = name_of(gradient) + ".unclipped_gradient";
  }

  Graph& graph_;
  std::unordered_map<ValueId, Gradient*> of_;
  std::set<ValueId> clipped_once_;
};

}  // namespace

bool clips_gradients(const Graph& graph) {
  if (!graph.clips.empty()) return true;
  for (const Optimizer& o : graph.optimizers)
    for (const ParameterGroup& g : o.groups)
      if (g.options.count(std::string(kClipMaxNorm))) return true;
  return false;
}

void clip_gradients(Graph& graph, const PassOptions&) {
  Gradients gradients(graph);
  std::size_t number = 0, index = 0;
  for (const Clip& c : std::exchange(graph.clips, {}))
    if (c.kind == Clip::Kind::value)
      gradients.clip_values(c.parameters, c.limit);
    else
      gradients.clip_norm("clip_grad_norm." + std::to_string(number++), c.parameters, c.limit, c.norm_type);
  // Groups are counted through all optimizers, as those of learning rates are.
  for (const Optimizer& o : std::vector<Optimizer>(graph.optimizers))
    for (const ParameterGroup& g : o.groups)
      gradients.clip_norm("clip." + std::to_string(index++), g.parameters,
                          option(g, kClipMaxNorm, std::numeric_limits<double>::infinity()),
                          option(g, kClipNormType, 2));
  sort_by_phase(graph);
  graph.compact();  // looks the names up anew
}

}  // namespace graven::ir
