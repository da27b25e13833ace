#include "codegen/emit/ranks_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "codegen/emit/text.h"
#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/rank_layout.h"
#include "ir/sharding.h"
#include "ir/stages.h"

namespace graven::codegen {

namespace {

struct ArenaRange {
  std::int64_t offset, end;
};

/// What of the arena a stage's calls touch, in order. Nothing else of it becomes memory in a process that runs this
/// stage.
std::vector<ArenaRange> arena_of(const StagedGraph& staged, std::int32_t stage) {
  const Plan& plan = staged.plan;
  std::vector<ArenaRange> touched;
  const auto touch = [&](std::int32_t buffer) {
    if (buffer < 0) return;
    const Buffer& b = plan.buffers[at(buffer)];
    touched.push_back({b.offset, b.offset + b.bytes});
  };
  for (const Step& step : plan.steps) {
    if (staged.stage_of_node[at(step.node)] != stage) continue;
    const ir::Node& node = staged.graph.nodes[at(step.node)];
    for (const auto* list : {&node.inputs, &node.outputs})
      for (const ir::ValueId v : *list)
        if (v != ir::kNone)
          if (const Placement& p = plan.placements[at(root(plan, v))]; p.home == Home::arena) touch(p.buffer);
    touch(step.workspace);
  }
  std::sort(touched.begin(), touched.end(),
            [](const ArenaRange& a, const ArenaRange& b) { return a.offset < b.offset; });
  std::vector<ArenaRange> ranges;
  for (const ArenaRange& r : touched)
    if (ranges.empty() || r.offset > ranges.back().end)
      ranges.push_back(r);
    else
      ranges.back().end = std::max(ranges.back().end, r.end);
  return ranges;
}

std::int64_t bytes_of(const std::vector<ArenaRange>& ranges) {
  std::int64_t bytes = 0;
  for (const ArenaRange& r : ranges) bytes += r.end - r.offset;
  return bytes;
}

/// By parameter, the stages whose calls touch its gradient.
std::map<ir::ValueId, std::set<std::int32_t>> stages_of_gradients(const StagedGraph& staged) {
  std::map<ir::ValueId, std::set<std::int32_t>> found;
  for (const Step& step : staged.plan.steps) {
    const ir::Node& node = staged.graph.nodes[at(step.node)];
    for (const auto* list : {&node.inputs, &node.outputs})
      for (const ir::ValueId v : *list)
        if (v != ir::kNone)
          if (const Placement& p = staged.plan.placements[at(root(staged.plan, v))]; p.home == Home::gradient)
            found[p.parameter].insert(staged.stage_of_node[at(step.node)]);
  }
  return found;
}

/// By variable, what changes it: runtime/pipeline.h has the words.
std::map<ir::ValueId, const char*> changes_of_variables(const ir::Graph& graph) {
  std::map<ir::ValueId, const char*> found;
  const ir::Uses uses(graph);
  for (const ir::Donation& d : graph.donations) {
    const ir::Node* const maker = uses.maker(graph, d.value);
    const bool is_observed = maker != nullptr && maker->phase != ir::Phase::update;
    found[d.variable] = is_observed ? "observed" : "learned";
  }
  return found;
}

void require_received(const StagedGraph& staged) {
  const ir::Graph& graph = staged.graph;
  const ir::Uses uses(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const ir::ValueId v : graph.nodes[n].inputs) {
      if (v == ir::kNone || uses.maker(v) < 0) continue;
      const ir::Node& node = graph.nodes[n];
      const std::int32_t made = staged.stage_of_node[at(uses.maker(v))], to = staged.stage_of_node[n];
      const std::int64_t from = node.is(ir::kReceive) ? node.attributes.integer("from") : to;
      if (made != from)
        throw UserError(fmt::format("set_stage: stage {} of {} reads '{}' of stage {}, which it has not received", to,
                                    graph.name, graph.value(v).name, made))
            .note("stages need the passes split_stages and settle_stages");
    }
}

/// `phase`: whether the lines say of which phase it is.
std::vector<std::string> crossing_lines(const StagedGraph& staged, const char* macro, bool phase) {
  const auto& [graph, plan, values, stages] = staged;
  std::vector<std::string> lines;
  for (const ir::Crossing& c : ir::crossings(graph)) {
    const ir::ValueId v = root(plan, c.value);
    const ir::TensorType& type = graph.type(v);
    if (plan.placements[at(v)].home != Home::arena)
      throw UserError(fmt::format("set_stage: '{}' {} is no value of the arena: it cannot go from stage {} to {}",
                                  graph.value(v).name, type.to_string(), c.from, c.to));
    if (plan.placements[at(v)].buffer < 0) continue;
    lines.push_back(fmt::format("{}({}, {}, {}{}, sizeof({}) * static_cast<std::size_t>({}))  // {}", macro, c.from,
                                c.to, phase ? fmt::format("{}, ", ir::name(c.phase)) : "", values.expression(v),
                                element_type(type.dtype), values.dimension(type.shape.numel(), "size."),
                                comment_text(type.to_string() + " " + graph.value(v).name)));
  }
  return lines;
}

/// "model.transformer.h.{0,1}": the modules that have the stage.
std::string modules_of(const ir::Graph& graph, std::int32_t stage) {
  std::vector<std::string> modules;
  for (const ir::ModuleInfo& m : graph.modules)
    if (const auto found = graph.config.find(std::string(ir::kStageOf) + m.path); found != graph.config.end())
      if (std::get<std::int64_t>(found->second) == stage) modules.push_back(m.path);
  return comment_text(ir::braced(modules));
}

/// To those of what declares the device, once each.
void add_headers(TargetStyle& style, const std::vector<std::string>& headers) {
  for (const std::string& header : headers)
    if (std::find(style.api_headers.begin(), style.api_headers.end(), header) == style.api_headers.end())
      style.api_headers.push_back(header);
}

}  // namespace

std::vector<std::int32_t> stages_of_project(const ir::Graph& graph) {
  std::vector<std::int32_t> stages = ir::stages_of_nodes(graph);
  const std::int32_t count = ir::count_stages(graph);
  for (std::size_t n = 0; n < stages.size(); ++n)
    if (stages[n] >= count)
      throw UserError(fmt::format("set_stage: {} of {} is of stage {}, and there are {} stages",
                                  graph.nodes[n].op->name, graph.name, stages[n], count));
  return stages;
}

void describe_ranks(const ir::Graph& graph, const EmitOptions& options, ProjectNames& names, TargetStyle& style) {
  if (ir::has_stages(graph) && !options.jit_entry) {
    names.has_ranks = true;
    names.engine = "${engine}";
    add_headers(style, style.stage_headers);
  }
  const bool data_parallel = graph.flag(ir::kDataParallel) && !options.jit_entry;
  names.tensor_ranks = ir::tensor_ranks(graph);
  if (names.tensor_ranks > 1) {
    names.has_ranks = true;
    names.engine = "${engine}";
    names.data_group = "peers";
    names.tensor_bytes = ir::bytes_sent(graph);
    add_headers(style, style.team_headers);
  }
  if (data_parallel) add_headers(style, style.rank_headers);
  if (data_parallel) {
    names.data_parallel = names.has_ranks = true;
    names.engine = "${engine}";
    const ir::Sharding sharding(graph);
    style.calls.shared_by_ranks = sharding.stage();
    names.shares_states = sharding.stage() >= 1;
    names.shares_gradients = sharding.stage() >= 2;
    names.shares_parameters = sharding.stage() >= 3;
    names.shard_min_size = sharding.least();
    if (sharding.stage() >= 1) style.program_headers.push_back("runtime/shard.h");
  }
}

std::vector<std::string> part_lines(const ir::Graph& graph) {
  std::vector<std::string> lines;
  for (const std::vector<ir::ValueId>* list : {&graph.parameters, &graph.states})
    for (const ir::ValueId v : *list)
      if (const ir::RankLayout layout = ir::layout_of(graph, v); layout.is_split())
        lines.push_back(
            fmt::format("GRAVEN_PART({}, {}, {})", string_literal(graph.value(v).name), layout.dim, layout.blocks));
  return lines;
}

std::int32_t stage_of(const StagedGraph& staged, ir::ValueId value) {
  const ir::ValueId v = root(staged.plan, value);
  if (const ir::NodeId maker = ir::Uses(staged.graph).maker(v); maker >= 0) return staged.stage_of_node[at(maker)];
  const std::vector<std::int32_t> have = ir::stages_of_variables(staged.graph)[at(v)];
  return have.empty() ? 0 : have.front();
}

void describe_pipeline(const StagedGraph& training, const StagedGraph* evaluation, PipelineText& text) {
  const ir::Graph& graph = training.graph;
  require_received(training);
  text.crossings = crossing_lines(training, "GRAVEN_CROSSING", true);
  std::vector<std::vector<std::int32_t>> evaluate_with;
  if (evaluation != nullptr) {
    require_received(*evaluation);
    text.evaluation_crossings = crossing_lines(*evaluation, "GRAVEN_EVALUATION_CROSSING", false);
    evaluate_with = ir::stages_of_variables(evaluation->graph);
  }
  const auto line_of = [](const char* macro, const std::string& name, const std::string& changes, const auto& stages) {
    std::string line = fmt::format("{}({}{}", macro, string_literal(name), changes);
    for (const std::int32_t s : stages) line += fmt::format(", {}", s);
    return line + ")";
  };
  const auto add = [&](const std::string& name, const char* change, std::vector<std::int32_t> stages) {
    if (evaluation != nullptr)
      if (const ir::ValueId v = evaluation->graph.find(name); v != ir::kNone)
        for (const std::int32_t s : evaluate_with[at(v)])
          if (std::find(stages.begin(), stages.end(), s) == stages.end()) stages.push_back(s);
    text.stage_variables.push_back(line_of("GRAVEN_STAGES", name, fmt::format(", {}", change), stages));
  };
  const std::vector<std::vector<std::int32_t>> have = ir::stages_of_variables(graph);
  const std::map<ir::ValueId, const char*> changes = changes_of_variables(graph);
  for (const std::vector<ir::ValueId>* list : {&training.values.stored(), &graph.states})
    for (const ir::ValueId v : *list) {
      const auto change = changes.find(v);
      add(graph.value(v).name, change == changes.end() ? "fixed" : change->second, have[at(v)]);
    }
  if (evaluation != nullptr)
    for (const ir::ValueId v : evaluation->values.stored())
      if (const std::string& name = evaluation->graph.value(v).name; graph.find(name) == ir::kNone)
        add(name, "fixed", {});
  // A device's memory is taken as it is asked for, so that there a stage asks for what is its own alone.
  const bool on_device = training.plan.target->style.on_device;
  if (on_device)
    for (const auto& [parameter, stages] : stages_of_gradients(training))
      text.stage_gradients.push_back(line_of("GRAVEN_STAGES_OF_GRADIENT", graph.value(parameter).name, "", stages));
  const auto add_arena = [&](const char* macro, std::int32_t stage, const std::vector<ArenaRange>& ranges,
                             std::vector<std::string>& lines) {
    for (const ArenaRange& r : ranges)
      if (on_device) lines.push_back(fmt::format("{}({}, {}, {})", macro, stage, r.offset, r.end - r.offset));
    return bytes_of(ranges);
  };
  for (StageText& stage : text.stages) {
    std::int64_t bytes = add_arena("GRAVEN_ARENA", stage.number, arena_of(training, stage.number), text.stage_arenas);
    if (evaluation != nullptr)
      bytes = std::max(bytes, add_arena("GRAVEN_EVALUATION_ARENA", stage.number, arena_of(*evaluation, stage.number),
                                        text.evaluation_arenas));
    stage.line = fmt::format("{:>5}  {:<12}  {:>15}  {:>19}  {}", stage.number, stage.path,
                             std::ssize(text.stages) - stage.number, bytes, modules_of(graph, stage.number));
  }
}

}  // namespace graven::codegen
