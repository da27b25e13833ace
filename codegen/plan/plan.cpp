#include "codegen/plan/plan.h"

#include <algorithm>

#include "codegen/plan/arena.h"
#include "codegen/plan/schedule.h"
#include "codegen/plan/storage.h"
#include "codegen/plan/streams.h"
#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

/// The buffers and which value lies in which, from the lives of the values in the order of execution.
class Allocation {
 public:
  Allocation(const ir::Graph& graph, const Storage& storage, const HappensBefore& happens_before, Plan& plan)
      : graph_(graph),
        storage_(storage),
        happens_before_(happens_before),
        plan_(plan),
        last_use_(graph.values.size(), -1),
        buffer_(graph.values.size(), -1) {
    const std::int32_t steps = static_cast<std::int32_t>(plan.steps.size());
    for (std::int32_t s = 0; s < steps; ++s)
      for (const ir::ValueId v : node(s).inputs)
        if (storage.in_arena(v)) last_use_[at(storage.root[at(v)])] = s, readers_[storage.root[at(v)]].push_back(s);
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (storage.pinned[v]) last_use_[v] = steps;  // one beyond: nothing takes over its memory
    keep_for_updates(steps);
    for (std::int32_t s = 0; s < steps; ++s) run(s);
    for (std::int32_t s = 0; s < steps; ++s) live_beside(s);
    for (Buffer& b : plan.buffers) b.last = std::min(b.last, steps - 1);
  }

  std::int32_t buffer(ir::ValueId root) const { return buffer_[at(root)]; }

 private:
  /// What the phases before have left for the update stays as it is: update() may be called once more.
  void keep_for_updates(std::int32_t steps) {
    std::vector<bool> is_made_there(graph_.values.size(), false);
    for (std::int32_t s = 0; s < steps; ++s)
      for (const ir::ValueId v : node(s).outputs) is_made_there[at(v)] = node(s).phase == ir::Phase::update;
    for (std::int32_t s = 0; s < steps; ++s)
      for (const ir::ValueId v : node(s).inputs)
        if (node(s).phase == ir::Phase::update && storage_.in_arena(v))
          if (const ir::ValueId r = storage_.root[at(v)]; !is_made_there[at(r)]) last_use_[at(r)] = steps;
  }

  const ir::Node& node(std::int32_t step) const { return graph_.nodes[at(plan_.steps[at(step)].node)]; }

  void run(std::int32_t s) {
    Step& step = plan_.steps[at(s)];
    const ir::Node& n = node(s);
    if (n.op->alias) return;
    for (std::size_t i = 0; i < n.outputs.size(); ++i) {
      const ir::ValueId v = n.outputs[i];
      if (!storage_.in_arena(v)) continue;
      // A further result that nobody reads is not computed. The first always is, unless the node is there for what
      // variables hold.
      if ((i > 0 || n.op->donates()) && last_use_[at(v)] < 0) continue;
      const std::int32_t last = std::max(last_use_[at(v)], s);
      const std::int32_t shared = taken_over(s, static_cast<std::int32_t>(i));
      if (shared >= 0) {
        buffer_[at(v)] = shared;
        Buffer& b = plan_.buffers[at(shared)];
        b.values.push_back(v);
        b.last = last;
        continue;
      }
      buffer_[at(v)] = static_cast<std::int32_t>(plan_.buffers.size());
      plan_.buffers.push_back({graph_.value(v).name, {v}, storage_.bytes[at(v)], 0, s, last, storage_.space(v)});
    }
    if (step.call.workspace_bytes > 0) {
      step.workspace = static_cast<std::int32_t>(plan_.buffers.size());
      const std::int64_t bytes = plan_.aligned(*step.call.workspace_bytes);
      const std::string& name = graph_.value(n.outputs.empty() ? n.inputs[0] : n.outputs[0]).name;
      const std::int32_t space = ir::place_of({graph_, n}, plan_.target->passes).space;
      plan_.buffers.push_back({name + " workspace", {}, bytes, 0, s, s, space});
    }
  }

  /// What a step reads and writes lives as long as others may run beside it.
  void live_beside(std::int32_t s) {
    const Step& step = plan_.steps[at(s)];
    const std::int32_t last = happens_before_.last_beside(s);
    const auto live = [&](std::int32_t buffer) {
      if (buffer >= 0) plan_.buffers[at(buffer)].last = std::max(plan_.buffers[at(buffer)].last, last);
    };
    if (last == s || step.call.name.empty()) return;
    for (const auto* list : {&node(s).inputs, &node(s).outputs})
      for (const ir::ValueId v : *list)
        if (storage_.in_arena(v)) live(buffer_[at(storage_.root[at(v)])]);
    live(step.workspace);
  }

  /// Whether whoever reads the value, but step s, is done when that begins.
  bool is_last_reader(std::int32_t s, ir::ValueId root) const {
    const std::vector<std::int32_t>& readers = readers_(root);
    return last_use_[at(root)] == s && std::all_of(readers.begin(), readers.end(), [&](std::int32_t reader) {
             return reader == s || plan_.steps[at(reader)].call.name.empty() || happens_before_(reader, s);
           });
  }

  /// The buffer of an input whose life ends at step s and which an output may overwrite; -1 if there is none.
  std::int32_t taken_over(std::int32_t s, std::int32_t output) const {
    const ir::Node& n = node(s);
    const ir::KernelCall& call = plan_.steps[at(s)].call;
    const ir::ValueId v = n.outputs[at(output)];
    std::vector<std::int32_t> candidates;
    if (output == 0) candidates = call.in_place;
    for (const auto& [over, input] : call.over)
      if (over == output) candidates.push_back(input);
    for (const std::int32_t i : candidates) {
      const ir::ValueId input = at(i) < n.inputs.size() ? n.inputs[at(i)] : ir::kNone;
      if (!storage_.in_arena(input)) continue;
      const ir::ValueId r = storage_.root[at(input)];
      if (buffer_[at(r)] < 0 || storage_.space(r) != storage_.space(v) || !is_last_reader(s, r)) continue;
      if (std::count(n.outputs.begin(), n.outputs.end(), plan_.buffers[at(buffer_[at(r)])].values.back()) > 0)
        continue;  // another output has it
      if (graph_.type(r).dtype != graph_.type(v).dtype || graph_.type(r).shape.numel() != graph_.type(v).shape.numel())
        continue;
      // The kernel reads each element of this input where it writes it. So it has to do of any other input in the same
      // memory: the same tensor, given twice, may be read elsewhere the other time.
      bool elsewhere = false;
      for (std::size_t j = 0; j < n.inputs.size(); ++j)
        elsewhere |= n.inputs[j] != ir::kNone && storage_.root[at(n.inputs[j])] == r &&
                     (n.inputs[j] != input ||
                      std::count(candidates.begin(), candidates.end(), static_cast<std::int32_t>(j)) == 0);
      if (!elsewhere) return buffer_[at(r)];
    }
    return -1;
  }

  const ir::Graph& graph_;
  const Storage& storage_;
  const HappensBefore& happens_before_;
  Plan& plan_;
  std::vector<std::int32_t> last_use_, buffer_;     // by root
  ir::ByValue<std::vector<std::int32_t>> readers_;  // by root: steps
};

/// What is read in the prepare phase alone goes into the step that reads it last.
void find_last_reads(const ir::Graph& graph, const Storage& storage, Plan& plan) {
  std::vector<bool> is_read_later(graph.values.size(), false);  // by root
  for (const ir::ValueId v : graph.outputs) is_read_later[at(storage.root[at(v)])] = true;
  for (std::size_t s = plan.steps.size(); s-- > 0;) {
    const ir::Node& node = graph.nodes[at(plan.steps[s].node)];
    if (node.op->alias) continue;
    for (const ir::ValueId v : node.inputs) {
      if (v == ir::kNone) continue;
      const ir::ValueId r = storage.root[at(v)];
      const Home home = storage.home[at(r)];
      const bool is_weight = home == Home::parameter || home == Home::constant || home == Home::prepared;
      if (is_weight && !is_read_later[at(r)] && node.phase == ir::Phase::prepare) plan.steps[s].last_reads.push_back(r);
      is_read_later[at(r)] = true;
    }
  }
}

/// Places the buffers of each memory space in its arena.
void place_in_arenas(Plan& plan, bool compress) {
  plan.arenas.resize(plan.target->passes.spaces.size());
  for (std::size_t space = 0; space < plan.arenas.size(); ++space) {
    std::vector<Buffer> own;
    for (const Buffer& b : plan.buffers)
      if (at(b.space) == space) own.push_back(b);
    Arena& arena = plan.arenas[space];
    arena.lower_bound = arena_lower_bound(own);
    arena.bytes = place_buffers(own, compress);
    auto placed = own.begin();
    for (Buffer& b : plan.buffers) {
      if (at(b.space) != space) continue;
      b.offset = (placed++)->offset;
      arena.without_reuse += b.bytes;
    }
  }
}

}  // namespace

std::int64_t planned_arena_bytes(const ir::Graph& graph, const ir::TargetTraits& target) {
  return make_plan(graph, target_named(target.name)).arena_bytes();
}

Plan make_plan(const ir::Graph& graph, const Target& target, bool keep_results) {
  Plan plan;
  plan.target = &target;
  plan.alignment = target.alignment;
  plan.keeps_results = keep_results || !graph.optimizers.empty() || !graph.losses.empty();
  std::vector<ir::KernelCall> calls;
  calls.reserve(graph.nodes.size());
  for (const ir::Node& node : graph.nodes) calls.push_back(target.passes.lower({graph, node}));
  std::vector<const ir::KernelCall*> by_node;
  for (const ir::KernelCall& call : calls) by_node.push_back(&call);
  const Storage storage(graph, plan.alignment, plan.keeps_results, by_node, ir::memory_spaces(graph, target.passes));

  plan.steps.reserve(graph.nodes.size());
  for (const ir::NodeId n : schedule(graph, storage, calls)) {
    const ir::Node& node = graph.nodes[at(n)];
    if (storage.left_out[at(n)])
      plan.steps.push_back({n, {}, -1, {.bytes = 0}, {}});
    else
      plan.steps.push_back({n, std::move(calls[at(n)]), -1, ir::cost_of({graph, node}), {}});
    plan.steps.back().stream = ir::place_of({graph, node}, target.passes).stream;
    if (node.phase == ir::Phase::prepare) continue;
    plan.flops += plan.steps.back().cost.flops;
    plan.bytes += plan.steps.back().cost.bytes;
  }
  find_last_reads(graph, storage, plan);
  const HappensBefore happens_before(graph, storage, plan);
  const Allocation allocation(graph, storage, happens_before, plan);
  plan.placements.resize(graph.values.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ir::ValueId r = storage.root[v];
    Placement& p = plan.placements[v];
    if (r != static_cast<ir::ValueId>(v)) {
      p.home = Home::alias;
      p.alias_of = r;
      continue;
    }
    p.home = storage.home[v];
    if (p.home == Home::arena) p.buffer = allocation.buffer(r);
    if (p.home == Home::output) p.buffer = storage.output[v];
    if (p.home == Home::gradient) p.parameter = storage.parameter[v];
  }
  place_in_arenas(plan, graph.flag(ir::kCompressMemory));
  return plan;
}

}  // namespace graven::codegen
