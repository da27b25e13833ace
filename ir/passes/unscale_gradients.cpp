// What a scaled loss needs behind its gradients (scale_losses.cpp): they are divided by the scale; each optimizer's
// step is skipped where one of its own gradients is not finite; and the scale learns from that (torch.amp.GradScaler).
//
//   u = g * (1 / grad_scaler-scale)                          what clipping and the update take
//   n = finite_step(u..., step, grad_scaler-skipped.0)       0, or how many steps the optimizer has made and this one
//   update_loss_scale(n, grad_scaler-scale, grad_scaler-growth_tracker)
//
// Updates of the step 0 change nothing. Gradients are looked at before they are unscaled, once, all of an optimizer's
// in one call. Sums over parts of a batch are unscaled already (accumulate_gradients.cpp).
#include <algorithm>
#include <map>
#include <set>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// 1 / scale, as PyTorch computes it: in double, rounded to f32.
ValueId reciprocal_of(Graph& graph, ValueId scale) {
  const Origins origins{Origin{"grad_scaler", {}, 0}};
  const auto call = [&](const OpDef& op, ValueId x, Attributes attributes, const char* name) {
    return graph.add_node(op, {x}, std::move(attributes), origins, Phase::backward, name)[0];
  };
  const ValueId wide = call(kCast, scale, {{"dtype", DType::f64}}, "grad_scaler.scale_in_double");
  const ValueId inverse = call(kReciprocal, wide, {}, "grad_scaler.inverse_in_double");
  return call(kCast, inverse, {{"dtype", DType::f32}}, "grad_scaler.inverse_scale");
}

}  // namespace

ValueId finite_step_of(const Graph& graph, std::size_t index) {
  const ValueId skipped = graph.find(std::string(kSkippedState) + std::to_string(index));
  if (skipped == kNone) return kNone;
  for (const Node& node : graph.nodes)
    if (node.is(kFiniteStep) && node.inputs[input_range(node, InputRole::kept).begin] == skipped)
      return node.outputs[0];
  return kNone;
}

void unscale_gradients(Graph& graph, const PassOptions&) {
  const ValueId scale = loss_scale(graph), step = graph.add_hyper(kStepName, DType::i64);
  if (scale == kNone)
    throw UserError("the graph " + graph.name + " asks for a scale of its losses, and is past the pass scale_losses");
  const Origins origins{Origin{"grad_scaler", {}, 0}};
  const bool unscaled =
      std::any_of(graph.gradients.begin(), graph.gradients.end(), [](const Gradient& g) { return g.sum != kNone; });
  if (!unscaled) {
    const ValueId inverse = reciprocal_of(graph, scale);
    for (Gradient& g : graph.gradients) {
      const std::string parameter = graph.value(g.parameter).name;
      const DType dtype = graph.type(g.value).dtype;
      const ValueId own = dtype == DType::f32 ? inverse
                                              : graph.add_node(kCast, {inverse}, {{"dtype", dtype}}, origins,
                                                               Phase::backward, parameter + ".inverse_scale")[0];
      const ValueId product =
          graph.add_node(kMul, {g.value, own}, {}, origins, Phase::backward, parameter + ".scaled_gradient")[0];
      if (graph.value(g.value).name == "grad(" + parameter + ")") graph.swap_names(g.value, product);
      g.value = product;
    }
  }
  std::map<ValueId, ValueId> gradient_of;
  for (const Gradient& g : graph.gradients) gradient_of.emplace(g.parameter, g.value);
  std::vector<ValueId> steps;
  for (std::size_t o = 0; o < graph.optimizers.size(); ++o) {
    std::vector<ValueId> inputs;
    for (const ParameterGroup& group : graph.optimizers[o].groups)
      for (const ValueId p : group.parameters)
        if (const auto known = gradient_of.find(p); known != gradient_of.end()) inputs.push_back(known->second);
    if (inputs.empty()) continue;
    for (const ValueId v : inputs)
      if (graph.type(v).dtype != graph.type(inputs[0]).dtype)
        throw UserError("the optimizer " + graph.optimizers[o].kind + " of " + graph.name + " has parameters of " +
                        std::string(name(graph.type(inputs[0]).dtype)) + " and of " +
                        std::string(name(graph.type(v).dtype)) +
                        ": where losses are scaled, parameters of each dtype need an optimizer of their own");
    inputs.push_back(step);
    const ValueId skipped = graph.add_state(std::string(kSkippedState) + std::to_string(o), {DType::i64, {}});
    inputs.push_back(skipped);
    const std::vector<ValueId> made = graph.add_node(kFiniteStep, std::move(inputs), {}, origins, Phase::update,
                                                     "optimizer." + std::to_string(o) + ".finite_step");
    graph.donations.push_back({skipped, made[1]});
    steps.push_back(made[0]);
  }
  std::vector<ValueId> inputs = steps;
  const ValueId tracker = graph.add_state(std::string(kGrowthTrackerState), {DType::i64, {}});
  inputs.insert(inputs.end(), {scale, tracker});
  const auto interval = static_cast<std::int64_t>(graph.number(kScaleInterval).value_or(2000));
  const std::vector<ValueId> kept = graph.add_node(kUpdateLossScale, std::move(inputs),
                                                   {{"growth_factor", graph.number(kScaleGrowth).value_or(2)},
                                                    {"backoff_factor", graph.number(kScaleBackoff).value_or(0.5)},
                                                    {"growth_interval", interval}},
                                                   origins, Phase::update);
  graph.donations.push_back({scale, kept[0]});
  graph.donations.push_back({tracker, kept[1]});
  sort_by_phase(graph);
  graph.compact();
}

}  // namespace graven::ir
