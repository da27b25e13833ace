#include <algorithm>
#include <map>
#include <vector>

#include "codegen/plan/arena.h"
#include "codegen/plan/plan.h"
#include "codegen/plan/schedule.h"
#include "codegen/plan/storage.h"
#include "codegen/index.h"
#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

void verify_order(const ir::Graph& graph, const Plan& plan, const Storage& storage) {
  std::vector<std::int32_t> step_of(graph.nodes.size(), -1);
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    const ir::NodeId n = plan.steps[s].node;
    step_of[at(n)] = static_cast<std::int32_t>(s);
    GRAVEN_CHECK(s == 0 || graph.nodes[at(plan.steps[s - 1].node)].phase <= graph.nodes[at(n)].phase, "phases are out of order");
  }
  const auto before = dependencies(graph, storage);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const ir::NodeId b : before[n])
      GRAVEN_CHECK(step_of[at(b)] < step_of[n], "the order breaks a dependency of " + std::string(graph.nodes[n].op->name));
}

/// Sweeps over the steps: whatever lives is kept by offset, so only neighbours need comparing.
void verify_no_overlap(const Plan& plan) {
  std::vector<std::int32_t> starts, ends;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    GRAVEN_CHECK(b.first <= b.last && b.first >= 0 && at(b.last) < plan.steps.size(), b.name + " has no life");
    GRAVEN_CHECK(b.bytes >= 0 && b.offset >= 0 && b.offset + b.bytes <= plan.arena_bytes, b.name + " lies outside the arena");
    GRAVEN_CHECK(b.offset % plan.alignment == 0 && b.bytes % plan.alignment == 0, b.name + " is not aligned");
    if (b.bytes == 0) continue;
    starts.push_back(static_cast<std::int32_t>(i));
    ends.push_back(static_cast<std::int32_t>(i));
  }
  auto buffer = [&](std::int32_t i) -> const Buffer& { return plan.buffers[at(i)]; };
  std::sort(starts.begin(), starts.end(), [&](auto a, auto b) { return buffer(a).first < buffer(b).first; });
  std::sort(ends.begin(), ends.end(), [&](auto a, auto b) { return buffer(a).last < buffer(b).last; });
  std::map<std::int64_t, std::int32_t> alive;  // by offset
  std::size_t e = 0;
  for (const std::int32_t i : starts) {
    for (; buffer(ends[e]).last < buffer(i).first; ++e) alive.erase(buffer(ends[e]).offset);
    const auto [place, fresh] = alive.emplace(buffer(i).offset, i);
    GRAVEN_CHECK(fresh, buffer(i).name + " and " + buffer(place->second).name + " live at one time in one place");
    if (place != alive.begin()) {
      const Buffer& below = buffer(std::prev(place)->second);
      GRAVEN_CHECK(below.offset + below.bytes <= buffer(i).offset, buffer(i).name + " and " + below.name + " overlap while both live");
    }
    if (std::next(place) != alive.end()) {
      const Buffer& above = buffer(std::next(place)->second);
      GRAVEN_CHECK(buffer(i).offset + buffer(i).bytes <= above.offset, buffer(i).name + " and " + above.name + " overlap while both live");
    }
  }
}

/// Every value is in its buffer from its writing to its last reading, and nothing else is written there meanwhile.
void verify_values(const ir::Graph& graph, const Plan& plan, const Storage& storage) {
  std::vector<ir::ValueId> holds(plan.buffers.size(), ir::kNone);  // what each buffer contains at the moment
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    const ir::Node& node = graph.nodes[at(plan.steps[s].node)];
    const std::int32_t step = static_cast<std::int32_t>(s);
    for (const ir::ValueId v : node.inputs) {
      if (!storage.in_arena(v)) continue;
      const ir::ValueId r = root(plan, v);
      const std::int32_t b = plan.placements[at(r)].buffer;
      GRAVEN_CHECK(b >= 0, graph.value(v).name + " is read but has no buffer");
      GRAVEN_CHECK(holds[at(b)] == r, graph.value(v).name + " is read after its memory was given to another");
      GRAVEN_CHECK(plan.buffers[at(b)].first <= step && step <= plan.buffers[at(b)].last, graph.value(v).name + " is read outside its buffer's life");
    }
    if (node.op->alias) continue;
    for (const ir::ValueId v : node.outputs) {
      const std::int32_t b = plan.placements[at(v)].buffer;
      if (plan.placements[at(v)].home != Home::arena || b < 0) continue;
      GRAVEN_CHECK(plan.buffers[at(b)].bytes >= byte_count(graph.type(v)), graph.value(v).name + " does not fit its buffer");
      GRAVEN_CHECK(plan.buffers[at(b)].first <= step && step <= plan.buffers[at(b)].last,
                   graph.value(v).name + " is written outside its buffer's life");
      holds[at(b)] = v;
    }
    if (plan.steps[s].workspace >= 0) {
      const Buffer& b = plan.buffers[at(plan.steps[s].workspace)];
      GRAVEN_CHECK(b.first == step && b.last == step && b.bytes >= plan.steps[s].call.workspace_bytes, b.name + " is too small or at another step");
    }
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (!storage.pinned[v]) continue;
    const std::int32_t b = plan.placements[v].buffer;
    GRAVEN_CHECK(b >= 0 && holds[at(b)] == static_cast<ir::ValueId>(v), graph.values[v].name + " is a result, but its memory was given to another");
    GRAVEN_CHECK(at(plan.buffers[at(b)].last) + 1 == plan.steps.size(),
                 graph.values[v].name + " is a result, but its buffer does not live to the end");
  }
}

}  // namespace

void verify_plan(const ir::Graph& graph, const Plan& plan) {
  GRAVEN_CHECK(plan.placements.size() == graph.values.size(), "values without a placement");
  GRAVEN_CHECK(plan.steps.size() == graph.nodes.size(), "the plan leaves nodes out or repeats them");
  std::vector<const ir::KernelCall*> calls(graph.nodes.size(), nullptr);
  for (const Step& step : plan.steps) {
    GRAVEN_CHECK(step.node >= 0 && at(step.node) < graph.nodes.size() && !calls[at(step.node)], "a node is run twice or does not exist");
    calls[at(step.node)] = &step.call;
  }
  const Storage storage(graph, plan.alignment, plan.keeps_results, calls);
  verify_order(graph, plan, storage);
  verify_no_overlap(plan);
  verify_values(graph, plan, storage);
  std::int64_t peak = 0;
  for (const Buffer& b : plan.buffers) peak = std::max(peak, b.bytes == 0 ? 0 : b.offset + b.bytes);
  GRAVEN_CHECK(peak == plan.arena_bytes, "the stated peak is not the peak");
  GRAVEN_CHECK(arena_lower_bound(plan.buffers) == plan.lower_bound, "the stated bound is not the bound");
}

}  // namespace graven::codegen
