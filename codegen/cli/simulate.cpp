// graven simulate: how long a training step takes on a cluster, what it holds and what it sends, for each way of
// sharing it, and which way is best.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "codegen/cli/command.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "codegen/simulate/simulate.h"
#include "ir/diagnostic.h"
#include "ir/passes/pass.h"
#include "ir/passes/passes.h"
#include "ir/sizes.h"

namespace graven::cli {

namespace {

struct Unit {
  std::string_view name;
  double factor, divisor = 1;
};
constexpr Unit kTimes[] = {{"s", 1}, {"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9}};
constexpr Unit kBandwidths[] = {{"B/s", 1},     {"KB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9},
                                {"TB/s", 1e12}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}};
constexpr Unit kFlops[] = {{"FLOP/s", 1}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
constexpr Unit kMemories[] = {{"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},    {"TB", 1e12},
                              {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};

/// A number with one of the units behind it, zero where that is allowed.
template <std::size_t N>
std::optional<double> with_unit(const std::string& text, const Unit (&units)[N], bool zero = false) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || !std::isfinite(value) || value < 0 || (value == 0 && !zero)) return std::nullopt;
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  for (const Unit& u : units)
    if (u.name == unit) return value * u.factor / u.divisor;
  return std::nullopt;
}

struct SimulateArguments {
  std::string path, target, trace, measured;
  codegen::Machine machine;
  std::optional<double> node_bandwidth, node_latency;
  std::vector<std::string> plans;
  std::int64_t accumulation_steps = 1;
  std::optional<std::int64_t> batch;
  bool json = false, no_overlap = false;
};

/// The graph as several ranks train it, through its passes.
ir::Graph lowered(const SimulateArguments& o, const codegen::Target& target) {
  ir::Graph graph = load_graph(o.path);
  if (graph.stage == "trace") {
    graph.config.erase(std::string(ir::kUpdateInBackward));
    graph.config[std::string(ir::kDataParallel)] = true;
  }
  if (o.batch) {
    const ir::TensorType* first = graph.inputs.empty() ? nullptr : &graph.type(graph.inputs[0]);
    const ir::Dim own = first == nullptr || first->shape.empty() ? ir::Dim(1) : first->shape[0];
    const std::vector<ir::Symbol> symbols = own.symbols();
    if (symbols.size() == 1 && own == ir::Dim(symbols[0].name, symbols[0].least, symbols[0].most)) {
      if (const auto wrong = ir::find_wrong_size(ir::size_rules(graph), {{symbols[0].name, *o.batch}}))
        throw UserError("--batch: " + *wrong);
      graph = ir::with_sizes(std::move(graph), {{symbols[0].name, *o.batch}});
    } else if (own.maximum() != *o.batch) {
      throw UserError(
          fmt::format("--batch: expected {}, which the graph is recorded for, found {}", own.to_string(), *o.batch));
    }
  }
  ir::PassOptions passes;
  passes.target = &target.passes;
  ir::finish_passes(graph, passes);
  return graph;
}

/// Of the program's --bench, run on one rank: the median of its steps over what is predicted.
double measured_scale(const std::string& path, double predicted) {
  std::ifstream file(path);
  if (!file) throw UserError(path + ": cannot be read").note("expected  the line that the program's --bench prints");
  double found = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] != '{') continue;
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("ranks", 1) != 1) continue;
    const auto median = json.find("median_ms");
    if (median != json.end() && median->is_number() && median->get<double>() > 0) found = median->get<double>() * 1e-3;
  }
  if (found == 0)
    throw UserError(path +
                    ": expected a line {..., \"median_ms\": N, ...} of one rank, as the program's --bench prints "
                    "it, found none");
  return found / predicted;
}

int simulate(const SimulateArguments& o) {
  std::vector<codegen::SharingPlan> plans;
  for (const std::string& text : o.plans) plans.push_back(codegen::parse_plan(text).value());
  if (!o.trace.empty() && plans.size() != 1)
    throw UserError(fmt::format("--trace: expected one --plan, found {}", plans.size()));
  const codegen::EmitOptions recorded = codegen::recorded_options(load_graph(o.path), graph_file(o.path));
  const codegen::Target& target = codegen::target_named(o.target.empty() ? recorded.target : o.target);
  const ir::Graph graph = lowered(o, target);
  const codegen::Plan plan = codegen::make_plan(graph, target);
  codegen::Machine machine = o.machine;
  machine.overlap = !o.no_overlap;
  machine.node = {o.node_bandwidth.value_or(machine.network.bandwidth),
                  o.node_latency.value_or(machine.network.latency)};
  const std::int64_t batches = machine.ranks * o.accumulation_steps;
  if (!o.measured.empty()) {
    codegen::Machine one = machine;
    one.ranks = 1;
    machine.compute_scale = measured_scale(o.measured, codegen::Simulator(graph, plan, one, 1).seconds_alone());
  }
  codegen::Simulator simulator(graph, plan, machine, batches);
  std::vector<codegen::Prediction> predictions;
  if (!plans.empty()) {
    for (const codegen::SharingPlan& p : plans) predictions.push_back(simulator.predict(p, !o.trace.empty()));
  } else {
    // All that do one thing; of those that do several the best.
    constexpr std::size_t kCombinations = 5;
    std::vector<codegen::Prediction> combined;
    for (const codegen::SharingPlan& p : simulator.possible_plans()) {
      const bool is_plain = (p.stages > 1) + (p.tensor > 1) + (p.zero > 0) <= 1;
      (is_plain ? predictions : combined).push_back(simulator.predict(p));
    }
    for (std::size_t i = 0; i < kCombinations && !combined.empty(); ++i) {
      std::int32_t best = codegen::best_of(combined, machine);
      if (best < 0) break;
      predictions.push_back(std::move(combined[codegen::at(best)]));
      combined.erase(combined.begin() + best);
    }
  }
  if (!o.trace.empty()) write_text(o.trace, codegen::simulation_trace(predictions.at(0)));
  write_text("", o.json ? codegen::simulation_json(predictions, simulator)
                        : codegen::simulation_table(predictions, simulator));
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, int& status) {
  auto* command = app.add_subcommand(
      "simulate", "Predicts a training step's time, memory and bytes sent on a cluster, and proposes how to share it");
  auto o = std::make_shared<SimulateArguments>();
  command->add_option("graph", o->path, "A saved graph, an emitted project, or a JSON file")->required();
  const auto quantity = [&](const char* name, auto& to, const auto& units, bool zero, const char* placeholder,
                            const std::string& example, const std::string& text) {
    return command
        ->add_option_function<std::string>(
            name, [&to, &units, zero](const std::string& given) { to = with_unit(given, units, zero).value(); }, text)
        ->type_name(placeholder)
        ->check(CLI::Validator(
            [&units, zero, example](std::string& given) {
              return with_unit(given, units, zero) ? std::string()
                                                   : "expected " + example + ", found " + given.substr(0, 100);
            },
            placeholder));
  };
  const auto share = [&](const char* name, double& to, const std::string& text) {
    return command
        ->add_option_function<std::string>(
            name, [&to](const std::string& given) { std::from_chars(given.data(), given.data() + given.size(), to); },
            text)
        ->type_name("SHARE")
        ->check(CLI::Validator(
            [](std::string& given) {
              double value = 0;
              const auto [stop, error] = std::from_chars(given.data(), given.data() + given.size(), value);
              const bool good = error == std::errc() && stop == given.data() + given.size() && value > 0 && value <= 1;
              return good ? std::string() : "expected a number above 0, 1 at most, found " + given.substr(0, 100);
            },
            "SHARE"));
  };
  codegen::Machine& m = o->machine;
  command->add_option("--ranks", m.ranks, "How many ranks there are")
      ->type_name("N")
      ->required()
      ->check(whole_number(1, std::int64_t{1} << 20));
  quantity("--bandwidth", m.network.bandwidth, kBandwidths, false, "RATE", "a rate as in 25GB/s or 200Gbit/s",
           "What a rank can send, and receive at the same time")
      ->required();
  quantity("--latency", m.network.latency, kTimes, true, "TIME", "a time as in 5us or 0.1ms",
           "From when a message is sent until its first byte is there")
      ->required();
  command
      ->add_option("--ranks-per-node", m.ranks_a_node,
                   "Neighbours that speak over --node-bandwidth and --node-latency; 1: none")
      ->type_name("N")
      ->check(whole_number(1, std::int64_t{1} << 20))
      ->capture_default_str();
  quantity("--node-bandwidth", o->node_bandwidth, kBandwidths, false, "RATE", "a rate as in 300GB/s or 200Gbit/s",
           "Between ranks of a node; --bandwidth when absent");
  quantity("--node-latency", o->node_latency, kTimes, true, "TIME", "a time as in 5us or 0.1ms",
           "Between ranks of a node; --latency when absent");
  quantity("--flops", m.flops, kFlops, false, "RATE", "a rate as in 312TFLOP/s or 200GFLOP/s",
           "Peak of a rank in the graph's dtype (default: 200GFLOP/s)");
  quantity("--memory-bandwidth", m.memory_bandwidth, kBandwidths, false, "RATE", "a rate as in 2TB/s or 12.5GB/s",
           "Peak of a rank (default: 12.5GB/s)");
  share("--flops-efficiency", m.flops_efficiency, "What programs reach of --flops (default: 0.5)");
  share("--memory-efficiency", m.memory_efficiency, "What programs reach of --memory-bandwidth (default: 0.8)");
  quantity("--call-latency", m.call_latency, kTimes, true, "TIME", "a time as in 5us or 0.1ms",
           "What each kernel's call takes besides its work (default: 0s)");
  command
      ->add_option("--measured", o->measured,
                   "What the program's --bench has printed, on one rank: computation takes as long as there")
      ->type_name("FILE");
  quantity("--memory", m.memory, kMemories, false, "SIZE", "a size as in 80GB or 512MiB",
           "Of a rank; plans that do not fit are not proposed (no limit when absent)");
  command
      ->add_option("--batch", o->batch,
                   "Samples of a batch, where the graph leaves that open; by default the most that it takes")
      ->type_name("N")
      ->check(whole_number(1, std::int64_t{1} << 40));
  command
      ->add_option("--accumulation-steps", o->accumulation_steps,
                   "Batches of a step for each rank, so that one has N times as many in all, whatever the plan")
      ->type_name("M")
      ->check(whole_number(1, std::int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("--plan", o->plans,
                   "data, zero1, zero2, zero3, pipeline:S, tensor:T, or several of them with commas between, as in "
                   "data:8,pipeline:4,tensor:2; more than once for several plans; without it all that are possible are "
                   "looked at")
      ->type_name("PLAN")
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [](std::string& given) {
            return codegen::parse_plan(given) ? std::string()
                                              : "expected data, zero1, zero2, zero3, pipeline:S or tensor:T, or "
                                                "several of them as in data:8,pipeline:4,tensor:2, found " +
                                                    given.substr(0, 100);
          },
          "PLAN"));
  std::vector<std::string> names;
  for (const codegen::Target* target : codegen::targets()) names.emplace_back(target->name());
  command
      ->add_option("--target", o->target,
                   codegen::target_names(" or ") + "; by default what the graph was emitted for before, or else " +
                       std::string(codegen::target_named({}).name()))
      ->type_name("TARGET")
      ->check(CLI::IsMember(names));
  command->add_flag("--no-overlap", o->no_overlap, "What is sent waits until the computation is done");
  command->add_flag("--json", o->json, "Print it as JSON");
  command
      ->add_option("--trace", o->trace,
                   "Write what happens in a step of the plan into this file, which Perfetto and browsers show")
      ->type_name("FILE");
  command->callback([o, &status] { status = simulate(*o); });
}

}  // namespace graven::cli
