// Clips gradients before anything is updated. First what build() asks for (Graph::clips), in its order: a norm over any
// parameters, or a largest magnitude of each element. Then the gradients of each optimizer group that has the option
// clip_grad_max_norm. A norm is that of all these gradients as one vector:
//
//   factor = min(max_norm / (norm + 1e-6), 1)          gradient <- gradient * factor
//
// of the order clip_grad_norm_type (2 by default; infinity: the largest magnitude): torch.nn.utils.clip_grad_norm_. The
// factor is one node over all gradients (clip_factor). From here on the clipped gradient is the parameter's gradient,
// as .grad is after clip_grad_norm_. Gradients narrower than f32 enter the norm as f32.
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

/// A node behind the gradients: in the backward phase, or, where that runs for parts of a batch, in that of the update.
/// It is named after parameters: another layer leaves these names as they are.
ValueId call(Graph& graph, const OpDef& op, std::vector<ValueId> inputs, Attributes attributes,
             const std::string& name) {
  const Phase phase = has_parts(graph) ? Phase::update : Phase::backward;
  return graph.add_node(op, std::move(inputs), std::move(attributes), {Origin{"optimizer", {}, 0}}, phase, name)[0];
}

ValueId cast(Graph& graph, ValueId v, DType dtype, const std::string& name) {
  return graph.type(v).dtype == dtype ? v : call(graph, kCast, {v}, {{"dtype", dtype}}, name + ".cast");
}

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
    const DType dtype = wide ? DType::f64 : DType::f32;
    std::vector<ValueId> all;
    for (const Gradient* g : clipped) all.push_back(cast(graph_, g->value, dtype, name_of(*g) + ".gradient"));
    const ValueId factor =
        call(graph_, kClipFactor, all, {{"max_norm", max_norm}, {"norm_type", order}}, name + ".factor");
    for (Gradient* g : clipped) {
      const std::string clipped_name = name_of(*g) + ".clipped_gradient";
      const ValueId own = cast(graph_, factor, graph_.type(g->value).dtype, clipped_name);
      replace(*g, call(graph_, kMul, {g->value, own}, {}, clipped_name + ".mul"));
    }
  }
  void clip_values(const std::vector<ValueId>& parameters, double most) {
    for (Gradient* g : of(parameters))
      replace(*g, call(graph_, kClamp, {g->value}, {{"min", -most}, {"max", most}},
                       name_of(*g) + ".clipped_gradient.clamp"));
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
