#include "codegen/plan/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace graven::codegen {

namespace {

std::int64_t bytes_of(const ir::Graph& graph, ir::ValueId v) {
  return graph.type(v).shape.numel().maximum() * static_cast<std::int64_t>(ir::size_of(graph.type(v).dtype));
}

/// ", in device"
std::string in_space(const Plan& plan, std::int32_t space) {
  return fmt::format(", in {}", plan.target->passes.spaces[at(space)]);
}

/// ", on copies, behind 3, 7"; nothing where there is one stream.
std::string on_stream(const Plan& plan, const Step& step) {
  const auto& streams = plan.target->passes.streams;
  if (streams.size() == 1 || step.call.name.empty()) return {};
  return fmt::format(", on {}{}{}", streams[at(step.stream)], step.waits.empty() ? "" : ", behind ",
                     fmt::join(step.waits, ", "));
}

/// "arena 640 bytes ..., lower bound 640 (ratio 1.000), without reuse 900", a line a memory space where there are
/// several.
std::string arenas_text(const Plan& plan, const char* pattern) {
  const auto& spaces = plan.target->passes.spaces;
  std::string out;
  for (std::size_t s = 0; s < plan.arenas.size(); ++s) {
    const Arena& a = plan.arenas[s];
    const auto buffers =
        std::count_if(plan.buffers.begin(), plan.buffers.end(), [s](const Buffer& b) { return at(b.space) == s; });
    out += fmt::format(
        fmt::runtime(pattern), fmt::arg("of", spaces.size() > 1 ? fmt::format(" of {}", spaces[s]) : ""),
        fmt::arg("bytes", a.bytes), fmt::arg("buffers", buffers), fmt::arg("bound", a.lower_bound),
        fmt::arg("ratio", a.lower_bound ? static_cast<double>(a.bytes) / static_cast<double>(a.lower_bound) : 1.0),
        fmt::arg("without_reuse", a.without_reuse));
  }
  return out;
}

/// What of the work is done again, and what is kept: nothing of a graph that has no backward.
std::string recomputation_text(const ir::Graph& graph, const Plan& plan) {
  const std::int64_t kept = kept_bytes(graph, plan);
  if (kept == 0) return {};
  std::string out = fmt::format("kept for backward {} bytes", kept);
  if (const std::int64_t budget = graph.count(ir::kMemoryBudget); budget > 0)
    out += fmt::format(", memory budget {} bytes", budget);
  if (const Recomputation again = recomputation_of(graph, plan); again.steps > 0)
    out += fmt::format("; recomputed: {} steps, {:.3f} MFLOP and {:.3f} MB, {:.1f}% longer by estimate", again.steps,
                       again.flops * 1e-6, again.bytes * 1e-6, again.slowdown * 100);
  return out + "\n";
}

}  // namespace

Recomputation recomputation_of(const ir::Graph& graph, const Plan& plan) {
  Recomputation again;
  double all = 0, own = 0;
  for (const Step& step : plan.steps) {
    const double seconds = ir::seconds_of(step.cost);
    all += seconds;
    if (const ir::Node& n = graph.nodes[at(step.node)]; !n.recomputes || n.is(ir::kGatherShards)) continue;
    own += seconds;
    if (!step.call.name.empty()) ++again.steps;
    again.flops += step.cost.flops;
    again.bytes += step.cost.bytes;
  }
  if (all > own) again.slowdown = own / (all - own);
  return again;
}

std::int64_t kept_bytes(const ir::Graph& graph, const Plan& plan) {
  const auto phase = [&](std::int32_t step) { return graph.nodes[at(plan.steps[at(step)].node)].phase; };
  std::int64_t bytes = 0;
  for (const Buffer& b : plan.buffers)
    if (phase(b.first) <= ir::Phase::forward && phase(b.last) == ir::Phase::backward) bytes += b.bytes;
  return bytes;
}

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
  std::string out = arenas_text(plan,
                                "arena{of} {bytes} bytes in {buffers} buffers, lower bound {bound} (ratio "
                                "{ratio:.3f}), without reuse {without_reuse}\n");
  out += fmt::format("parameters {} bytes ({} values), buffers {} bytes, optimizer state {} bytes\n", parameters,
                     values, buffers, states);
  out += fmt::format("{} steps, {:.3f} MFLOP and {:.3f} MB moved a call\n", plan.steps.size(), plan.flops * 1e-6,
                     plan.bytes * 1e-6);
  const auto& streams = plan.target->passes.streams;
  for (std::size_t t = 0; t < streams.size() && streams.size() > 1; ++t) {
    std::size_t steps = 0, waits = 0;
    for (const Step& step : plan.steps)
      if (at(step.stream) == t) ++steps, waits += step.waits.size();
    out += fmt::format("stream {}: {} steps, {} waits\n", streams[t], steps, waits);
  }
  return out + recomputation_text(graph, plan);
}

std::string memory_table(const ir::Graph& graph, const Plan& plan) {
  std::string out =
      arenas_text(plan, "arena{of} {bytes}  lower bound {bound}  ratio {ratio:.3f}  without reuse {without_reuse}\n");
  out += recomputation_text(graph, plan);
  out += fmt::format("{:>12} {:>12} {:>6} {:>6}  {}\n", "offset", "bytes", "first", "last", "buffer");
  for (const Buffer& b : plan.buffers) {
    std::string values;
    for (const ir::ValueId v : b.values)
      values += (values.empty() ? "" : ", ") + graph.value(v).name + " " + graph.type(v).to_string();
    if (plan.arenas.size() > 1) values += (values.empty() ? b.name : "") + in_space(plan, b.space);
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
                       step.call.name.empty() ? fmt::format("({}: no call)", node.op->name) : step.call.name,
                       values + on_stream(plan, step));
  }
  return out;
}

}  // namespace graven::codegen
