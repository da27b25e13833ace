// graven tune: measures the algorithms that a graph could take on this machine, and writes the fastest into
// tuning.json.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "codegen/build/tuning.h"
#include "codegen/cli/command.h"
#include "codegen/cli/weights.h"
#include "codegen/emit/project.h"
#include "codegen/targets/targets.h"

namespace graven::cli {

namespace {

struct TuneArguments {
  std::string path, output;
  codegen::TuneOptions tune;
};

std::string table(const codegen::TuneReport& report) {
  std::string text;
  for (const ir::TuningEntry& e : report.entries) {
    const std::string& heuristics = report.heuristics.at(e.choice);
    text += e.choice + ": " + e.chosen + (e.chosen == heuristics ? "" : ", not " + heuristics) + "\n";
    for (const auto& [candidate, time] : e.milliseconds) text += fmt::format("  {:9.3g} ms  {}\n", time, candidate);
  }
  return text;
}

int tune(const TuneArguments& o) {
  std::string saved;
  const ir::Graph graph = load_graph(o.path, &saved);
  codegen::TuneOptions options = o.tune;
  if (options.target.empty()) options.target = codegen::recorded_options(graph, graph_file(o.path)).target;
  options.target = codegen::target_named(options.target).name();
  options.weights = load_weights(o.path, graph, saved);
  const std::string file = o.output.empty() ? tuning_file(o.path) : o.output;
  std::error_code ignored;
  std::vector<ir::TuningEntry> before;  // read first: a damaged file is said before the work is done
  if (std::filesystem::exists(file, ignored)) before = ir::read_tuning(file);
  const codegen::TuneReport report = codegen::tune(graph, options);
  write_text(file, ir::tuning_text(codegen::merged(report.entries, before)));
  std::size_t changed = 0;
  for (const ir::TuningEntry& e : report.entries) changed += e.chosen != report.heuristics.at(e.choice);
  fmt::print("{}", table(report));
  if (report.slower_together)
    fmt::print("what was faster by itself was slower together: heuristics' choices stay\n");
  fmt::print("{}: {} choices, {} other than heuristics'; a step {:.3g} ms, by heuristics {:.3g} ms\n", file,
             report.entries.size(), changed, report.milliseconds_after, report.milliseconds_before);
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, int& status) {
  auto* command = app.add_subcommand(
      "tune", "Measures a graph's choices of algorithms on this machine, and writes what emission then takes");
  auto o = std::make_shared<TuneArguments>();
  command->add_option("graph", o->path, "A saved graph, or a JSON file")->required();
  command->add_option("-o,--output", o->output, "The file; tuning.json beside the graph when absent")
      ->type_name("FILE");
  std::vector<std::string> names;
  for (const codegen::Target* target : codegen::targets()) names.emplace_back(target->name());
  command
      ->add_option("--target", o->tune.target,
                   codegen::target_names(" or ") + "; by default what the graph was emitted for before, or else " +
                       std::string(codegen::target_named({}).name()))
      ->type_name("TARGET")
      ->check(CLI::IsMember(names));
  command->add_option("--threads", o->tune.threads, "Of the program, on a processor; 0: how many is measured, too")
      ->type_name("N")
      ->check(whole_number(0, 4096))
      ->capture_default_str();
  command->add_option("--rounds", o->tune.rounds, "In which all candidates take turns; the least time of each counts")
      ->type_name("N")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  command->callback([o, &status] { status = tune(*o); });
}

}  // namespace graven::cli
