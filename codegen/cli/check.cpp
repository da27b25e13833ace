// graven check: is a saved graph whole, does it keep its invariants, and do the weights beside it fit?
#include <fmt/format.h>

#include <memory>

#include "codegen/cli/command.h"
#include "codegen/cli/weights.h"
#include "codegen/emit/evaluation.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "ir/passes/pass.h"

namespace graven::cli {

void add_check(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("check", "Reads a saved graph and its weights and says whether they are sound");
  auto path = std::make_shared<std::string>();
  command->add_option("graph", *path, "A saved graph, an emitted project, or a JSON file")->required();
  command->callback([path, &status] {
    std::string saved;
    ir::Graph graph = load_graph(*path, &saved);
    const std::size_t nodes = graph.nodes.size();
    const std::string stage = graph.stage;
    const auto weights = load_weights(*path, graph, saved);
    codegen::EmitOptions emit = codegen::recorded_options(graph, graph_file(*path));
    emit.evaluation = codegen::read_evaluation(graph_file(*path));
    const codegen::Target& target = codegen::target_named(emit.target);
    ir::PassOptions options;
    options.target = &target.passes;
    const ir::Graph given = graph;
    ir::finish_passes(graph, options);  // and it can be compiled
    bool unknown = false;
    const auto evaluation = codegen::make_evaluation(given, graph, emit, unknown);
    const codegen::Plan plan = codegen::make_plan(graph, target);
    fmt::print("{}: sound: {} nodes after {}, {} parameters and buffers{}; compiles to {} steps, arena {} bytes{}\n",
               *path, nodes, stage, graph.parameters.size(),
               weights.empty() ? " (no weights beside it)" : ", weights fit", plan.steps.size(), plan.arena_bytes(),
               evaluation ? fmt::format("; its evaluation to {} steps, arena {} bytes", evaluation->plan.steps.size(),
                                        evaluation->plan.arena_bytes())
               : unknown  ? "; how it is evaluated is not known"
                          : "");
    status = 0;
  });
}

}  // namespace graven::cli
