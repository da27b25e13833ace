// Scales the losses, so that gradients that are small numbers of half precision do not become zero
// (torch.amp.GradScaler; Micikevicius et al. 2018): what flows back into each loss is the scale, or the gradient that
// backward() was given times it. The losses themselves stay as they are.
//
//   loss l                    ->   s = full(1) * grad_scaler-scale     loss l from s
//
// The scale is a state: it changes from step to step (unscale_gradients.cpp).
#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

bool scales_losses(const Graph& graph) {
  const std::optional<double> first = graph.number(kLossScale);
  if (!first) return false;
  const auto at_least = [&](std::string_view key, double least, bool whole) {
    const double value = graph.number(key).value_or(least);
    if (!(value >= least) || (whole && value != static_cast<double>(static_cast<std::int64_t>(value))))
      throw UserError("config." + std::string(key) + ": expected " + (whole ? "an integer" : "a number") +
                      " of at least " + (whole ? "1" : "0") + ", found " + std::to_string(value));
  };
  if (!(*first > 0)) throw UserError("config." + std::string(kLossScale) + ": expected a positive number");
  at_least(kScaleGrowth, 0, false);
  at_least(kScaleBackoff, 0, false);
  at_least(kScaleInterval, 1, true);
  if (updates_in_backward(graph))
    throw UserError("the graph " + graph.name +
                    " asks for update_in_backward, and scales its losses: a step must not begin before all gradients "
                    "are known to be finite; leave one of the two out");
  return !graph.optimizers.empty();
}

ValueId loss_scale(const Graph& graph) {
  const ValueId v = graph.find(kLossScaleState);
  return v != kNone && graph.value(v).kind == ValueKind::state ? v : kNone;
}

void scale_losses(Graph& graph, const PassOptions&) {
  const ValueId scale = graph.add_state(std::string(kLossScaleState), {DType::f32, {}});
  for (Loss& loss : graph.losses) {
    const TensorType type = graph.type(loss.value);
    const std::string name = "grad(" + graph.value(loss.value).name + ")";
    const Origins origins{Origin{"grad_scaler", {}, 0}};
    const auto call = [&](const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, const char* part) {
      return graph.add_node(op, std::move(inputs), std::move(attributes), origins, Phase::backward, name + part)[0];
    };
    ValueId gradient = loss.gradient;
    if (gradient == kNone)
      gradient = call(kFull, {}, {{"shape", type.shape}, {"value", 1.0}, {"dtype", type.dtype}}, ".unscaled");
    const ValueId own = type.dtype == DType::f32 ? scale : call(kCast, {scale}, {{"dtype", type.dtype}}, ".scale");
    loss.gradient = call(kMul, {gradient, own}, {}, "");
  }
  sort_by_phase(graph);
}

}  // namespace graven::ir
