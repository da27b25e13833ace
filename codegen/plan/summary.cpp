#include "codegen/plan/summary.h"

#include <fmt/format.h>

#include <map>

namespace graven::codegen {

namespace {

std::int64_t bytes_of(const ir::Graph& graph, ir::ValueId v) {
  return graph.type(v).shape.numel().maximum() * static_cast<std::int64_t>(ir::size_of(graph.type(v).dtype));
}

}  // namespace

std::string memory_summary(const ir::Graph& graph, const Plan& plan) {
  std::int64_t parameters = 0, values = 0, buffers = 0, states = 0;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const auto id = static_cast<ir::ValueId>(v);
    switch (graph.value(id).kind) {
      case ir::ValueKind::parameter:
        parameters += bytes_of(graph, id);
        values += graph.type(id).shape.numel().maximum();
        break;
      case ir::ValueKind::buffer:
        buffers += bytes_of(graph, id);
        break;
      case ir::ValueKind::state:
        states += bytes_of(graph, id);
        break;
      default:
        break;
    }
  }
  std::string out = fmt::format(
      "arena {} bytes in {} buffers, lower bound {} (ratio {:.3f}), without reuse {}\n", plan.arena_bytes,
      plan.buffers.size(), plan.lower_bound,
      plan.lower_bound ? static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) : 1.0,
      plan.without_reuse);
  out += fmt::format("parameters {} bytes ({} values), buffers {} bytes, optimizer state {} bytes\n", parameters,
                     values, buffers, states);
  out += fmt::format("{} steps, {:.3f} MFLOP and {:.3f} MB moved a call\n", plan.steps.size(), plan.flops * 1e-6,
                     plan.bytes * 1e-6);
  return out;
}

std::string memory_table(const ir::Graph& graph, const Plan& plan) {
  std::string out = fmt::format(
      "arena {}  lower bound {}  ratio {:.3f}  without reuse {}\n", plan.arena_bytes, plan.lower_bound,
      plan.lower_bound ? static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) : 1.0,
      plan.without_reuse);
  out += fmt::format("{:>12} {:>12} {:>6} {:>6}  {}\n", "offset", "bytes", "first", "last", "buffer");
  for (const Buffer& b : plan.buffers) {
    std::string values;
    for (const ir::ValueId v : b.values)
      values += (values.empty() ? "" : ", ") + graph.value(v).name + " " + graph.type(v).to_string();
    out += fmt::format("{:>12} {:>12} {:>6} {:>6}  {}\n", b.offset, b.bytes, b.first, b.last,
                       values.empty() ? b.name : values);
  }
  return out;
}

std::string order_table(const ir::Graph& graph, const Plan& plan) {
  std::string out = fmt::format("{:>6}  {:<9}  {:<28}  {}\n", "step", "phase", "kernel", "writes");
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const ir::Node& node = graph.nodes[at(step.node)];
    std::string values;
    for (const ir::ValueId v : node.outputs)
      values += (values.empty() ? "" : ", ") + graph.value(v).name + " " + graph.type(v).to_string();
    out += fmt::format("{:>6}  {:<9}  {:<28}  {}\n", i, ir::name(node.phase),
                       step.call.name.empty() ? fmt::format("({}: no call)", node.op->name) : step.call.name, values);
  }
  return out;
}

}  // namespace graven::codegen
