#include "codegen/plan/storage.h"

#include <limits>

#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

std::size_t at(ir::ValueId v) { return static_cast<std::size_t>(v); }

Home home_of(ir::ValueKind kind) {
  switch (kind) {
    case ir::ValueKind::node:
      return Home::arena;
    case ir::ValueKind::input:
      return Home::input;
    case ir::ValueKind::parameter:
    case ir::ValueKind::buffer:
      return Home::parameter;
    case ir::ValueKind::constant:
      return Home::constant;
    case ir::ValueKind::state:
      return Home::state;
    case ir::ValueKind::hyper:
      return Home::hyper;
  }
  return Home::arena;
}

}  // namespace

std::int64_t byte_count(const ir::TensorType& type) {
  std::int64_t count = static_cast<std::int64_t>(ir::size_of(type.dtype));
  for (const ir::Dim& d : type.shape)
    if (d.maximum() < 0 || __builtin_mul_overflow(count, d.maximum(), &count) || count > std::numeric_limits<std::int64_t>::max() / 4)
      throw UserError("a tensor of type " + type.to_string() + " does not fit in memory");
  return count;
}

std::vector<GradientOf> parameter_gradients(const ir::Graph& graph) {
  std::vector<GradientOf> found;
  for (const ir::Node& node : graph.nodes) {
    if (node.phase != ir::Phase::update) continue;
    std::size_t parameters = node.op->inputs.size(), gradients = parameters;
    for (std::size_t s = 0; s < node.op->inputs.size(); ++s) {
      const ir::InputSpec& spec = node.op->inputs[s];
      if (!spec.variadic) continue;
      if (parameters == node.op->inputs.size() && spec.mutated)
        parameters = s;
      else if (gradients == node.op->inputs.size() && !spec.mutated)
        gradients = s;
    }
    if (parameters == node.op->inputs.size() || gradients == node.op->inputs.size()) continue;
    const ir::InputRange p = input_range(*node.op, node.inputs.size(), parameters), g = input_range(*node.op, node.inputs.size(), gradients);
    for (std::size_t i = 0; i < g.count; ++i)
      if (graph.value(node.inputs[p.begin + i]).kind == ir::ValueKind::parameter)
        found.push_back({node.inputs[g.begin + i], node.inputs[p.begin + i]});
  }
  return found;
}

Storage::Storage(const ir::Graph& graph, std::int64_t alignment, bool keep_results)
    : root(graph.values.size()),
      home(graph.values.size()),
      output(graph.values.size(), -1),
      parameter(graph.values.size(), ir::kNone),
      bytes(graph.values.size()),
      pinned(graph.values.size(), false) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    root[v] = static_cast<ir::ValueId>(v);
    home[v] = home_of(graph.values[v].kind);
    const std::int64_t size = byte_count(graph.values[v].type);
    bytes[v] = (size + alignment - 1) / alignment * alignment;
  }
  for (const ir::Node& node : graph.nodes) {
    if (node.op->alias) root[at(node.outputs[0])] = root[at(node.inputs[0])];
    if (node.phase == ir::Phase::prepare && !node.op->alias)
      for (const ir::ValueId v : node.outputs) home[at(v)] = Home::prepared;
  }
  for (const GradientOf& g : parameter_gradients(graph)) {
    // A gradient in another shape (or one that serves two parameters) stays in the arena.
    const ir::ValueId r = root[at(g.gradient)];
    if (home[at(r)] != Home::arena || parameter[at(r)] != ir::kNone || graph.type(r).dtype != graph.type(g.parameter).dtype) continue;
    if (byte_count(graph.type(r)) != byte_count(graph.type(g.parameter))) continue;
    home[at(r)] = Home::gradient;
    parameter[at(r)] = g.parameter;
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const ir::ValueId r = root[at(graph.outputs[i])];
    if (home[at(r)] != Home::arena) continue;
    if (keep_results) {
      pinned[at(r)] = true;
    } else {
      home[at(r)] = Home::output;
      output[at(r)] = static_cast<std::int32_t>(i);
    }
  }
  for (const ir::Loss& loss : graph.losses)
    if (const ir::ValueId r = root[at(loss.value)]; home[at(r)] == Home::arena) pinned[at(r)] = true;
  for (std::size_t v = 0; v < graph.values.size(); ++v) home[v] = home[at(root[v])];
}

}  // namespace graven::codegen
