#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/passes/pass.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/rank_layout.h"
#include "ir/stages.h"
#include "ir/verify.h"

namespace graven::ir {

namespace {

constexpr auto always = nullptr;
bool has_loss(const Graph& graph, const PassOptions&) { return !graph.losses.empty() && graph.gradients.empty(); }
bool has_update(const Graph& graph, const PassOptions&) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return is_update(*n.op); });
}
bool has_no_update(const Graph& graph, const PassOptions& options) {
  return !graph.optimizers.empty() && !has_update(graph, options);
}
bool has_attention_kernels(const Graph&, const PassOptions& options) { return options.target->attention_size > 0; }
bool has_loss_to_scale(const Graph& graph, const PassOptions& options) {
  return has_loss(graph, options) && scales_losses(graph);
}
bool accumulates(const Graph& graph, const PassOptions& options) {
  return has_no_update(graph, options) && has_parts(graph);
}
bool has_ranks(const Graph& graph, const PassOptions& options) {
  return has_no_update(graph, options) && graph.flag(kDataParallel);
}
bool shares_updates(const Graph& graph, const PassOptions& options) {
  return has_update(graph, options) && graph.number(kZeroStage).has_value() && graph.stage != "gather_parameters" &&
         std::none_of(graph.nodes.begin(), graph.nodes.end(),
                      [](const Node& n) { return n.is(kAllGather, kGatherShards); });
}
bool shares_parameters(const Graph& graph, const PassOptions& options) {
  return has_update(graph, options) && graph.number(kZeroStage).value_or(0) > 2 &&
         std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.is(kGatherShards); });
}
bool has_tensor_ranks(const Graph& graph, const PassOptions&) { return tensor_ranks(graph) > 1; }
bool is_pipeline(const Graph& graph, const PassOptions&) { return has_stages(graph); }
bool has_to_unscale(const Graph& graph, const PassOptions& options) {
  return has_no_update(graph, options) && scales_losses(graph);
}
bool has_to_clip(const Graph& graph, const PassOptions& options) {
  return has_no_update(graph, options) && clips_gradients(graph);
}
bool inference(const Graph& graph, const PassOptions&) { return is_inference(graph); }
bool has_ordered_weights(const Graph& graph, const PassOptions& options) {
  return is_inference(graph) && options.target->orders_weights;
}
bool changes_variables(const Graph& graph, const PassOptions&) { return !graph.donations.empty(); }
bool has_places(const Graph&, const PassOptions& options) { return options.target->place != nullptr; }
bool wants_mixed_precision(const Graph& graph, const PassOptions&) { return amp_dtype(graph).has_value(); }
bool has_half_types(const Graph& graph, const PassOptions& options) {
  return options.target->takes_half != nullptr &&
         std::any_of(graph.values.begin(), graph.values.end(), [](const Value& v) { return is_half(v.type.dtype); });
}
bool wants_recomputation(const Graph& graph, const PassOptions&) {
  return recomputes_activations(graph) &&
         std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.recomputes; });
}
bool wants_update_in_backward(const Graph& graph, const PassOptions&) { return updates_in_backward(graph); }
bool may_fuse_updates(const Graph& graph, const PassOptions& options) {
  return wants_update_in_backward(graph, options) && !graph.flag(kNoModelUpdateFusion);
}
bool keeps_gradients(const Graph& graph, const PassOptions& options) {
  return has_update(graph, options) && !updates_in_backward(graph) && !graph.number(kZeroStage).has_value();
}
bool may_fuse_clipping(const Graph& graph, const PassOptions& options) {
  return has_update(graph, options) && !graph.flag(kNoModelUpdateFusion);
}

/// Of the passes for one target.
constexpr std::string_view kCpu = kHost.name, kAll = {};

constexpr Pass kPipeline[] = {
#define GRAVEN_PASS(name, applies, target, reason) {#name, name, applies, reason, target},
#include "ir/passes/pipeline.inc"
#undef GRAVEN_PASS
};

bool is_for(const Pass& pass, const TargetTraits& target) { return pass.target.empty() || pass.target == target.name; }

std::size_t position(std::string_view pass_name) {
  for (std::size_t i = 0; i < std::size(kPipeline); ++i)
    if (kPipeline[i].name == pass_name) return i;
  UserError error("there is no pass '" + std::string(pass_name.substr(0, 100)) + "'");
  std::string known;
  for (const Pass& p : kPipeline) known += (known.empty() ? "" : ", ") + std::string(p.name);
  throw error.note("passes: " + known);
}

void dump(const std::string& directory, std::size_t number, std::string_view pass_name, const Graph& graph) {
  char prefix[8];
  std::snprintf(prefix, sizeof prefix, "%02zu-", number);
  write_graph((std::filesystem::path(directory) / (prefix + std::string(pass_name) + ".json")).string(), graph);
}

/// By index of the pass; a name that no pass has is a user error.
std::vector<bool> enabled_passes(const PassOptions& options) {
  std::vector<bool> enabled(std::size(kPipeline), true);
  for (const std::string& d : options.disabled) enabled[position(d)] = false;
  return enabled;
}

/// Makes the folder and writes the graph as it is before the first pass.
void begin_dumps(const PassOptions& options, std::size_t number, const Graph& graph) {
  if (options.dump_directory.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options.dump_directory, error);
  if (error) throw UserError(options.dump_directory + ": cannot create the directory: " + error.message());
  dump(options.dump_directory, number, graph.stage, graph);
}

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

std::vector<PassTiming> run_passes(Graph& graph, const PassOptions& options) {
  const std::size_t first = options.from.empty() ? 0 : position(options.from);
  const std::size_t last = options.to.empty() ? std::size(kPipeline) - 1 : position(options.to);
  if (first > last) throw UserError("the pass '" + options.from + "' stands after '" + options.to + "'");
  const std::vector<bool> enabled = enabled_passes(options);
  begin_dumps(options, first, graph);
  if (options.verify) verify(graph);
  std::vector<PassTiming> timings;
  for (std::size_t i = first; i <= last; ++i) {
    const Pass& pass = kPipeline[i];
    if (!enabled[i] || !is_for(pass, *options.target) || (pass.applies && !pass.applies(graph, options))) continue;
    const std::size_t nodes_before = graph.nodes.size();
    const auto start = std::chrono::steady_clock::now();
    pass.run(graph, options);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    graph.stage = pass.name;
    timings.push_back({pass.name, elapsed.count(), nodes_before, graph.nodes.size()});
    if (options.verify) verify(graph);
    if (!options.dump_directory.empty()) dump(options.dump_directory, i + 1, pass.name, graph);
  }
  return timings;
}

std::vector<PassTiming> finish_passes(Graph& graph, PassOptions options) {
  if (options.from.empty() && graph.stage != "trace") {
    const auto done =
        std::find_if(std::begin(kPipeline), std::end(kPipeline), [&](const Pass& p) { return p.name == graph.stage; });
    if (done == std::end(kPipeline))
      throw UserError("the graph is at stage '" + graph.stage + "', which is no pass of this version");
    if (!options.to.empty() && position(options.to) < static_cast<std::size_t>(done - std::begin(kPipeline)))
      throw UserError("the graph is past the pass '" + options.to + "': it has been through '" + graph.stage + "'");
    if (done + 1 == std::end(kPipeline) || graph.stage == options.to) {
      // Nothing is left to run; the options are looked at all the same.
      enabled_passes(options);
      if (!options.to.empty()) position(options.to);
      begin_dumps(options, static_cast<std::size_t>(done + 1 - std::begin(kPipeline)), graph);
      return {};
    }
    options.from = (done + 1)->name;
  }
  std::vector<PassTiming> timings = run_passes(graph, options);
  // Passes that do not apply leave no mark: the graph is through with all of them.
  if (options.to.empty()) graph.stage = kPipeline[std::size(kPipeline) - 1].name;
  return timings;
}

}  // namespace graven::ir
