// Clips the gradients of each optimizer group that has the option clip_grad_max_norm, before anything is updated: over all gradients of the group
// as one vector,
//
//   factor = min(max_norm / (norm + 1e-6), 1)          gradient <- gradient * factor
//
// with the norm of order clip_grad_norm_type (2 by default; infinity: the largest magnitude): torch.nn.utils.clip_grad_norm_. From here on the
// clipped gradient is the parameter's gradient, as .grad is after clip_grad_norm_. Gradients narrower than f32 are added up in f32.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "ir/diagnostic.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// Adds nodes behind the gradients, in the backward phase. They are named after parameters: another layer leaves these names as they are.
class Clipping {
 public:
  Clipping(Graph& graph, DType dtype, double order) : graph_(graph), dtype_(dtype), order_(order) {}

  /// What the gradient of that name adds to the norm, [1].
  void add(const std::string& name, ValueId gradient) {
    name_ = name + ".gradient_norm";
    const ValueId g = cast(gradient, dtype_);
    ValueId terms = order_ == 2 ? call("mul", {g, g}) : call("abs", {g});
    if (order_ != 1 && order_ != 2 && !largest()) terms = call("pow", {terms, number(order_)});
    parts_.push_back(call("reshape", {over_all_dimensions(terms)}, {{"shape", Shape{1}}}));
  }
  /// min(max_norm / (norm of all that was added + 1e-6), 1)
  ValueId factor(const std::string& name, double max_norm) {
    name_ = name;
    ValueId norm = over_all_dimensions(parts_.size() == 1 ? parts_[0] : call("cat", parts_, {{"dim", std::int64_t{0}}}));
    if (order_ == 2)
      norm = call("sqrt", {norm});
    else if (!largest() && order_ != 1)
      norm = call("pow", {norm, number(1 / order_)});
    return call("minimum", {call("div", {number(max_norm), call("add", {norm, number(1e-6)})}), number(1)});
  }
  ValueId scale(const std::string& name, ValueId gradient, ValueId factor) {
    name_ = name;
    return call("mul", {gradient, cast(factor, graph_.type(gradient).dtype)});
  }

 private:
  bool largest() const { return std::isinf(order_); }
  ValueId call(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return graph_.call(op, std::move(inputs), std::move(attributes), {Origin{"optimizer", {}, 0}}, Phase::backward, name_ + "." + std::string(op));
  }
  ValueId number(double value) { return call("full", {}, {{"shape", Shape{}}, {"value", value}, {"dtype", dtype_}}); }
  ValueId cast(ValueId v, DType dtype) { return graph_.type(v).dtype == dtype ? v : call("cast", {v}, {{"dtype", dtype}}); }
  ValueId over_all_dimensions(ValueId v) {
    Ints dims;
    for (std::size_t d = 0; d < graph_.type(v).shape.rank(); ++d) dims.push_back(static_cast<std::int64_t>(d));
    return dims.empty() ? v : call(largest() ? "amax" : "sum", {v}, {{"dims", dims}});
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
    throw UserError("an optimizer's option " + std::string(name) + ": expected a positive number, found " + std::to_string(found->second));
  return found->second;
}

void clip_group(Graph& graph, const ParameterGroup& group, std::size_t index, const std::unordered_map<ValueId, Gradient*>& gradient_of) {
  const double max_norm = option(group, kClipMaxNorm, std::numeric_limits<double>::infinity());
  const double order = option(group, kClipNormType, 2);
  if (std::isinf(max_norm)) return;
  std::vector<Gradient*> clipped;
  DType dtype = DType::f32;
  for (const ValueId p : group.parameters) {
    const auto found = gradient_of.find(p);
    // Of a gradient without elements there is nothing to clip, and no largest element.
    if (found == gradient_of.end() || graph.type(p).shape.numel() == Dim(0)) continue;
    clipped.push_back(found->second);
    if (graph.type(p).dtype == DType::f64) dtype = DType::f64;
  }
  if (clipped.empty()) return;
  Clipping clipping(graph, dtype, order);
  const auto name_of = [&](const Gradient* g) { return graph.value(g->parameter).name; };
  for (const Gradient* g : clipped) clipping.add(name_of(g), g->value);
  const ValueId factor = clipping.factor("clip." + std::to_string(index), max_norm);
  for (Gradient* g : clipped) {
    const ValueId before = g->value;
    g->value = clipping.scale(name_of(g) + ".clipped_gradient", before, factor);
    // The name "grad(p)" goes with what is the gradient now.
    const std::string name = "grad(" + name_of(g) + ")";
    if (graph.value(before).name != name) continue;
    graph.value(before).name = name_of(g) + ".unclipped_gradient";
    graph.value(g->value).name = name;
  }
}

}  // namespace

bool clips_gradients(const Graph& graph) {
  for (const Optimizer& o : graph.optimizers)
    for (const ParameterGroup& g : o.groups)
      if (g.options.count(std::string(kClipMaxNorm))) return true;
  return false;
}

void clip_gradients(Graph& graph, const PassOptions&) {
  std::unordered_map<ValueId, Gradient*> gradient_of;
  for (Gradient& g : graph.gradients) gradient_of.emplace(g.parameter, &g);
  std::size_t index = 0;  // groups are counted through all optimizers, as those of learning rates are
  for (const Optimizer& o : std::vector<Optimizer>(graph.optimizers))
    for (const ParameterGroup& g : o.groups) clip_group(graph, g, index++, gradient_of);
  sort_by_phase(graph);
  graph.compact();  // looks the names up anew
}

}  // namespace graven::ir
