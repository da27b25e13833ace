#include "codegen/plan/storage.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven::codegen {

namespace {

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
    case ir::ValueKind::sum:
      return Home::gradient;
  }
  return Home::arena;
}

}  // namespace

std::int64_t byte_count(const ir::TensorType& type) {
  std::int64_t count = static_cast<std::int64_t>(ir::size_of(type.dtype));
  for (const ir::Dim& d : type.shape)
    if (d.maximum() < 0 || __builtin_mul_overflow(count, d.maximum(), &count) ||
        count > std::numeric_limits<std::int64_t>::max() / 4)
      throw UserError("a tensor of type " + type.to_string() + " does not fit in memory");
  return count;
}

std::vector<GradientOf> parameter_gradients(const ir::Graph& graph) {
  std::vector<GradientOf> found;
  for (const ir::Node& node : graph.nodes) {
    if (node.phase != ir::Phase::update || !ir::is_update(*node.op)) continue;
    const ir::InputRange p = input_range(node, ir::InputRole::parameter);
    const ir::InputRange g = input_range(node, ir::InputRole::gradient);
    for (std::size_t i = 0; i < g.count; ++i)
      if (graph.value(node.inputs[p.begin + i]).kind == ir::ValueKind::parameter)
        found.push_back({node.inputs[g.begin + i], node.inputs[p.begin + i]});
  }
  return found;
}

Storage::Storage(const ir::Graph& graph, std::int64_t alignment, bool keep_results,
                 std::span<const ir::KernelCall* const> calls, ir::ByValue<std::int32_t> spaces)
    : root(graph.values.size()),
      home(graph.values.size()),
      output(graph.values.size(), -1),
      parameter(graph.values.size(), ir::kNone),
      bytes(graph.values.size()),
      pinned(graph.values.size(), false),
      left_out(graph.nodes.size(), false),
      space(std::move(spaces)) {
  take_over_variables(graph);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    home[v] = home_of(graph.values[v].kind);
    const std::int64_t size = byte_count(graph.values[v].type);
    bytes[v] = (size + alignment - 1) / alignment * alignment;
  }
  for (const ir::Node& node : graph.nodes) {
    if (node.phase == ir::Phase::prepare && !node.op->alias)
      for (const ir::ValueId v : node.outputs) home[at(v)] = Home::prepared;
  }
  std::vector<bool> has_sum(graph.values.size(), false);  // by parameter
  for (const ir::Gradient& g : graph.gradients)
    if (g.sum != ir::kNone) {
      parameter[at(g.sum)] = g.parameter;
      has_sum[at(g.parameter)] = true;
    }
  for (const GradientOf& g : parameter_gradients(graph)) {
    if (has_sum[at(g.parameter)]) continue;
    // A gradient in another shape stays in the arena; one that serves two parameters is the first one's.
    const ir::ValueId r = root[at(g.gradient)];
    if (home[at(r)] != Home::arena || graph.type(r).dtype != graph.type(g.parameter).dtype) continue;
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
  add_up_in_place(graph, calls);
  leave_copies_out(graph, calls);
  for (std::size_t v = 0; v < graph.values.size(); ++v) home[v] = home[at(root[v])];
}

/// Views are their base's memory, and what a variable is to hold is made in its memory, by an update or a copy
/// (ir/passes/insert_copies.cpp).
void Storage::take_over_variables(const ir::Graph& graph) {
  std::iota(root.begin(), root.end(), 0);
  const ir::ByValue<ir::ValueId> variable = ir::variable_of(graph);
  for (const ir::Node& node : graph.nodes) {
    if (node.op->alias) root[at(node.outputs[0])] = root[at(node.inputs[0])];
    if (const ir::ValueId of = node.is(ir::kCopy) ? variable(node.outputs[0]) : ir::kNone; of != ir::kNone)
      root[at(node.outputs[0])] = of;
    for (const auto& [input, output] : ir::donated_by(node))
      root[at(node.outputs[output])] = root[at(node.inputs[input])];
  }
  for (const ir::Donation& d : graph.donations)
    if (root[at(d.value)] != d.variable)
      throw UserError("the graph is past the pass insert_copies, and '" + graph.value(d.variable).name +
                      "' is to hold '" + graph.value(d.value).name + "', which is made elsewhere")
          .note("donate what a copy or an update makes, or emit the graph from an earlier stage");
}

/// A parameter that is used twice has a gradient of two terms. The one that their sum may overwrite is computed where
/// the gradient lies, instead of waiting in the arena, which would hold it through all of backward.
void Storage::add_up_in_place(const ir::Graph& graph, std::span<const ir::KernelCall* const> calls) {
  std::vector<ir::NodeId> maker(graph.values.size(), -1);
  std::vector<int> reads(graph.values.size(), 0);  // by root
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op->alias) continue;
    for (const ir::ValueId v : graph.nodes[n].inputs)
      if (v != ir::kNone) ++reads[at(root[at(v)])];
    for (const ir::ValueId v : graph.nodes[n].outputs) maker[at(v)] = static_cast<ir::NodeId>(n);
  }
  std::vector<ir::ValueId> moved(graph.values.size());
  std::iota(moved.begin(), moved.end(), 0);
  /// What is read by its last node alone, which writes its first result over it; kNone if there is none.
  const auto term = [&](ir::ValueId sum) {
    if (maker[at(sum)] < 0) return ir::kNone;
    const ir::Node& node = graph.nodes[at(maker[at(sum)])];
    if (node.outputs[0] != sum) return ir::kNone;
    for (const std::int32_t i : calls[at(maker[at(sum)])]->in_place) {
      if (node.inputs[at(i)] == ir::kNone) continue;
      const ir::ValueId v = root[at(node.inputs[at(i)])];
      if (home[at(v)] != Home::arena || pinned[at(v)] || reads[at(v)] != 1 || maker[at(v)] < 0) continue;
      if (space(v) != space(sum)) continue;
      if (graph.nodes[at(maker[at(v)])].phase != node.phase || graph.type(v).dtype != graph.type(sum).dtype) continue;
      if (byte_count(graph.type(v)) == byte_count(graph.type(sum))) return v;
    }
    return ir::kNone;
  };
  for (std::size_t r = 0; r < graph.values.size(); ++r) {
    if (home[r] != Home::gradient || at(root[r]) != r) continue;
    for (ir::ValueId v = term(static_cast<ir::ValueId>(r)); v != ir::kNone; v = term(v))
      moved[at(v)] = static_cast<ir::ValueId>(r);
  }
  for (ir::ValueId& r : root) r = moved[at(r)];  // aliases follow
}

void Storage::leave_copies_out(const ir::Graph& graph, std::span<const ir::KernelCall* const> calls) {
  struct Access {
    ir::NodeId made = -1;             // the node that computes it
    std::vector<ir::NodeId> readers;  // in order
  };
  std::vector<Access> access(graph.values.size());  // by root
  const ir::ByValue<ir::ValueId> variable = ir::variable_of(graph);
  std::vector<ir::NodeId> copies;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    if (node.is(ir::kCopy) && variable(node.outputs[0]) != ir::kNone) copies.push_back(static_cast<ir::NodeId>(n));
    for (const ir::ValueId v : node.inputs)
      if (v != ir::kNone) {
        std::vector<ir::NodeId>& readers = access[at(root[at(v)])].readers;
        if (readers.empty() || readers.back() != static_cast<ir::NodeId>(n))
          readers.push_back(static_cast<ir::NodeId>(n));
      }
    if (!node.op->alias)
      for (const ir::ValueId v : node.outputs) access[at(v)].made = static_cast<ir::NodeId>(n);
  }
  if (copies.empty()) return;
  std::vector<ir::ValueId> moved(graph.values.size());
  std::iota(moved.begin(), moved.end(), 0);
  for (const ir::NodeId n : copies) {
    const ir::Node& node = graph.nodes[at(n)];
    const ir::ValueId target = root[at(node.outputs[0])], value = node.inputs[0];
    const ir::NodeId made = access[at(value)].made;
    if (root[at(value)] == target) left_out[at(n)] = true;  // of what it holds anyway
    if (root[at(value)] != value || made < 0) continue;
    if (moved[at(value)] != value) continue;  // another variable has it: this one copies
    if (home[at(target)] != Home::parameter || home[at(value)] != Home::arena || pinned[at(value)]) continue;
    if (space(value) != space(target)) continue;
    const ir::Node& maker = graph.nodes[at(made)];
    if (maker.phase != node.phase) continue;
    // Whoever reads the old value does so before it is gone: the maker itself only where its kernel allows it.
    bool safe = true;
    for (const ir::NodeId reader : access[at(target)].readers) safe = safe && (reader <= made || reader > n);
    const ir::KernelCall& call = *calls[at(made)];
    const auto output =
        static_cast<std::int32_t>(std::find(maker.outputs.begin(), maker.outputs.end(), value) - maker.outputs.begin());
    for (std::size_t i = 0; i < maker.inputs.size() && safe; ++i) {
      if (maker.inputs[i] == ir::kNone || root[at(maker.inputs[i])] != target) continue;
      const auto input = static_cast<std::int32_t>(i);
      safe = output == 0 ? std::count(call.in_place.begin(), call.in_place.end(), input) > 0
                         : std::count(call.over.begin(), call.over.end(), std::pair(output, input)) > 0;
    }
    if (!safe) continue;
    moved[at(value)] = target;
    left_out[at(n)] = true;
  }
  for (ir::ValueId& r : root) r = moved[at(r)];  // aliases follow
}

}  // namespace graven::codegen
