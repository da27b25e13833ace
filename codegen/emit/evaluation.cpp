#include "codegen/emit/evaluation.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/passes/pass.h"
#include "ir/passes/passes.h"
#include "ir/rank_layout.h"
#include "ir/sharding.h"
#include "ir/stages.h"

namespace graven::codegen {

namespace {

constexpr const char* kPrefix = "evaluation.";

/// Constants stand in one file and one namespace with the training graph's: equal names must be equal constants.
void separate_constants(ir::Graph& evaluation, const ir::Graph& training) {
  std::unordered_map<std::string_view, ir::ValueId> known;
  for (std::size_t v = 0; v < training.values.size(); ++v)
    known.emplace(training.values[v].name, static_cast<ir::ValueId>(v));
  std::unordered_set<std::string> taken;
  for (const ir::Value& value : evaluation.values) taken.insert(value.name);
  for (std::size_t v = 0; v < evaluation.values.size(); ++v) {
    ir::Value& value = evaluation.values[v];
    if (value.kind != ir::ValueKind::constant || value.name.rfind(kPrefix, 0) == 0) continue;
    const auto same = known.find(value.name);
    if (same != known.end() && training.value(same->second).kind == ir::ValueKind::constant) {
      const ir::TensorData &a = *evaluation.constants.at(static_cast<ir::ValueId>(v)),
                           &b = *training.constants.at(same->second);
      if (a.type == b.type && a.bytes == b.bytes) continue;
    }
    std::string name = kPrefix + value.name;
    while (known.count(name) || !taken.insert(name).second) name += "_";
    value.name = name;
  }
}

/// Ranks that have shards of the training's parameters evaluate with these.
void gather_shards(ir::Graph& evaluation, const ir::Graph& training) {
  const ir::Sharding sharding(training);
  if (sharding.stage() < 3) return;
  ir::ByValue<bool> is_shard;
  for (const ir::Gradient& g : training.gradients)
    if (sharding.is_kept_in_shards(training.type(g.parameter)))
      if (const ir::ValueId own = evaluation.find(training.value(g.parameter).name); own != ir::kNone)
        is_shard[own] = true;
  ir::gather_parameters(evaluation, is_shard);
}

/// What the two graphs must have in common for one program to hold both.
void require_fit(const ir::Graph& evaluation, const ir::Graph& training) {
  std::unordered_map<std::string_view, const ir::Value*> known;
  for (const ir::Value& value : training.values) known.emplace(value.name, &value);
  for (const auto* list : {&evaluation.inputs, &evaluation.parameters})
    for (const ir::ValueId v : *list) {
      const ir::Value& value = evaluation.value(v);
      const auto found = known.find(value.name);
      // One that has not been through the passes has whole tensors.
      const bool fits =
          found != known.end() && found->second->kind == value.kind &&
          (found->second->type == value.type || ir::whole_type(training, training.find(value.name)) == value.type);
      if (!fits)
        throw UserError(std::string(kEvaluationFile) + ": is not of this graph: its " + value.name + " " +
                        value.type.to_string() + " is not the graph's");
    }
  if (!evaluation.losses.empty() || !evaluation.optimizers.empty() || evaluation.outputs.empty())
    throw UserError(std::string(kEvaluationFile) + ": is no evaluation: expected losses as outputs and no optimizer");
}

}  // namespace

std::shared_ptr<const Evaluation> make_evaluation(const ir::Graph& given, const ir::Graph& lowered,
                                                  const EmitOptions& options, bool& unknown) {
  unknown = false;
  if (lowered.losses.empty() || options.jit_entry) return nullptr;
  auto evaluation = std::make_shared<Evaluation>();
  if (options.evaluation) {
    evaluation->graph = *options.evaluation;
  } else if (given.stage == "trace") {
    // Of classes that ranks have in parts, the scores are had by an evaluation of its own.
    const bool splits_classes = std::any_of(lowered.nodes.begin(), lowered.nodes.end(), [](const ir::Node& n) {
      return n.is(ir::kIndexOnRank) && n.attributes.flag("ignores");
    });
    if (!splits_classes && !ir::evaluation_differs(given)) return nullptr;
    evaluation->graph = ir::evaluation_graph(given);
  } else {
    unknown = ir::evaluation_differs(lowered);
    return nullptr;
  }
  require_fit(evaluation->graph, lowered);
  ir::PassOptions passes;
  passes.target = &target_named(options.target).passes;
  passes.verify = options.passes.verify;
  passes.disabled = options.passes.disabled;
  // The weights change between evaluations: what depends on them alone is computed in each, in the arena, which
  // transformed weights are not worth.
  passes.disabled.emplace_back("prepare_weights");
  passes.disabled.emplace_back("choose_winograd");
  // Ranks evaluate with the parts that they train, and in the same stages.
  auto& config = evaluation->graph.config;
  const bool staged = ir::has_stages(lowered);
  for (const auto& [key, value] : lowered.config)
    if (key == ir::kTensorParallel || key == ir::kLayoutsChosen || key.starts_with(ir::kLayoutOf) ||
        (staged && key.starts_with(ir::kStageOf)))
      config[key] = value;
  if (staged) config[std::string(ir::kStagedEvaluation)] = true;
  ir::finish_passes(evaluation->graph, passes);
  std::erase_if(config, [&](const auto& entry) {
    return !staged || (entry.first != ir::kStagedEvaluation && !entry.first.starts_with(ir::kStageOf));
  });
  if (staged) ir::sort_by_stage(evaluation->graph);
  gather_shards(evaluation->graph, lowered);
  separate_constants(evaluation->graph, lowered);
  evaluation->plan = make_plan(evaluation->graph, target_named(options.target), /*keep_results=*/true);
  verify_plan(evaluation->graph, evaluation->plan);
  return evaluation;
}

std::shared_ptr<const ir::Graph> read_evaluation(const std::filesystem::path& graph_file) {
  const std::filesystem::path file = graph_file.parent_path() / kEvaluationFile;
  std::error_code ignored;
  if (graph_file.filename() == kEvaluationFile || !std::filesystem::exists(file, ignored)) return nullptr;
  return std::make_shared<ir::Graph>(ir::read_graph(file.string()));
}

}  // namespace graven::codegen
