#include "codegen/emit/project.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <sstream>

#include "codegen/emit/embedded.h"
#include "codegen/emit/evaluation.h"
#include "codegen/emit/format.h"
#include "codegen/emit/project_data.h"
#include "codegen/emit/record.h"
#include "codegen/emit/render.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "runtime_min/error.h"
#include "runtime_min/file.h"
#include "runtime_min/safetensors.h"
#include "runtime_min/sha256.h"

namespace graven::codegen {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

/// Runs the passes that the graph has not been through, for the target of the project.
std::vector<ir::PassTiming> finish_passes(ir::Graph& graph, const EmitOptions& options) {
  ir::PassOptions passes = options.passes;
  passes.target = options.target;
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
  c["emit.target"] = std::string(options.target == ir::Target::cuda ? "cuda" : "cpu");
  c["emit.threads"] = static_cast<std::int64_t>(options.threads);
  c["emit.memory_budget"] = options.memory_budget;
  c["emit.epochs"] = options.epochs;
  c["emit.seed"] = options.seed;
  c["emit.shuffle"] = options.shuffle;
  c["emit.data"] = options.data;
  c["emit.test_data"] = options.test_data;
  c["emit.mean"] = numbers_text(options.mean);
  c["emit.std"] = numbers_text(options.std);
}

std::string sha256_of(const std::string& text) { return runtime::sha256(std::as_bytes(std::span(text.data(), text.size()))); }

/// The files that `path` includes between quotes, resolved like the compiler does.
std::vector<std::string> includes_of(const std::string& path, std::string_view text) {
  std::vector<std::string> found;
  for (std::size_t at = text.find("#include \""); at != std::string_view::npos; at = text.find("#include \"", at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    const std::size_t begin = at + 10, end = text.find('"', begin);
    if (end == std::string_view::npos) break;
    found.push_back((fs::path(path).parent_path() / std::string(text.substr(begin, end - begin))).lexically_normal().generic_string());
  }
  return found;
}

/// Adds kernels/ and runtime/ files with everything that they include. runtime/x.h brings runtime/x.cpp.
void add_copied(std::map<std::string, std::string>& files, std::vector<std::string> wanted) {
  while (!wanted.empty()) {
    const std::string path = wanted.back();
    wanted.pop_back();
    if (files.count(path)) continue;
    const bool runtime = path.compare(0, 8, "runtime/") == 0;
    const std::string_view text = embedded_text(runtime ? "runtime_min/" + path.substr(8) : path);
    files.emplace(path, text);
    for (std::string& included : includes_of(path, text)) wanted.push_back(std::move(included));
    if (runtime && path.ends_with(".h")) {
      const std::string source = path.substr(0, path.size() - 2) + ".cpp";
      if (find_embedded("runtime_min/" + source.substr(8))) wanted.push_back(source);
    }
  }
}

std::string sources_in(const std::map<std::string, std::string>& files, const std::set<std::string>& without) {
  std::string text;
  for (const auto& [path, content] : files)
    if (path.compare(0, 8, "runtime/") == 0 && path.ends_with(".cpp") && !without.count(path)) text += (text.empty() ? "" : " ") + path;
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
  std::map<std::string, std::string> files;
  std::set<std::string> unformatted;  ///< generated files that are to be formatted, but for want of the formatter are not
};

void require_budget(const Plan& plan, const EmitOptions& options, const char* what) {
  if (options.memory_budget > 0 && plan.arena_bytes > options.memory_budget)
    throw UserError(fmt::format("the {} takes {} bytes, the memory budget is {}", what, plan.arena_bytes, options.memory_budget))
        .note(fmt::format("no placement can take less than {} bytes for this graph", plan.lower_bound));
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
      throw UserError(fmt::format("the pass '{}' cannot be left out: the graph {} has been through it", pass, graph.name))
          .note("emit the graph as it was saved");
  // The first of the passes that a target makes a difference to.
  if (graph.config.count("emit.target") && is_past(graph, "choose_layout") && recorded_options(graph).target != options.target) {
    const bool for_cuda = options.target == ir::Target::cuda;
    throw UserError(fmt::format("the graph {} has been through the passes for {}: it cannot be emitted for {}", graph.name,
                                for_cuda ? "the CPU" : "CUDA", for_cuda ? "CUDA" : "the CPU"))
        .note("emit the graph as it was saved");
  }
}

void ask_for_update_in_backward(ir::Graph& graph) {
  if (graph.optimizers.empty()) throw UserError("update_in_backward: the graph " + graph.name + " has no optimizer, so there is no update");
  if (graph.stage == ir::pipeline().back().name && !graph.flag(ir::kUpdateInBackward))
    throw UserError("update_in_backward: the graph " + graph.name + " has been through all passes").note("emit the graph as it was saved");
  graph.config[std::string(ir::kUpdateInBackward)] = true;
}

Prepared prepare(const ir::Graph& traced, const EmitOptions& options, EmitReport& report) {
  Prepared p{traced, {}, {}, {}, {}};
  require_passes_to_come(traced, options);
  if (options.update_in_backward) ask_for_update_in_backward(p.graph);
  record_options(p.graph, options);  // first: dumps can be emitted likewise
  report.passes = finish_passes(p.graph, options);

  auto start = Clock::now();
  p.plan = make_plan(p.graph, options.target);
  verify_plan(p.graph, p.plan);
  report.plan_milliseconds = milliseconds_since(start);
  report.arena_bytes = p.plan.arena_bytes;
  report.lower_bound = p.plan.lower_bound;
  require_budget(p.plan, options, "arena");

  bool unknown = false;
  p.evaluation = make_evaluation(traced, p.graph, options, unknown);
  if (unknown)
    report.notes.emplace_back(
        "the graph behaves otherwise when it is evaluated, and how is only known of its trace, or with the evaluation.json beside it: the project "
        "will not take a held-out set");
  if (p.evaluation) {
    require_budget(p.evaluation->plan, options, "arena of an evaluation");
    report.evaluation_bytes = p.evaluation->plan.arena_bytes;
    if (!options.passes.dump_directory.empty())
      ir::write_graph((fs::path(options.passes.dump_directory) / kEvaluationFile).string(), p.evaluation->graph);
  }

  start = Clock::now();
  const std::string graph_text = ir::to_json(p.graph);
  ProjectData data = make_project_data(p.graph, p.plan, p.evaluation.get(), unknown, options, sha256_of(graph_text));
  for (const ir::ValueId v : data.stored_constants) report.constants.emplace(p.graph.value(v).name, p.graph.constants.at(v));
  nlohmann::json& d = data.common;
  const std::string kind = data.training ? "train" : "infer";
  const TargetStyle style = target_style(options.target);
  auto& files = p.files;
  std::vector<std::string> generated;
  auto add = [&](const std::string& path, const std::string& template_name) {
    files[path] = render("project/" + template_name, d);
    generated.push_back(path);
  };
  d["level_choice"] = render("project/" + style.folder + "levels.inc", d);
  d["c_interface"] = render("project/" + kind + "/c_interface.inc", d);
  add("params.h", "params.h");
  add("memory_plan.h", "memory_plan.h");
  if (p.evaluation) {
    files["evaluation_plan.h"] = render("project/memory_plan.h", data.evaluation_plan);
    generated.emplace_back("evaluation_plan.h");
    files[kEvaluationFile] = ir::to_json(p.evaluation->graph);
  }
  if (d["uses_configs"]) add("configs.h", "configs.h");
  if (d["has_functors"]) add("functors.h", "functors.h");
  add("program.h", "program.h");
  add("model.h", kind + "/model.h");
  // A rendering costs time in proportion to all of its data: the files of calls see none of the long lists.
  nlohmann::json brief = nlohmann::json::object();
  for (const auto& [key, value] : d.items())
    if (key != "configs" && key != "functors" && key != "parameter_lines" && key != "arena_lines" && key != "evaluation_configs" &&
        key != "inline_constants")
      brief[key] = value;
  for (ModelFile& file : data.files) {
    brief["file"] = std::move(file.data);
    files[file.path] = render("project/model.cpp", brief);
    generated.push_back(file.path);
  }

  add_copied(files, data.headers);
  if (options.jit_entry) {
    if (options.target != ir::Target::cpu) throw UserError("just-in-time compilation is for the CPU");
    files["jit.cpp"] = render("jit/jit.cpp", d);
  } else {
    add("model_api" + style.model_extension, style.folder + kind + "/model_api" + style.model_extension);
    add("main.cpp", kind + "/main.cpp");
    add("selftest.cpp", kind + "/selftest.cpp");
    // What the model's library needs of the run time; then what only the program needs.
    add_copied(files, {"runtime/arena.h", "runtime/safetensors.h", "runtime/tensor.h", "runtime/compare.h", "runtime/file.h"});
    d["model_runtime_sources"] = sources_in(files, {});
    std::set<std::string> before;
    for (const auto& [path, text] : files) before.insert(path);
    add_copied(files, {"runtime/" + kind + ".h"});
    d["main_runtime_sources"] = sources_in(files, before);
    std::set<std::string> busy, others = before;
    for (const auto& [path, text] : files) (busy_sources().count(path) ? others : busy).insert(path);
    busy.insert(before.begin(), before.end());
    d["busy_runtime_sources"] = sources_in(files, busy);
    d["other_runtime_sources"] = sources_in(files, others);
    d["install"] = render("project/install.cmake", d);
    files["CMakeLists.txt"] = render("project/" + style.folder + "CMakeLists.txt", d);
    files["README.md"] = render("project/README.md", d);
    files["graph.json"] = graph_text;
    for (const char* copied : {"kernels/", "runtime/"}) files[std::string(copied) + "LICENSE"] = embedded_text("LICENSE");
  }
  report.emit_milliseconds = milliseconds_since(start);

  if (options.format) {
    start = Clock::now();
    if (!format_texts(files, generated)) {
      report.notes.emplace_back(std::string("clang-format 19 ") + (find_formatter().empty() ? "was not found" : "failed") +
                                ": the generated files are indented, but not formatted");
      p.unformatted.insert(generated.begin(), generated.end());
    }
    report.format_milliseconds = milliseconds_since(start);
  }
  return p;
}

bool read_file(const fs::path& path, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  std::ostringstream all;
  all << in.rdbuf();
  text = all.str();
  return !in.bad();
}

/// Writes `text` unless the file already holds it. True when it was written.
bool write_if_changed(const fs::path& path, const std::string& text) {
  std::string old;
  if (read_file(path, old) && old == text) return false;
  // Whole or not at all. Not forced to disk: a project that a power cut damages is emitted again.
  const fs::path fresh = path.string() + fmt::format(".tmp.{}", getpid());
  {
    std::ofstream out(fresh, std::ios::binary);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) {
      const int reason = errno;
      std::error_code ignored;
      fs::remove(fresh, ignored);
      throw UserError(path.string() + ": cannot be written: " + std::strerror(reason));
    }
  }
  std::error_code failed, ignored;
  fs::rename(fresh, path, failed);
  if (failed) {
    fs::remove(fresh, ignored);
    throw UserError(path.string() + ": cannot be written: " + failed.message());
  }
  return true;
}

runtime::DType runtime_dtype(ir::DType dtype) {
  const auto found = runtime::dtype_named(ir::name(dtype));
  GRAVEN_CHECK(found, "a dtype without a file format");
  return *found;
}

/// Tensors as safetensors, written when they differ from what the file holds.
bool write_tensors(const fs::path& path, const std::map<std::string, const ir::TensorData*>& tensors) {
  std::vector<runtime::Variable> variables;
  for (const auto& [name, data] : tensors)
    variables.push_back({name, runtime_dtype(data->type.dtype), data->type.shape.maxima(), const_cast<std::byte*>(data->bytes.data())});
  const fs::path fresh = path.string() + ".new";
  runtime::save_variables(fresh.string(), variables);
  std::string now, old;
  if (!read_file(fresh, now)) throw UserError(fresh.string() + ": cannot be read back");
  if (read_file(path, old) && old == now) {
    fs::remove(fresh);
    return false;
  }
  fs::rename(fresh, path);
  return true;
}

/// Parameters, buffers and large constants, in the order of the weights file.
std::map<std::string, const ir::TensorData*> weights_of(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation,
                                                        const EmitOptions& options, std::vector<std::unique_ptr<ir::TensorData>>& owned,
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
    if (const ir::Value& value = graph.value(v); value.kind != ir::ValueKind::constant && !options.weights.count(value.name))
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
      owned.push_back(std::make_unique<ir::TensorData>(made_up_weight(value)));
      weights[value.name] = owned.back().get();
      made_up.push_back(value.name);
      continue;
    }
    if (given->second->type != value.type)
      throw UserError(value.name + ": expected " + value.type.to_string() + ", the weights given have " + given->second->type.to_string());
    weights[value.name] = given->second.get();
  }
  if (!made_up.empty())
    report.notes.push_back(fmt::format("no weights were given for {}{}: small random numbers stand in", made_up[0],
                                       made_up.size() > 1 ? fmt::format(" and {} more", made_up.size() - 1) : std::string()));
  return weights;
}

/// Files of an earlier emission that this one no longer has. Only what emission names itself is looked at.
std::vector<std::string> stale_files(const fs::path& directory, const std::map<std::string, std::string>& files) {
  std::vector<std::string> stale;
  std::error_code ignored;
  for (const char* folder : {"kernels", "runtime"})
    for (auto it = fs::recursive_directory_iterator(directory / folder, ignored); it != fs::recursive_directory_iterator(); it.increment(ignored)) {
      if (ignored) break;
      const std::string path = it->path().lexically_relative(directory).generic_string();
      if (it->is_regular_file(ignored) && !files.count(path)) stale.push_back(path);
    }
  for (auto it = fs::directory_iterator(directory, ignored); !ignored && it != fs::directory_iterator(); it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    const bool calls = name.rfind("model_", 0) == 0 || name.rfind("evaluation.", 0) == 0 || name.rfind("evaluation_", 0) == 0;
    const bool ours = name == "functors.h" || name == "configs.h" || name == kEvaluationFile || name == "evaluation_plan.h" ||
                      (calls && (name.ends_with(".cpp") || name.ends_with(".cu")));
    if (ours && !files.count(name)) stale.push_back(name);
  }
  std::sort(stale.begin(), stale.end());
  return stale;
}

}  // namespace

std::map<std::string, std::string> render_project(const ir::Graph& graph, const EmitOptions& options, EmitReport* report) {
  EmitReport local;
  return std::move(prepare(graph, options, report ? *report : local).files);
}

namespace {

/// A project is written into a new or empty folder, or over a graph or project of Graven's: never among files of somebody else's, since what an
/// earlier emission left behind is removed.
void require_ours(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::exists(directory, ignored)) return;
  if (!fs::is_directory(directory, ignored)) throw UserError(directory.string() + ": is a file; a project needs a folder");
  std::string text;
  const bool readable = read_file(directory / "graph.json", text);
  if (!readable && fs::exists(directory / "graph.json", ignored))
    throw UserError((directory / "graph.json").string() + ": cannot be read: is this folder Graven's?");
  if (readable && text.find("\"graven.graph\"") != std::string::npos) return;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().starts_with("graph.json.tmp.")) continue;  // an emission that was killed before it had written anything else
    throw UserError(directory.string() + ": is not empty, and holds no graph of Graven's")
        .note("expected  a new folder, an empty one, or one that a project was emitted into before")
        .note("found     " + entry.path().filename().string());
  }
}

}  // namespace

EmitReport emit(const ir::Graph& graph, const fs::path& directory, const EmitOptions& options) {
  require_ours(directory);
  EmitReport report;
  Prepared p = prepare(graph, options, report);
  std::vector<std::unique_ptr<ir::TensorData>> owned;
  require_memory_to_record(p.graph, p.evaluation.get(), options);
  const auto weights = weights_of(p.graph, p.plan, p.evaluation.get(), options, owned, report);
  try {
    runtime::make_directories(directory.string());
    // The graph first where there is none: a folder that was left half written, by a full disk say, is then known for Graven's and can be emitted
    // again.
    const bool first = !fs::exists(directory / "graph.json") && write_if_changed(directory / "graph.json", p.files.at("graph.json"));
    for (const auto& [path, text] : p.files) {
      runtime::make_directories((directory / path).parent_path().string());
      const bool written = write_if_changed(directory / path, text) || (first && path == "graph.json");
      (written ? report.written : report.unchanged).push_back(path);
    }
    if (!weights.empty())
      (write_tensors(directory / "weights.safetensors", weights) ? report.written : report.unchanged).emplace_back("weights.safetensors");
    if (options.execute) {
      const auto recorded = record(p.graph, p.plan, p.evaluation.get(), options);
      std::map<std::string, const ir::TensorData*> tensors;
      for (const auto& [name, data] : recorded) tensors[name] = &data;
      (write_tensors(directory / "selftest.safetensors", tensors) ? report.written : report.unchanged).emplace_back("selftest.safetensors");
    }
    report.removed = stale_files(directory, p.files);
    for (const std::string& path : report.removed) runtime::remove_path((directory / path).string());
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  } catch (const fs::filesystem_error& e) {
    throw UserError(e.what());
  } catch (const std::bad_alloc&) {
    throw UserError(p.graph.name + ": out of memory while its project was written to " + directory.string());
  }
  std::sort(report.written.begin(), report.written.end());
  std::sort(report.unchanged.begin(), report.unchanged.end());
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

}  // namespace

std::vector<std::string> check(const fs::path& directory, const EmitOptions& given) {
  EmitOptions options = given;
  if (!options.evaluation) options.evaluation = read_evaluation(directory / "graph.json");
  return check(ir::read_graph((directory / "graph.json").string()), directory, options);
}

std::vector<std::string> check(const ir::Graph& graph, const fs::path& directory, const EmitOptions& options) {
  EmitReport report;
  const Prepared p = prepare(graph, options, report);
  std::vector<std::string> differences, untold;
  for (const auto& [path, text] : p.files) {
    std::string old;
    if (!read_file(directory / path, old))
      differences.push_back(path + ": is missing");
    else if (old != text && p.unformatted.count(path))
      untold.push_back(path);
    else if (old != text)
      differences.push_back(path + ": differs");
  }
  for (const std::string& path : stale_files(directory, p.files)) differences.push_back(path + ": is superfluous");
  std::vector<std::unique_ptr<ir::TensorData>> owned;
  const std::string weights =
      weights_differ(directory / "weights.safetensors", weights_of(p.graph, p.plan, p.evaluation.get(), options, owned, report));
  if (!weights.empty()) differences.push_back("weights.safetensors: " + weights);
  if (std::error_code ignored; options.execute && !fs::exists(directory / "selftest.safetensors", ignored))
    differences.emplace_back("selftest.safetensors: is missing");
  // What differs before it is formatted may be the same after. What is certain is an answer all the same.
  if (differences.empty() && !untold.empty())
    throw UserError(directory.string() + ": cannot be compared: clang-format 19 was not found")
        .note(fmt::format("{} of its files differ before they are formatted: {}{}", untold.size(), untold.front(), untold.size() > 1 ? ", ..." : ""))
        .note("expected  the package clang-format-19; --no-format for a project that was emitted without it");
  for (const std::string& path : untold) differences.push_back(path + ": differs, perhaps for want of clang-format 19");
  return differences;
}

EmitOptions recorded_options(const ir::Graph& graph, const std::string& file) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;  // the programs' own
  EmitOptions options;
  std::set<std::string> known;
  const auto refuse = [&](const std::string& key, const std::string& expected, const std::string& found) {
    throw UserError(fmt::format("{}{}config.{}: expected {}, found {}", file, file.empty() ? "" : ": ", key, expected, found));
  };
  const auto read = [&]<class T>(const char* key, T& into) {
    known.insert(key);
    const auto found = graph.config.find(key);
    if (found == graph.config.end()) return;
    const T* value = std::get_if<T>(&found->second);
    if (value)
      into = *value;
    else
      refuse(key, fmt::format("the type {}", ir::name(ir::type_of(ir::Attribute(into)))), fmt::format("{}", ir::name(ir::type_of(found->second))));
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
      refuse(key, std::string("finite numbers") + (positive ? " above 0" : "") + " with spaces between them", "'" + text + "'");
    into = *numbers;
  };
  std::string target = "cpu";
  std::int64_t threads = options.threads;
  read("emit.name", options.name);
  read("emit.target", target);
  read_integer("emit.threads", threads, 4096);
  read_integer("emit.memory_budget", options.memory_budget, std::numeric_limits<std::int64_t>::max());
  read_integer("emit.epochs", options.epochs, kMost);
  read_integer("emit.seed", options.seed, kMost);
  read("emit.shuffle", options.shuffle);
  read("emit.data", options.data);
  read("emit.test_data", options.test_data);
  read_numbers("emit.mean", options.mean, false);
  read_numbers("emit.std", options.std, true);
  if (target != "cpu" && target != "cuda") refuse("emit.target", "cpu or cuda", "'" + target + "'");
  for (const auto& entry : graph.config)
    if (entry.first.starts_with("emit.") && !known.count(entry.first)) {
      std::string keys;
      for (const std::string& key : known) keys += (keys.empty() ? "" : ", ") + key;
      refuse(entry.first, "one of " + keys, "another key");
    }
  options.threads = static_cast<int>(threads);
  options.target = target == "cuda" ? ir::Target::cuda : ir::Target::cpu;
  return options;
}

}  // namespace graven::codegen
