#include "codegen/emit/project.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <sstream>

#include "codegen/emit/computation.h"
#include "codegen/emit/embedded.h"
#include "codegen/emit/evaluation.h"
#include "codegen/emit/format.h"
#include "codegen/emit/just_in_time.h"
#include "codegen/emit/output_folder.h"
#include "codegen/emit/project_data.h"
#include "codegen/emit/record.h"
#include "codegen/emit/render.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/passes/passes.h"
#include "ir/rank_layout.h"
#include "ir/sizes.h"
#include "ir/stages.h"
#include "runtime_min/error.h"
#include "runtime_min/file.h"
#include "runtime_min/safetensors.h"
#include "runtime_min/sha256.h"

namespace graven::codegen {

namespace {

namespace fs = std::filesystem;
constexpr const char *kWeightsFile = "weights.safetensors", *kSelfTestFile = "selftest.safetensors";
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Runs the passes that the graph has not been through, for the target of the project.
std::vector<ir::PassTiming> finish_passes(ir::Graph& graph, const EmitOptions& options) {
  ir::PassOptions passes = options.passes;
  passes.target = &target_named(options.target).passes;
  return ir::finish_passes(graph, passes);
}

std::string numbers_text(const std::vector<double>& numbers) {
  std::string text;
  for (const double n : numbers) text += (text.empty() ? "" : " ") + number_text(n);
  return text;
}

/// Numbers with spaces between them, as numbers_text() writes them, whatever the locale.
std::optional<std::vector<double>> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (stop != end && *stop != ' ')) return std::nullopt;
    numbers.push_back(number);
    at = stop == end ? end : stop + 1;
  }
  return numbers;
}

/// What was chosen at emission goes into the graph, so that its file says everything.
void record_options(ir::Graph& graph, const EmitOptions& options) {
  auto& c = graph.config;
  c["emit.name"] = project_name(graph, options);
  c["emit.target"] = std::string(target_named(options.target).name());
  c["emit.threads"] = static_cast<std::int64_t>(options.threads);
  c["emit.memory_budget"] = options.memory_budget;
  c["emit.selftest"] = options.selftest;
  c["emit.epochs"] = options.epochs;
  c["emit.seed"] = options.seed;
  c["emit.shuffle"] = options.shuffle;
  c["emit.data"] = options.data;
  c["emit.test_data"] = options.test_data;
  c["emit.mean"] = numbers_text(options.mean);
  c["emit.std"] = numbers_text(options.std);
}

/// The files that `path` includes between quotes, resolved like the compiler does.
std::vector<std::string> includes_of(const std::string& path, std::string_view text) {
  std::vector<std::string> found;
  for (std::size_t at = text.find("#include \""); at != std::string_view::npos; at = text.find("#include \"", at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    const std::size_t begin = at + 10, end = text.find('"', begin);
    if (end == std::string_view::npos) break;
    found.push_back((fs::path(path).parent_path() / std::string(text.substr(begin, end - begin)))
                        .lexically_normal()
                        .generic_string());
  }
  return found;
}

/// Graven's text as a project has it: what it defines is the library's own. Else the libraries of two projects in one
/// process would share it, of whatever version, compiled for whatever processor, in the order of loading.
std::string copied(std::string_view text) {
  const std::size_t begin = text.find("\nnamespace graven");
  if (begin == std::string_view::npos) return std::string(text);
  return fmt::format("{}#pragma GCC visibility push(hidden)\n{}#pragma GCC visibility pop\n", text.substr(0, begin + 1),
                     text.substr(begin + 1));
}

}  // namespace

void add_copied(std::map<std::string, std::string>& files, std::vector<std::string> wanted) {
  while (!wanted.empty()) {
    const std::string path = wanted.back();
    wanted.pop_back();
    if (files.count(path)) continue;
    const bool runtime = path.compare(0, 8, "runtime/") == 0;
    const std::string_view text = embedded_text(runtime ? "runtime_min/" + path.substr(8) : path);
    files.emplace(path, copied(text));
    for (std::string& included : includes_of(path, text)) wanted.push_back(std::move(included));
    if (runtime && path.ends_with(".h")) {
      const std::string source = path.substr(0, path.size() - 2) + ".cpp";
      if (find_embedded("runtime_min/" + source.substr(8))) wanted.push_back(source);
    }
  }
}

namespace {

std::string sources_in(const std::map<std::string, std::string>& files, const std::set<std::string>& without) {
  std::string text;
  for (const auto& [path, content] : files)
    if (path.compare(0, 8, "runtime/") == 0 && path.ends_with(".cpp") && !without.count(path))
      text += (text.empty() ? "" : " ") + path;
  return text;
}

/// What of the run time works for each sample and each byte.
const std::set<std::string>& busy_sources() {
  static const std::set<std::string> sources = {"runtime/batch.cpp", "runtime/inflate.cpp"};
  return sources;
}

struct Prepared {
  ir::Graph graph;
  Plan plan;
  std::shared_ptr<const Evaluation> evaluation;
  Extent extent = {};  ///< of the self-test
  std::map<std::string, std::string> files;
  /// Generated files that are to be formatted, but for want of the formatter are not.
  std::set<std::string> unformatted;
  std::vector<MeasuredCall> measured = {};
};

void require_budget(const Plan& plan, const EmitOptions& options, const char* what) {
  if (options.memory_budget > 0 && plan.arena_bytes() > options.memory_budget)
    throw UserError(
        fmt::format("the {} takes {} bytes, the memory budget is {}", what, plan.arena_bytes(), options.memory_budget))
        .note(fmt::format("no placement can take less than {} bytes for this graph", plan.lower_bound()));
}

/// Whether the graph has been through the pass, or past it.
bool is_past(const ir::Graph& graph, std::string_view pass) {
  const auto passes = ir::pipeline();
  const auto find = [&](std::string_view name) {
    return std::find_if(passes.begin(), passes.end(), [&](const ir::Pass& p) { return p.name == name; });
  };
  return find(pass) != passes.end() && find(graph.stage) != passes.end() && find(pass) <= find(graph.stage);
}

/// What passes did is not undone: user error where the options ask for what would have to be.
void require_passes_to_come(const ir::Graph& graph, const EmitOptions& options) {
  for (const std::string& pass : options.passes.disabled)
    if (is_past(graph, pass))
      throw UserError(
          fmt::format("the pass '{}' cannot be left out: the graph {} has been through it", pass, graph.name))
          .note("emit the graph as it was saved");
  // The first of the passes that a target makes a difference to.
  if (graph.config.count("emit.target") && is_past(graph, "choose_layout")) {
    const Target &before = target_named(recorded_options(graph).target), &now = target_named(options.target);
    if (&before == &now) return;
    throw UserError(fmt::format("the graph {} has been through the passes for {}: it cannot be emitted for {}",
                                graph.name, before.title, now.title))
        .note("emit the graph as it was saved");
  }
}

/// Of what shapes a training step, a flag of Graph::config.
void ask_for(ir::Graph& graph, std::string_view flag) {
  if (graph.optimizers.empty())
    throw UserError(fmt::format("{}: the graph {} has no optimizer, so there is no update", flag, graph.name));
  if (graph.stage == ir::pipeline().back().name && !graph.flag(flag))
    throw UserError(fmt::format("{}: the graph {} has been through all passes", flag, graph.name))
        .note("emit the graph as it was saved");
  graph.config[std::string(flag)] = true;
}

/// Whether the graph is at this pass, or behind it.
bool went_through(const ir::Graph& graph, std::string_view pass) {
  const auto passes = ir::pipeline();
  const auto place = [&](std::string_view name) {
    return std::find_if(passes.begin(), passes.end(), [&](const ir::Pass& p) { return p.name == name; });
  };
  return graph.stage != "trace" && place(graph.stage) >= place(pass);
}

void note_extent(const Extent& extent, const EmitOptions& options, EmitReport& report) {
  if (extent.recorded && !extent.reduced) return;
  std::string sizes;
  for (const auto& [symbol, size] : extent.symbols)
    sizes += fmt::format("{}{} = {}", sizes.empty() ? "" : ", ", symbol, size);
  report.notes.push_back(
      extent.recorded
          ? fmt::format(
                "the self-test runs with {}: what it compares with takes {:.0f} bytes, of {} that it may (--selftest)",
                sizes, extent.bytes, options.selftest)
          : fmt::format("the self-test compares nothing with a reference, only two runs with one another: a reference "
                        "takes {:.0f} bytes{}, and may take "
                        "{} (--selftest)",
                        extent.bytes, sizes.empty() ? "" : " with " + sizes, options.selftest));
}

/// Programs whose ranks have tensors in parts.
void require_tensor_ranks(const ir::Graph& graph, const Target& target) {
  if (target.style.team_headers.empty())
    throw UserError(fmt::format("{}: {} has tensors in parts over ranks, and {} has no such ranks", ir::kTensorParallel,
                                graph.name, target.title))
        .note("emit it for another target, or without enable_tensor_parallel()");
  if (std::none_of(graph.config.begin(), graph.config.end(),
                   [](const auto& entry) { return entry.first.starts_with(ir::kLayoutOf); }))
    throw UserError(
        fmt::format("{}: no parameter or input of the graph {} has a layout", ir::kTensorParallel, graph.name))
        .note("mark the weights that are to be split: weight.set_layout(layout::split(0))");
}

/// The plans of others are run by who made the target.
void require_one_stream(const Target& target) {
  const std::size_t spaces = target.passes.spaces.size(), streams = target.passes.streams.size();
  if (spaces > 1 || streams > 1)
    throw UserError(fmt::format("emitted programs have one memory space and one stream, {} has {} and {}", target.title,
                                spaces, streams));
}

Prepared prepare(const ir::Graph& traced, const EmitOptions& options, EmitReport& report) {
  Prepared p{traced, {}, {}, {}, {}, {}};
  require_one_stream(target_named(options.target));
  require_passes_to_come(traced, options);
  if (options.update_in_backward) ask_for(p.graph, ir::kUpdateInBackward);
  if (options.data_parallel || options.zero_stage > 0) ask_for(p.graph, ir::kDataParallel);
  if (options.zero_stage > 0) {
    p.graph.config[std::string(ir::kZeroStage)] = std::int64_t{options.zero_stage};
    p.graph.config[std::string(ir::kShardMinSize)] = options.shard_min_size;
  }
  if (options.jit_entry) {
    // In the host's process there is one rank, which has all.
    std::erase_if(p.graph.config, [](const auto& entry) {
      return entry.first == ir::kTensorParallel || entry.first.starts_with(ir::kLayoutOf);
    });
  } else if (options.tensor_parallel > 0) {
    if (went_through(p.graph, "split_tensors") && ir::tensor_ranks(p.graph) != options.tensor_parallel)
      throw UserError(
          fmt::format("{}: the graph {} has been through the pass split_tensors", ir::kTensorParallel, p.graph.name))
          .note("emit the graph as it was saved");
    p.graph.config[std::string(ir::kTensorParallel)] = options.tensor_parallel;
  }
  if (ir::tensor_ranks(p.graph) > 1) require_tensor_ranks(p.graph, target_named(options.target));
  if (options.memory_budget > 0 && !p.graph.losses.empty() && !went_through(p.graph, "recompute_activations"))
    p.graph.config[std::string(ir::kMemoryBudget)] = options.memory_budget;
  record_options(p.graph, options);  // first: dumps can be emitted likewise
  if (!options.jit_entry && !p.graph.optimizers.empty()) keep_computation(p.graph);
  report.passes = finish_passes(p.graph, options);

  auto start = Clock::now();
  ir::insert_copies(p.graph, {});  // where the passes have ended before it
  if (ir::has_stages(p.graph)) {
    const TargetStyle& style = target_named(options.target).style;
    if (style.on_device && style.stage_headers.empty() && !options.jit_entry)
      throw UserError(fmt::format("set_stage: {} has stages, and {} has no pipelines", p.graph.name,
                                  target_named(options.target).title))
          .note("emit it for another target, or without set_stage()");
    ir::sort_by_stage(p.graph);
  }
  p.plan = make_plan(p.graph, target_named(options.target));
  verify_plan(p.graph, p.plan);
  report.plan_milliseconds = milliseconds_since(start);
  report.arena_bytes = p.plan.arena_bytes();
  report.lower_bound = p.plan.lower_bound();
  require_budget(p.plan, options, "arena");

  bool unknown = false;
  p.evaluation = make_evaluation(traced, p.graph, options, unknown);
  if (unknown)
    report.notes.emplace_back(
        "the graph behaves otherwise when it is evaluated, and how is only known of its trace, or with the "
        "evaluation.json beside it: the project "
        "will not take a held-out set");
  if (p.evaluation) {
    require_budget(p.evaluation->plan, options, "arena of an evaluation");
    report.evaluation_bytes = p.evaluation->plan.arena_bytes();
    if (!options.passes.dump_directory.empty())
      ir::write_graph((fs::path(options.passes.dump_directory) / kEvaluationFile).string(), p.evaluation->graph);
  }

  start = Clock::now();
  const std::string graph_text = ir::to_json(p.graph);
  p.extent = extent_of(p.graph, p.evaluation.get(), options);
  if (options.execute && options.selftest > 0) note_extent(p.extent, options, report);
  ProjectData data =
      make_project_data(p.graph, p.plan, p.evaluation.get(), unknown, options, p.extent, hash_of(graph_text));
  report.notes.insert(report.notes.end(), data.notes.begin(), data.notes.end());
  p.measured = std::move(data.measured);
  for (const ir::ValueId v : data.stored_constants)
    report.constants.emplace(p.graph.value(v).name, p.graph.constants.at(v));
  nlohmann::json d = template_data(data);
  const std::string kind = data.names.training ? "train" : "infer";
  const Target& target = *p.plan.target;
  const TargetStyle& style = target.style;
  auto& files = p.files;
  std::vector<std::string> generated;
  auto add_rendered = [&](const std::string& path, const std::string& template_path) {
    files[path] = render(template_path, d);
    generated.push_back(path);
  };
  auto add = [&](const std::string& path, const std::string& name) { add_rendered(path, "project/" + name); };
  d["places"] = render("project/places.inc", d);
  d["level_choice"] = render(style.templates + "levels.inc", d);
  d["measured_calls"] = render("project/measured_calls.inc", d);
  d["call_times"] = render("project/call_times.inc", d);
  for (const char* part : {"measuring_declarations", "measuring_definitions", "measuring_overrides"}) {
    std::string text = render(std::string("project/") + part + ".inc", d);
    text.pop_back();  // the line in which it stands ends itself
    d[part] = std::move(text);
  }
  if (data.pipeline.pipeline) d["stage_functions"] = render("project/train/stage_functions.inc", d);
  d["c_interface"] = render("project/" + kind + "/c_interface.inc", d);
  d["selftest_inputs"] = render("project/selftest_inputs.inc", d);
  add("params.h", "params.h");
  add("memory_plan.h", "memory_plan.h");
  if (p.evaluation) {
    nlohmann::json evaluation = d;
    evaluation["plan"] = d["evaluation_plan"];
    files["evaluation_plan.h"] = render("project/memory_plan.h", evaluation);
    generated.emplace_back("evaluation_plan.h");
    files[kEvaluationFile] = ir::to_json(p.evaluation->graph);
  }
  if (data.calls.uses_configs) add("configs.h", "configs.h");
  if (data.calls.has_functors) add("functors.h", "functors.h");
  add("program.h", "program.h");
  add("model.h", kind + "/model.h");
  if (data.pipeline.pipeline) add("stages.h", "train/stages.h");
  nlohmann::json brief = brief_template_data(d);
  for (const ModelFile& file : data.files) {
    brief["file"] = template_data(file);
    files[file.path] = render("project/model.cpp", brief);
    generated.push_back(file.path);
  }

  add_copied(files, data.headers);
  if (options.jit_entry) {
    if (style.just_in_time.empty() && !style.kernels_just_in_time)
      throw UserError(fmt::format("there is no just-in-time compilation for {}", target.title));
    if (!style.just_in_time.empty()) files["jit.cpp"] = render(style.templates + style.just_in_time, d);
  } else {
    const std::string model_api = "model_api" + style.model_extension;
    add(model_api, kind + "/model_api.cpp");
    add("calls.h", "calls.h");
    add("main.cpp", kind + "/main.cpp");
    add("selftest.cpp", kind + "/selftest.cpp");
    // What the model's library needs of the run time; then what only the program needs.
    add_copied(files, data.names.api_headers);
    add_copied(files,
               {"runtime/arena.h", "runtime/session.h", "runtime/compare.h", "runtime/file.h", "runtime/call_times.h"});
    d["model_runtime_sources"] = sources_in(files, {});
    std::set<std::string> before;
    for (const auto& [path, text] : files) before.insert(path);
    add_copied(files, {"runtime/" + kind + ".h"});
    if (data.pipeline.pipeline) add_copied(files, {"runtime/pipeline.h"});
    if (data.training.own_classes > 0) add_copied(files, {"runtime/predictions.h"});
    d["main_runtime_sources"] = sources_in(files, before);
    std::set<std::string> busy, others = before;
    for (const auto& [path, text] : files) (busy_sources().count(path) ? others : busy).insert(path);
    busy.insert(before.begin(), before.end());
    d["busy_runtime_sources"] = sources_in(files, busy);
    d["other_runtime_sources"] = sources_in(files, others);
    d["shared_library"] = render("project/shared_library.cmake", d);
    d["install"] = render("project/install.cmake", d);
    files["CMakeLists.txt"] = render(style.templates + "CMakeLists.txt", d);
    files["README.md"] = render("project/README.md", d);
    files["graph.json"] = graph_text;
    for (const char* copied : {"kernels/", "runtime/"})
      files[std::string(copied) + "LICENSE"] = embedded_text("LICENSE");
  }
  report.emit_milliseconds = milliseconds_since(start);

  if (options.format) {
    start = Clock::now();
    if (!format_texts(files, generated)) {
      report.notes.emplace_back(std::string("clang-format 19 ") +
                                (find_formatter().empty() ? "was not found" : "failed") +
                                ": the generated files are indented, but not formatted");
      p.unformatted.insert(generated.begin(), generated.end());
    }
    report.format_milliseconds = milliseconds_since(start);
  }
  return p;
}

runtime::DType runtime_dtype(ir::DType dtype) {
  const auto found = runtime::dtype_named(ir::name(dtype));
  GRAVEN_CHECK(found, "a dtype without a file format");
  return *found;
}

/// Tensors as safetensors. Returns the file's hash.
std::string write_tensors(const std::string& file, const std::map<std::string, const ir::TensorData*>& tensors) {
  std::vector<runtime::Variable> variables;
  for (const auto& [path, data] : tensors)
    variables.push_back(
        {path, runtime_dtype(data->type.dtype), data->type.shape.maxima(), const_cast<std::byte*>(data->bytes.data())});
  runtime::save_variables(file, variables);
  return runtime::sha256(runtime::MappedFile(file).bytes());
}

/// Parameters, buffers and large constants, in the order of the weights file.
std::map<std::string, const ir::TensorData*> weights_of(const ir::Graph& graph, const Plan& plan,
                                                        const Evaluation* evaluation, const EmitOptions& options,
                                                        std::vector<std::unique_ptr<ir::TensorData>>& owned,
                                                        EmitReport& report) {
  std::map<std::string, const ir::TensorData*> weights;
  std::vector<std::string> made_up;
  const ValueNames values(graph, plan, evaluation ? &evaluation->graph : nullptr);
  if (evaluation) {
    const ValueNames evaluated(evaluation->graph, evaluation->plan, values);
    for (const ir::ValueId v : evaluated.stored())
      if (evaluation->graph.value(v).kind == ir::ValueKind::constant)
        weights[evaluation->graph.value(v).name] = evaluation->graph.constants.at(v).get();
  }
  std::vector<const ir::Value*> missing;
  for (const ir::ValueId v : values.stored())
    if (const ir::Value& value = graph.value(v);
        value.kind != ir::ValueKind::constant && !options.weights.count(value.name))
      missing.push_back(&value);
  require_memory_to_make_up(graph.name, missing);
  for (const ir::ValueId v : values.stored()) {
    const ir::Value& value = graph.value(v);
    if (value.kind == ir::ValueKind::constant) {
      weights[value.name] = graph.constants.at(v).get();
      continue;
    }
    const auto given = options.weights.find(value.name);
    if (given == options.weights.end()) {
      ir::Value whole = value;
      whole.type = ir::whole_type(graph, v);
      owned.push_back(std::make_unique<ir::TensorData>(made_up_weight(whole)));
      weights[value.name] = owned.back().get();
      made_up.push_back(value.name);
      continue;
    }
    if (const ir::TensorType whole = ir::whole_type(graph, v); given->second->type != whole)
      throw UserError(value.name + ": expected " + whole.to_string() + ", the weights given have " +
                      given->second->type.to_string());
    weights[value.name] = given->second.get();
  }
  if (!made_up.empty())
    report.notes.push_back(
        fmt::format("no weights were given for {}{}: small random numbers stand in", made_up[0],
                    made_up.size() > 1 ? fmt::format(" and {} more", made_up.size() - 1) : std::string()));
  return weights;
}

}  // namespace

std::map<std::string, std::string> render_project(const ir::Graph& graph, const EmitOptions& options,
                                                  EmitReport* report) {
  EmitReport local;
  return std::move(prepare(graph, options, report ? *report : local).files);
}

JustInTime render_just_in_time(const ir::Graph& graph, const EmitOptions& options, EmitReport& report) {
  GRAVEN_CHECK(options.jit_entry, "a standalone project");
  Prepared p = prepare(graph, options, report);
  std::string name_space = project_name(p.graph, options);
  return {std::move(p.graph), std::move(p.plan), std::move(p.files), std::move(name_space), std::move(p.measured)};
}

std::vector<ir::CallDescription> describe_calls(const ir::Graph& graph, const std::vector<MeasuredCall>& calls,
                                                const ir::SymbolSizes& sizes) {
  const bool is_symbolic = !graph.symbols().empty();
  const ir::Graph sized = is_symbolic ? ir::with_sizes(graph, sizes) : ir::Graph();
  std::vector<ir::CallDescription> list;
  for (const MeasuredCall& c : calls) {
    ir::Cost cost{c.flops, c.bytes};
    if (is_symbolic && c.node >= 0) cost = ir::cost_of({sized, sized.nodes[at(c.node)]});
    list.push_back({std::string(ir::name(c.phase)), c.module, c.description, c.types, cost.flops, cost.bytes, c.node});
  }
  return list;
}

namespace {

/// The files of tensors as they would be emitted, and their hashes. `place`: where each of them is written.
void add_tensors(Hashes& hashes, const Prepared& p, const std::map<std::string, const ir::TensorData*>& weights,
                 const EmitOptions& options, const std::function<std::string(const char*)>& place) {
  if (!weights.empty()) hashes[kWeightsFile] = write_tensors(place(kWeightsFile), weights);
  if (!p.extent.recorded) return;
  const auto recorded = record(p.graph, p.plan, p.evaluation.get(), options);
  std::map<std::string, const ir::TensorData*> tensors;
  for (const auto& [name, data] : recorded) tensors[name] = &data;
  hashes[kSelfTestFile] = write_tensors(place(kSelfTestFile), tensors);
}

void require_no_conflicts(const OutputFolder& folder, const OutputFolder::Changes& changes, const fs::path& directory,
                          const EmitOptions& options) {
  if (changes.conflicts.empty() || options.force) return;
  constexpr std::size_t kNamed = 20;
  UserError error(fmt::format(
      "{}: {} of the files that would be overwritten {} Graven wrote {}: nothing was written", directory.string(),
      changes.conflicts.size(), changes.conflicts.size() == 1 ? "is not as" : "are not as",
      folder.has_record() ? "it" : "them, as far as can be told: the project has no record of it"));
  for (std::size_t i = 0; i < std::min(kNamed, changes.conflicts.size()); ++i)
    error.note("edited    " + changes.conflicts[i]);
  if (changes.conflicts.size() > kNamed)
    error.note(fmt::format("          and {} more", changes.conflicts.size() - kNamed));
  throw error.note("expected  another folder, or these moved away; --force (EmitOptions::force) writes over them");
}

}  // namespace

EmitReport emit(const ir::Graph& graph, const fs::path& directory, const EmitOptions& options) {
  EmitReport report;
  // What is wrong with the folder is said before the work is done, and a graph that is wrong makes no folder.
  if (std::error_code ignored; fs::exists(directory, ignored))
    OutputFolder(directory, OutputFolder::For::reading).require_project_or_empty();
  Prepared p = prepare(graph, options, report);
  std::vector<std::unique_ptr<ir::TensorData>> owned;
  require_memory_to_record(p.graph, p.evaluation.get(), options);
  const auto weights = weights_of(p.graph, p.plan, p.evaluation.get(), options, owned, report);
  try {
    OutputFolder folder(directory);
    folder.require_project_or_empty();
    Hashes hashes;
    for (const auto& [path, text] : p.files) hashes[path] = hash_of(text);
    require_no_conflicts(folder, folder.compare(hashes), directory,
                         options);  // before tensors are computed and written
    std::string name, staged;
    try {
      add_tensors(hashes, p, weights, options,
                  [&](const char* file) { return name = file, staged = folder.staging(file); });
    } catch (const runtime::Error& e) {  // is said of the file's own name
      std::string text = e.what();
      if (text.starts_with(staged)) text.replace(0, staged.size(), (directory / name).string());
      throw UserError(text);
    }
    const OutputFolder::Changes changes = folder.compare(hashes);
    require_no_conflicts(folder, changes, directory, options);
    folder.begin(hashes);
    report.written = changes.write;
    for (const auto* edited : {&changes.conflicts, &changes.kept})
      for (const std::string& path : *edited)
        (options.force && hashes.count(path) ? report.written : report.kept).push_back(path);
    for (const std::string& path : report.written) {
      const auto text = p.files.find(path);
      text == p.files.end() ? folder.place(path) : folder.write(path, text->second);
    }
    for (const std::string& path : changes.stale) folder.remove(path);
    folder.finish(hashes);
    report.unchanged = changes.unchanged;
    report.removed = changes.stale;
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  } catch (const fs::filesystem_error& e) {
    throw UserError(e.what());
  } catch (const std::bad_alloc&) {
    throw UserError(p.graph.name + ": out of memory while its project was written to " + directory.string());
  }
  std::sort(report.written.begin(), report.written.end());
  return report;
}

namespace {

/// What is wrong with the project's weights.safetensors, whatever its numbers are: "" where nothing is.
std::string weights_differ(const fs::path& path, const std::map<std::string, const ir::TensorData*>& expected) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return expected.empty() ? "" : "is missing";
  try {
    const runtime::SafetensorsFile file(path.string());
    for (const auto& [name, data] : expected) {
      const runtime::SafetensorsEntry* entry = file.find(name);
      if (entry == nullptr) return "has no " + name;
      const std::string dims = ir::Shape::of({entry->shape.begin(), entry->shape.end()}).to_string();
      if (entry->dtype != runtime_dtype(data->type.dtype) || dims != data->type.shape.to_string())
        return fmt::format("{} is {} {}, expected {}", name, entry->dtype_name, dims, data->type.to_string());
    }
    for (const runtime::SafetensorsEntry& entry : file.entries())
      if (!expected.count(entry.name)) return "has " + entry.name + ", which the graph has not";
  } catch (const runtime::Error& e) {
    return std::string("cannot be read: ") + e.what();
  }
  return "";
}

/// The parameters that the project has, of those that are as the graph's.
std::map<std::string, std::shared_ptr<const ir::TensorData>> fitting_weights(const fs::path& path,
                                                                             const ir::Graph& graph) {
  std::map<std::string, std::shared_ptr<const ir::TensorData>> weights;
  if (std::error_code ignored; !fs::exists(path, ignored)) return weights;
  try {
    const runtime::SafetensorsFile file(path.string());
    for (const ir::ValueId v : graph.parameters) {
      const ir::Value& value = graph.value(v);
      const runtime::SafetensorsEntry* entry = file.find(value.name);
      const ir::TensorType type = ir::whole_type(graph, v);
      if (!entry || entry->dtype != runtime_dtype(type.dtype) || entry->shape != type.shape.maxima()) continue;
      const auto bytes = file.bytes(*entry);
      weights[value.name] = std::make_shared<ir::TensorData>(ir::TensorData{type, {bytes.begin(), bytes.end()}});
    }
  } catch (const runtime::Error&) {
    return {};  // said where the file is compared
  }
  return weights;
}

/// A folder that is removed with all that lies in it.
struct Scratch {
  std::string path = (fs::temp_directory_path() / "graven.XXXXXX").string();
  Scratch() {
    if (!::mkdtemp(path.data())) throw UserError(path + ": cannot be made: " + std::strerror(errno));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

std::vector<std::string> check(const fs::path& directory, const EmitOptions& given) {
  EmitOptions options = given;
  if (!options.evaluation) options.evaluation = read_evaluation(directory / "graph.json");
  const ir::Graph graph = ir::read_graph((directory / "graph.json").string());
  if (options.weights.empty()) options.weights = fitting_weights(directory / kWeightsFile, graph);
  return check(graph, directory, options);
}

std::vector<std::string> check(const ir::Graph& graph, const fs::path& directory, const EmitOptions& options,
                               EmitReport* reported) {
  EmitReport local, &report = reported ? *reported : local;
  const Prepared p = prepare(graph, options, report);
  std::vector<std::unique_ptr<ir::TensorData>> owned;
  const auto weights = weights_of(p.graph, p.plan, p.evaluation.get(), options, owned, report);
  std::vector<std::string> differences, untold;
  Hashes hashes;
  for (const auto& [path, text] : p.files) hashes[path] = hash_of(text);
  try {
    const Scratch scratch;
    require_memory_to_record(p.graph, p.evaluation.get(), options);
    add_tensors(hashes, p, weights, options, [&](const char* name) { return scratch.path + "/" + name; });
    const OutputFolder folder(directory, OutputFolder::For::reading);
    const OutputFolder::Changes changes = folder.compare(hashes);
    const std::string misfit = weights_differ(directory / kWeightsFile, weights);
    for (const std::string& path : changes.write)
      if (std::error_code ignored; !fs::exists(directory / path, ignored))
        differences.push_back(path + ": is missing");
      else if (p.unformatted.count(path))
        untold.push_back(path);
      else if (path != kWeightsFile || misfit.empty())
        differences.push_back(path + ": differs");
    for (const std::string& path : changes.conflicts)
      if (p.unformatted.count(path))
        untold.push_back(path);
      else if (path != kWeightsFile || misfit.empty())
        differences.push_back(path + ": differs, and is not as Graven wrote it");
    for (const std::string& path : changes.stale)
      if (path != kSelfTestFile || options.execute) differences.push_back(path + ": is superfluous");
    if (!misfit.empty()) differences.push_back(std::string(kWeightsFile) + ": " + misfit);
    report.kept = changes.kept;
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
  // What differs before it is formatted may be the same after. What is certain is an answer all the same.
  if (differences.empty() && !untold.empty())
    throw UserError(directory.string() + ": cannot be compared: clang-format 19 was not found")
        .note(fmt::format("{} of its files differ before they are formatted: {}{}", untold.size(), untold.front(),
                          untold.size() > 1 ? ", ..." : ""))
        .note("expected  the package clang-format-19; --no-format for a project that was emitted without it");
  for (const std::string& path : untold) differences.push_back(path + ": differs, perhaps for want of clang-format 19");
  return differences;
}

EmitOptions recorded_options(const ir::Graph& graph, const std::string& file) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;  // the programs' own
  EmitOptions options;
  std::set<std::string> known;
  const auto refuse = [&](const std::string& key, const std::string& expected, const std::string& found) {
    throw UserError(
        fmt::format("{}{}config.{}: expected {}, found {}", file, file.empty() ? "" : ": ", key, expected, found));
  };
  const auto read = [&]<class T>(const char* key, T& into) {
    known.insert(key);
    const auto found = graph.config.find(key);
    if (found == graph.config.end()) return;
    const T* value = std::get_if<T>(&found->second);
    if (value)
      into = *value;
    else
      refuse(key, fmt::format("the type {}", ir::name(ir::type_of(ir::Attribute(into)))),
             fmt::format("{}", ir::name(ir::type_of(found->second))));
  };
  const auto read_integer = [&](const char* key, std::int64_t& into, std::int64_t most) {
    read(key, into);
    if (into < 0 || into > most) refuse(key, fmt::format("a number from 0 to {}", most), std::to_string(into));
  };
  const auto read_numbers = [&](const char* key, std::vector<double>& into, bool positive) {
    std::string text = numbers_text(into);
    read(key, text);
    const std::optional<std::vector<double>> numbers = numbers_of(text);
    const auto allowed = [&](double x) { return std::isfinite(x) && (!positive || x > 0); };
    if (!numbers || !std::all_of(numbers->begin(), numbers->end(), allowed))
      refuse(key, std::string("finite numbers") + (positive ? " above 0" : "") + " with spaces between them",
             "'" + text + "'");
    into = *numbers;
  };
  std::string target(target_named({}).name());
  std::int64_t threads = options.threads;
  read("emit.name", options.name);
  read("emit.target", target);
  read_integer("emit.threads", threads, 4096);
  read_integer("emit.memory_budget", options.memory_budget, std::numeric_limits<std::int64_t>::max());
  read_integer("emit.selftest", options.selftest, std::numeric_limits<std::int64_t>::max());
  read_integer("emit.epochs", options.epochs, kMost);
  read_integer("emit.seed", options.seed, kMost);
  read("emit.shuffle", options.shuffle);
  read("emit.data", options.data);
  read("emit.test_data", options.test_data);
  read_numbers("emit.mean", options.mean, false);
  read_numbers("emit.std", options.std, true);
  if (!find_target(target)) refuse("emit.target", target_names(" or "), "'" + target + "'");
  for (const auto& entry : graph.config)
    if (entry.first.starts_with("emit.") && !known.count(entry.first)) {
      std::string keys;
      for (const std::string& key : known) keys += (keys.empty() ? "" : ", ") + key;
      refuse(entry.first, "one of " + keys, "another key");
    }
  options.threads = static_cast<int>(threads);
  options.target = target;
  return options;
}

}  // namespace graven::codegen
