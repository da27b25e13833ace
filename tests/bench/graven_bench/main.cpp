// graven-bench: builds a workload from the C++ frontend, emits and builds its project, runs the emitted program's own
// benchmark, and prints one JSON line with the keys of tests/bench/peers/bench.py, plus FLOPs and bytes of the plan.
//
//   build/graven-bench lenet-train --threads 2 --seconds 5
//   build/graven-bench lenet-train --target cuda                                 on the GPU
//   build/graven-bench lenet-train --target cuda --emit-only --directory lenet   its project, to be built elsewhere
//   build/graven-bench --list
//   build/graven-bench --machine          the machine's limits: GFLOP/s in registers, GB/s of copying
//   build/graven-bench --scale            trace + passes + plan + emit of a synthetic graph of 1k, 10k, 100k nodes
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "codegen/build/aot.h"
#include "codegen/build/cache.h"
#include "codegen/build/process.h"
#include "codegen/build/tuning.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/passes/pass.h"
#include "ir/rank_layout.h"
#include "ir/stages.h"
#include "machine.h"
#include "scale.h"
#include "workloads.h"

namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

/// Six digits: what a clock knows of a median.
double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

/// What the command line says.
struct Settings {
  std::string workload, directory, save, tuning;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  double seconds = 5;
  std::string target;
  std::string amp;  ///< empty: as recorded
  bool data_parallel = false;
  int zero_stage = 0;
  int stages = 1;
  int tensor_ranks = 1;
  bool emit_only = false;
};

/// GPT-2's blocks in so many stages, with the embeddings in the first and the logits in the last one.
void split_blocks(graven::ir::Graph& graph, int stages) {
  std::vector<std::string> blocks;
  for (const graven::ir::ModuleInfo& m : graph.modules)
    if (m.class_name == "GPT2Block") blocks.push_back(m.path);
  if (blocks.size() < static_cast<std::size_t>(stages))
    throw graven::UserError("--stages: expected a workload that trains GPT-2, with a block for each stage, found " +
                            std::to_string(blocks.size()) + " blocks");
  const auto put = [&](const std::string& module, std::size_t stage) {
    graph.config[std::string(graven::ir::kStageOf) + module] = static_cast<std::int64_t>(stage);
  };
  const auto count = static_cast<std::size_t>(stages);
  for (std::size_t b = 0; b < blocks.size(); ++b) put(blocks[b], b * count / blocks.size());
  for (const graven::ir::ModuleInfo& m : graph.modules) {
    if (m.class_name == "GPT2Model") put(m.path, 0);
    if (m.class_name == "TiedLinear" || m.path.ends_with(".ln_f")) put(m.path, count - 1);
  }
  graph.config.erase(std::string(graven::ir::kUpdateInBackward));
}

/// GPT-2's blocks in parts: some columns of what a product gives, heads among them, and the rows of the next one.
void split_weights(graven::ir::Graph& graph) {
  bool found = false;
  for (const graven::ir::ModuleInfo& m : graph.modules) {
    if (m.class_name != "GPT2Block") continue;
    found = true;
    for (const auto& [weight, layout] : {std::pair("attn.c_attn", "split(1)"), std::pair("attn.c_proj", "split(0)"),
                                         std::pair("mlp.c_fc", "split(1)"), std::pair("mlp.c_proj", "split(0)")})
      graph.config[std::string(graven::ir::kLayoutOf) + m.path + "." + weight + ".weight"] = std::string(layout);
  }
  if (!found) throw graven::UserError("--tensor-parallel: expected a workload that trains GPT-2");
}

int bench(const Settings& settings) {
  const std::string& name = settings.workload;
  std::string directory = settings.directory;
  const auto start = Clock::now();
  graven::bench::Workload workload = graven::bench::make_workload(name);
  const bool on_gpu = settings.target == "cuda", ranks = settings.data_parallel || settings.zero_stage > 0;
  // A device updates all parameters in one launch, which is faster than one for each gradient.
  if (on_gpu) workload.graph.config.erase(std::string(graven::ir::kUpdateInBackward));
  if (!settings.amp.empty())
    workload.graph.config[std::string(graven::ir::kAmp)] = *graven::ir::dtype_from_name(settings.amp);
  if (!settings.save.empty()) {
    fs::create_directories(settings.save);
    graven::ir::write_graph(settings.save + "/graph.json", workload.graph);
    return 0;
  }
  if (!settings.tuning.empty()) {
    const std::string note =
        graven::codegen::apply_tuning(workload.graph, settings.tuning, graven::codegen::target_named(settings.target));
    if (!note.empty()) std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  if (directory.empty()) {
    std::string base = graven::codegen::ArtefactCache::default_directory();
    if (base.empty()) base = fs::temp_directory_path() / "graven";
    directory = base + (on_gpu ? "/bench-cuda/" : "/bench/") + name + settings.amp + (ranks ? "-ranks" : "") +
                (settings.stages > 1 ? "-stages" : "") + (settings.tensor_ranks > 1 ? "-parts" : "") +
                (settings.tuning.empty() ? "" : "-tuned");
  }
  fs::create_directories(directory);
  // A gradient that is used up within backward has no mean over ranks.
  if (ranks) workload.graph.config.erase(std::string(graven::ir::kUpdateInBackward));
  if (settings.stages > 1) split_blocks(workload.graph, settings.stages);
  if (settings.tensor_ranks > 1) split_weights(workload.graph);
  graven::codegen::EmitOptions options;
  options.name = "bench";
  options.weights = workload.weights;
  options.target = settings.target;
  options.data_parallel = ranks;
  options.zero_stage = settings.zero_stage;
  if (settings.tensor_ranks > 1) options.tensor_parallel = settings.tensor_ranks;
  graven::codegen::emit(workload.graph, directory, options);
  if (settings.emit_only) return 0;
  const std::string program = graven::codegen::build_project(directory);
  const double first = std::chrono::duration<double>(Clock::now() - start).count();

  const bool training = !workload.graph.optimizers.empty();
  char text[32];
  std::snprintf(text, sizeof text, "%g", settings.seconds);
  std::vector<std::string> command = {program};
  if (!on_gpu) command.insert(command.end(), {"--threads", std::to_string(settings.threads)});
  if (training)
    command.insert(command.end(), {"--bench-seconds", text});
  else
    command.insert(command.end(), {"--bench", text, "--json"});
  const graven::codegen::ProcessResult r =
      graven::codegen::run_process(command, {.directory = directory, .seconds = settings.seconds * 10 + 60});
  const std::size_t brace = r.output.find("\n{") == std::string::npos ? r.output.find('{') : r.output.find("\n{") + 1;
  if (r.exit_status != 0 || brace == std::string::npos) throw graven::UserError(program + " failed").note(r.output);
  const auto measured = nlohmann::ordered_json::parse(r.output.substr(brace, r.output.find('\n', brace) - brace));

  graven::ir::Graph lowered = workload.graph;
  graven::ir::PassOptions passes;
  const graven::codegen::Target& target = graven::codegen::target_named(settings.target);
  passes.target = &target.passes;
  graven::ir::run_passes(lowered, passes);
  const graven::codegen::Plan plan = graven::codegen::make_plan(lowered, target);
  const nlohmann::ordered_json line = {{"peer", on_gpu ? "graven-cuda" : "graven"},
                                       {"workload", name},
                                       {"threads", settings.threads},
                                       {"runs", measured.at("runs")},
                                       {"median_ms", rounded(measured.at("median_ms"))},
                                       {"min_ms", rounded(measured.at("min_ms"))},
                                       {"first_ms", rounded(first * 1e3)},
                                       {"rss_mb", rounded(measured.at("rss_mb"))},
                                       {"flops", plan.flops},
                                       {"bytes", plan.bytes},
                                       {"arena_bytes", plan.arena_bytes()},
                                       {"arena_lower_bound", plan.lower_bound()}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times Graven's emitted programs; prints one JSON line each"};
  app.name("graven-bench");
  Settings settings;
  bool list = false, machine = false, scale = false;
  app.add_option("workload", settings.workload, "One of --list");
  app.add_option("--threads", settings.threads, "Threads of the emitted program")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--seconds", settings.seconds, "How long to measure")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--target", settings.target, "What it runs on: cpu (the default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag(
      "--data-parallel", settings.data_parallel,
      "Ranks may share a step: with --emit-only, build the project with -DGRAVEN_MPI=ON and start it by mpirun");
  app.add_option("--zero", settings.zero_stage,
                 "Such ranks share the states of optimizers (1), gradients (2), and parameters (3)")
      ->check(CLI::Range(1, 3));
  app.add_option("--tensor-parallel", settings.tensor_ranks,
                 "Ranks that have GPT-2's weights in parts, likewise with --emit-only")
      ->check(CLI::Range(1, 64));
  app.add_option("--stages", settings.stages,
                 "Stages of a pipeline that GPT-2's blocks are split into, likewise with --emit-only")
      ->check(CLI::Range(1, 64));
  app.add_option("--amp", settings.amp, "Mixed precision in bf16 or f16, as enable_amp asks for it")
      ->check(CLI::IsMember({"bf16", "f16"}));
  app.add_flag("--emit-only", settings.emit_only, "Write the project, and neither build nor time it");
  app.add_option("--directory", settings.directory, "Where the project is emitted; default: in the cache");
  app.add_option("--save", settings.save, "Write the workload's graph into this folder, for graven tune, and end");
  app.add_option("--tuning", settings.tuning, "A file of measured choices, as graven tune writes it");
  app.add_flag("--list", list, "Print the workloads");
  app.add_flag("--machine", machine, "Measure the machine's limits");
  app.add_flag("--scale", scale, "Time trace, passes, plan and emission of synthetic graphs of 1,000 to 100,000 nodes");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    if (list) {
      for (const std::string& name : graven::bench::workload_names()) std::printf("%s\n", name.c_str());
      return 0;
    }
    if (machine) {
      const graven::bench::MachineLimits limits = graven::bench::measure_machine(settings.threads);
      std::printf(
          "%s\n",
          nlohmann::ordered_json{{"threads", settings.threads}, {"gflops", limits.gflops}, {"gbps", limits.gbps}}
              .dump()
              .c_str());
      return 0;
    }
    if (scale) return graven::bench::measure_scale();
    if (settings.workload.empty()) {
      std::fprintf(stderr, "error: which workload? graven-bench --list names them\n");
      return 2;
    }
    return bench(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
