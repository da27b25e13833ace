// graven emit: a saved graph becomes a project; with --check, is the project what would be emitted now?
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "codegen/build/tuning.h"
#include "codegen/cli/command.h"
#include "codegen/cli/weights.h"
#include "codegen/emit/evaluation.h"
#include "codegen/emit/project.h"
#include "frontend/eager/oracle.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/passes/pass.h"

// What goes to stderr goes by fputs: fmt::print would throw where nothing can be said, of a project that is written.
namespace graven::cli {

namespace {

struct EmitArguments {
  std::string path, output, target, selftest, tuning, tuned_for;
  codegen::EmitOptions emit;
  std::optional<std::int64_t> memory_budget;
  bool check = false, quiet = false, unformatted = false, no_tuning = false;
};

/// What the arguments say beside what is recorded, and what stands beside the graph.
void apply(const EmitArguments& o, const ir::Graph& graph, const std::string& saved, codegen::EmitOptions& options) {
  const codegen::EmitOptions& given = o.emit;
  if (!given.name.empty()) options.name = given.name;
  if (!o.target.empty()) options.target = o.target;
  if (!given.passes.disabled.empty()) options.passes.disabled = given.passes.disabled;
  options.passes.dump_directory = given.passes.dump_directory;
  options.passes.from = given.passes.from;
  options.passes.to = given.passes.to;
  options.format = !o.unformatted;
  options.force = given.force;
  if (o.memory_budget) options.memory_budget = *o.memory_budget;
  if (!o.selftest.empty()) options.selftest = o.selftest == "off" ? 0 : byte_size(o.selftest).value();
  options.update_in_backward = given.update_in_backward;
  options.data_parallel = given.data_parallel;
  options.zero_stage = given.zero_stage;
  options.shard_min_size = given.shard_min_size;
  options.tensor_parallel = given.tensor_parallel;
  options.weights = load_weights(o.path, graph, saved);
  options.evaluation = codegen::read_evaluation(graph_file(o.path));
  options.execute = eager::reference_run;
}

/// A project is emitted again, and checked, with the options that it was emitted with; a new one with those of the
/// graph.
codegen::EmitOptions options_for(const EmitArguments& o, ir::Graph& graph, const std::string& saved,
                                 const std::string& directory) {
  std::error_code ignored;
  const bool again = std::filesystem::exists(std::filesystem::path(directory) / "graph.json", ignored);
  const std::string file = graph_file(again ? directory : o.path);
  const ir::Graph recorded = again ? ir::read_graph(file) : graph;
  codegen::EmitOptions options = codegen::recorded_options(recorded, file);
  apply(o, graph, saved, options);
  options.update_in_backward = options.update_in_backward || recorded.flag(ir::kUpdateInBackward);
  options.data_parallel = options.data_parallel || recorded.flag(ir::kDataParallel);
  if (const auto stage = recorded.number(ir::kZeroStage); stage && options.zero_stage == 0) {
    options.zero_stage = static_cast<int>(*stage);
    options.shard_min_size = static_cast<std::int64_t>(recorded.number(ir::kShardMinSize).value_or(1024));
  }
  // What was emitted for a device is emitted for it again, elsewhere, too.
  std::string tuned_for = o.tuned_for;
  if (const auto device = recorded.config.find(std::string(ir::kTunedFor));
      tuned_for.empty() && device != recorded.config.end())
    if (const auto* name = std::get_if<std::string>(&device->second)) tuned_for = *name;
  const std::string beside = tuning_file(o.path), measured = o.tuning.empty() ? beside : o.tuning;
  if (!o.no_tuning && (!o.tuning.empty() || std::filesystem::exists(beside, ignored)))
    if (const std::string note =
            codegen::apply_tuning(graph, measured, codegen::target_named(options.target), tuned_for);
        !note.empty())
      std::fputs(("note: " + note + "\n").c_str(), stderr);
  return options;
}

int check_project(const EmitArguments& o) {
  const std::string directory = o.output.empty() ? o.path : o.output;
  std::string saved;
  ir::Graph graph = load_graph(o.path, &saved);
  if (!o.output.empty()) graph_file(directory);  // is there one?
  codegen::EmitReport report;
  const codegen::EmitOptions options = options_for(o, graph, saved, directory);
  const std::vector<std::string> differences = codegen::check(graph, directory, options, &report);
  for (const std::string& path : report.kept) fmt::print("{}: edited, and left so by an emission\n", path);
  for (const std::string& line : differences) fmt::print("{}\n", line);
  if (differences.empty()) {
    fmt::print("{}: as it would be emitted now\n", directory);
    return 0;
  }
  const std::string text = fmt::format(
      "error: {}: {} of its files are not what would be emitted now\n"
      "  graven emit {} -o {} rewrites them, with --force those that were edited, too\n",
      directory, differences.size(), o.path, directory);
  std::fputs(text.c_str(), stderr);
  return 1;
}

int emit(const EmitArguments& o) {
  if (o.check) return check_project(o);
  if (o.output.empty()) throw UserError("where should the project go?").note("expected  -o FOLDER");
  std::string saved;
  ir::Graph graph = load_graph(o.path, &saved);
  const codegen::EmitOptions options = options_for(o, graph, saved, o.output);
  const codegen::EmitReport report = codegen::emit(graph, o.output, options);
  for (const std::string& note : report.notes) std::fputs(("note: " + note + "\n").c_str(), stderr);
  if (!o.quiet) {
    double passes = 0;
    for (const ir::PassTiming& t : report.passes) passes += t.milliseconds;
    fmt::print("{}: {} files written, {} unchanged, {} removed; arena {} bytes (lower bound {})\n", o.output,
               report.written.size(), report.unchanged.size(), report.removed.size(), report.arena_bytes,
               report.lower_bound);
    for (const std::string& path : report.kept) fmt::print("{}: edited, and left so\n", path);
    if (report.evaluation_bytes > 0)
      fmt::print("evaluation: arena {} bytes, in the same memory\n", report.evaluation_bytes);
    fmt::print("passes {:.1f} ms, plan {:.1f} ms, emit {:.1f} ms, format {:.1f} ms\n", passes, report.plan_milliseconds,
               report.emit_milliseconds, report.format_milliseconds);
  }
  return 0;
}

}  // namespace

void add_emit(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("emit", "Writes the standalone project of a saved graph");
  auto o = std::make_shared<EmitArguments>();
  command->add_option("graph", o->path, "A saved graph, an emitted project, or a JSON file at any stage")->required();
  command->add_option("-o,--output", o->output, "The project's folder")->type_name("FOLDER");
  command->add_option("--name", o->emit.name, "Name of the project, its namespace and its program")->type_name("NAME");
  std::vector<std::string> names;
  for (const codegen::Target* target : codegen::targets()) names.emplace_back(target->name());
  command
      ->add_option("--target", o->target,
                   codegen::target_names(" or ") + "; by default what the graph was emitted for before, or else " +
                       std::string(codegen::target_named({}).name()))
      ->type_name("TARGET")
      ->check(CLI::IsMember(names));
  command->add_flag("--check", o->check,
                    "Write nothing; fail when emitting into --output (or into the project given) would change a file");
  command
      ->add_option("--disable", o->emit.passes.disabled,
                   "Passes to leave out, with commas between them (graven passes lists them)")
      ->type_name("PASS")
      ->delimiter(',');
  command->add_option("--from", o->emit.passes.from, "First pass to run")->type_name("PASS");
  command->add_option("--to", o->emit.passes.to, "Last pass to run")->type_name("PASS");
  command->add_option("--dump", o->emit.passes.dump_directory, "Write the graph after every pass into this folder")
      ->type_name("FOLDER");
  command
      ->add_option(
          "--memory-budget", o->memory_budget,
          "Bytes that the arena may take; activations are recomputed so that it does not take more, which is else an "
          "error (0: no limit)")
      ->type_name("BYTES")
      ->check(whole_number(0, std::int64_t{1} << 60));
  command
      ->add_option("--selftest", o->selftest,
                   "Memory that computing what the self-test compares with may take, as in 512M or 16G (default 4G); "
                   "off: two runs are compared")
      ->type_name("SIZE")
      ->check(CLI::Validator(
          [](std::string& text) {
            return text == "off" || byte_size(text)
                       ? std::string()
                       : "expected off, or a number of bytes as in 800000, 512M or 16G, found " + text.substr(0, 100);
          },
          "SIZE"));
  command->add_flag(
      "--update-in-backward", o->emit.update_in_backward,
      "Update each parameter as soon as its gradient is there: one module's gradients in memory at a time");
  command->add_flag(
      "--data-parallel", o->emit.data_parallel,
      "Several ranks, processes that mpirun starts, may share a step, with the gradients' mean over them");
  command
      ->add_option("--zero", o->emit.zero_stage,
                   "Such ranks share the states of optimizers (1), gradients (2), and parameters (3): ZeRO; implies "
                   "--data-parallel")
      ->check(CLI::Range(1, 3));
  command->add_option("--shard-min-size", o->emit.shard_min_size, "Elements of the smallest parameter that they share")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 50));
  command
      ->add_option("--tensor-parallel", o->emit.tensor_parallel,
                   "So many ranks have the tensors of the model in parts, as its weights and inputs are marked "
                   "(set_layout)")
      ->check(CLI::Range(1, 65536));
  command->add_flag(
      "--force", o->emit.force,
      "Write over files of the project that were edited since it was emitted; without it they are an error");
  command
      ->add_option(
          "--tuning", o->tuning,
          "Measured choices of algorithms, as graven tune writes them; tuning.json beside the graph when absent")
      ->type_name("FILE");
  command
      ->add_option("--tuned-for", o->tuned_for,
                   "The device whose entries count, as the file names it; the present one when absent, or what the "
                   "project was emitted for before")
      ->type_name("DEVICE");
  command->add_flag("--no-tuning", o->no_tuning, "Heuristics choose, whatever was measured");
  command->add_flag("--no-format", o->unformatted, "Leave out clang-format");
  command->add_flag("-q,--quiet", o->quiet, "Say nothing but notes and errors");
  command->callback([o, &status] { status = emit(*o); });
}

}  // namespace graven::cli
