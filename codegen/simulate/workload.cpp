#include "codegen/simulate/workload.h"

#include <algorithm>

#include "ir/diagnostic.h"
#include "ir/op.h"
#include "ir/ops.h"
#include "ir/passes/passes.h"

namespace graven::codegen {

namespace {

double work_bytes(const ir::TensorType& type) {
  return static_cast<double>(type.shape.numel().maximum()) * static_cast<double>(ir::size_of(type.dtype));
}

/// What a backward step flows back through: the last of the positions that it has to do with, but none behind where
/// the flow has come to. A parameter that two layers share has two.
std::int32_t flow_to(std::vector<std::int32_t> candidates, std::int32_t flow) {
  std::int32_t best = -1;
  for (const std::int32_t c : candidates)
    if (c <= flow) best = std::max(best, c);
  return best >= 0 ? best : flow;
}

}  // namespace

Workload::Workload(const ir::Graph& the_graph, const Plan& the_plan)
    : graph(the_graph), plan(the_plan), root(ir::memory_roots(the_graph)) {
  if (graph.losses.empty() || graph.optimizers.empty())
    throw UserError("the graph " + graph.name + " does not train: it has no loss, or no optimizer");
  if (ir::updates_in_backward(graph))
    throw UserError("the graph " + graph.name +
                    " has been through update_in_backward: its gradients are used up within backward, and are never "
                    "sent")
        .note("expected  the graph at its trace, or emitted without update_in_backward");
  // ---- parameters
  ir::ByValue<std::int32_t> own{-1};
  for (const ir::ValueId v : graph.parameters) {
    own[v] = parameter_of[v] = static_cast<std::int32_t>(parameters.size());
    parameters.push_back({.value = v, .bytes = work_bytes(graph.type(v))});
  }
  for (const ir::ValueId v : graph.states) {
    // "model.fc.weight-m" is that parameter's.
    const std::string& name = graph.value(v).name;
    const ir::ValueId of = graph.find(name.substr(0, name.rfind('-')));
    if (of != ir::kNone && own(of) >= 0) parameters[at(own(of))].state_bytes += work_bytes(graph.type(v));
  }
  const auto parameter_read = [&](ir::ValueId v) { return v == ir::kNone ? -1 : parameter_of(v); };
  for (const ir::Node& node : graph.nodes) {
    if (node.phase == ir::Phase::update) break;
    std::int32_t only = -1;
    bool is_one = !node.inputs.empty() && !ir::is_random(node);
    for (const ir::ValueId v : node.inputs) {
      if (v == ir::kNone) continue;
      const std::int32_t p = parameter_read(v);
      is_one = is_one && p >= 0 && (only < 0 || only == p);
      only = p;
    }
    if (is_one && only >= 0)
      for (const ir::ValueId v : node.outputs) parameter_of[v] = only;
  }
  // ---- steps
  std::vector<std::int32_t> place(plan.steps.size(), -1);  // in its phase's list
  std::vector<std::int32_t> at_position(plan.steps.size(), 0);
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    const ir::Node& node = graph.nodes[at(plan.steps[s].node)];
    WorkStep step{.node = plan.steps[s].node,
                  .step = static_cast<std::int32_t>(s),
                  .cost = plan.steps[s].cost,
                  .is_call = !plan.steps[s].call.name.empty()};
    for (const ir::ValueId v : node.inputs) {
      const std::int32_t p = parameter_read(v);
      if (p >= 0 && std::count(step.parameters.begin(), step.parameters.end(), p) == 0) step.parameters.push_back(p);
    }
    std::vector<WorkStep>& list = node.phase <= ir::Phase::forward    ? forward
                                  : node.phase == ir::Phase::backward ? backward
                                                                      : update;
    place[s] = static_cast<std::int32_t>(list.size());
    list.push_back(std::move(step));
  }
  for (std::size_t i = 0; i < forward.size(); ++i) {
    WorkStep& step = forward[i];
    step.position = at_position[at(step.step)] = static_cast<std::int32_t>(i);
    for (const std::int32_t p : step.parameters) parameters[at(p)].readers.push_back(step.position);
    for (const ir::ValueId v : graph.nodes[at(step.node)].outputs)
      if (position(root[at(v)]) < 0) position[root[at(v)]] = step.position;
  }
  ir::ByValue<std::int32_t> gradient_of{-1};  // what ends in a parameter's gradient alone
  for (const ir::Gradient& g : graph.gradients)
    if (own(g.parameter) >= 0) gradient_of[g.value] = own(g.parameter);
  const ir::Uses uses(graph);
  for (std::size_t i = backward.size(); i-- > 0;) {
    const ir::Node& node = graph.nodes[at(backward[i].node)];
    for (const ir::ValueId v : node.outputs)
      if (const std::int32_t p = gradient_of(v); p >= 0)
        for (const ir::ValueId x : node.inputs)
          if (x != ir::kNone && uses.only_reader(x) >= 0 && graph.value(x).kind == ir::ValueKind::node &&
              uses.maker(graph, x)->phase == ir::Phase::backward && graph.type(x) == graph.type(v))
            gradient_of[x] = p;
  }
  std::int32_t flow = std::max<std::int32_t>(0, static_cast<std::int32_t>(forward.size()) - 1);
  for (WorkStep& step : backward) {
    const ir::Node& node = graph.nodes[at(step.node)];
    std::vector<std::int32_t> candidates;
    const auto add_readers = [&](std::int32_t p) {
      const std::vector<std::int32_t>& readers = parameters[at(p)].readers;
      candidates.insert(candidates.end(), readers.begin(), readers.end());
    };
    bool of_parameter = false;
    for (const ir::ValueId v : node.outputs)
      if (gradient_of(v) >= 0) add_readers(gradient_of(v)), of_parameter = true;
    for (const ir::ValueId v : node.inputs) {
      if (v == ir::kNone) continue;
      if (const std::int32_t p = parameter_read(v); p >= 0) add_readers(p);
      // What a gradient of a weight reads was made before the layer, and belongs to it all the same.
      if (!of_parameter && position(root[at(v)]) >= 0) candidates.push_back(position(root[at(v)]));
    }
    step.position = candidates.empty() ? flow : flow_to(std::move(candidates), flow);
    flow = std::min(flow, step.position);
    at_position[at(step.step)] = step.position;
  }
  for (WorkStep& step : update) step.position = 0;
  // ---- gradients
  ir::ByValue<std::int32_t> made_by;
  for (std::size_t i = 0; i < backward.size(); ++i)
    for (const ir::ValueId v : graph.nodes[at(backward[i].node)].outputs) made_by[v] = static_cast<std::int32_t>(i);
  for (const ir::Gradient& g : graph.gradients) {
    if (own(g.parameter) < 0) continue;
    const WorkGradient gradient{own(g.parameter), made_by(g.value), work_bytes(graph.type(g.value))};
    parameters[at(gradient.parameter)].gradient_bytes = gradient.bytes;
    gradients.push_back(gradient);
  }
  std::stable_sort(gradients.begin(), gradients.end(),
                   [](const WorkGradient& a, const WorkGradient& b) { return a.step < b.step; });
  // ---- what crosses
  ir::ByValue<std::size_t> known{0};  // from 1
  for (const WorkStep& step : forward)
    for (const ir::ValueId v : graph.nodes[at(step.node)].inputs) {
      const ir::ValueId r = v == ir::kNone ? v : root[at(v)];
      if (r == ir::kNone || position(r) < 0 || position(r) == step.position || parameter_of(r) >= 0) continue;
      if (known(r) == 0) {
        const ir::TensorType& type = graph.type(r);
        crossings.push_back({position(r), 0, work_bytes(type),
                             type.dtype == ir::DType::f32 || type.dtype == ir::DType::f64 ||
                                 type.dtype == ir::DType::bf16 || type.dtype == ir::DType::f16});
        known[r] = crossings.size();
      }
      Crossing& crossing = crossings[known(r) - 1];
      crossing.last_reader = std::max(crossing.last_reader, step.position);
    }
  // ---- the arena
  for (const codegen::Buffer& b : plan.buffers) {
    const WorkStep& first = [&]() -> const WorkStep& {
      const ir::Phase phase = graph.nodes[at(plan.steps[at(b.first)].node)].phase;
      const auto& list = phase <= ir::Phase::forward ? forward : phase == ir::Phase::backward ? backward : update;
      return list[at(place[at(b.first)])];
    }();
    const ir::Phase from = graph.nodes[at(first.node)].phase, to = graph.nodes[at(plan.steps[at(b.last)].node)].phase;
    buffers.push_back({.position = first.position,
                       .first = b.first,
                       .last = b.last,
                       .bytes = static_cast<double>(b.bytes),
                       .is_backward = from == ir::Phase::backward,
                       .is_kept = from <= ir::Phase::forward && to >= ir::Phase::backward,
                       .is_scratch = b.values.empty()});
  }
  touched.resize(plan.steps.size());
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    std::vector<std::int32_t>& own = touched[s];
    const ir::Node& node = graph.nodes[at(plan.steps[s].node)];
    if (plan.steps[s].call.name.empty()) continue;
    for (const auto* list : {&node.inputs, &node.outputs})
      for (const ir::ValueId v : *list) {
        if (v == ir::kNone) continue;
        const Placement& p = plan.placements[at(codegen::root(plan, v))];
        if (p.home == Home::arena && p.buffer >= 0) own.push_back(p.buffer);
      }
    if (plan.steps[s].workspace >= 0) own.push_back(plan.steps[s].workspace);
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
  }
  for (const ir::ValueId v : graph.inputs) input_bytes += work_bytes(graph.type(v));
  if (!graph.inputs.empty() && !graph.type(graph.inputs[0]).shape.empty())
    batch = std::max<std::int64_t>(graph.type(graph.inputs[0]).shape[0].maximum(), 1);
}

}  // namespace graven::codegen
