// graven show: a graph as text, as JSON, as a picture; its plan and its memory over time.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "codegen/cli/command.h"
#include "codegen/cli/pictures.h"
#include "codegen/emit/evaluation.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "codegen/plan/summary.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/passes/pass.h"
#include "ir/text.h"

namespace graven::cli {

namespace {

struct ShowArguments {
  std::string path, format = "text", output, stage;
  bool evaluation = false;
};

/// Hands DOT text to Graphviz. An argument vector, no shell.
void render_dot(const std::string& dot, const std::string& format, const std::string& output) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) throw UserError("cannot start dot: no pipe");
  const pid_t child = fork();
  if (child < 0) throw UserError("cannot start dot: no process");
  if (child == 0) {
    dup2(pipe_ends[0], 0);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    const std::string type = "-T" + format;
    if (output.empty())
      execlp("dot", "dot", type.c_str(), static_cast<char*>(nullptr));
    else
      execlp("dot", "dot", type.c_str(), "-o", output.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(pipe_ends[0]);
  // A dot that is not there, or fails, reads nothing: its status tells, and the signal of a broken pipe must not end
  // this program before.
  const auto handler = std::signal(SIGPIPE, SIG_IGN);
  std::FILE* in = fdopen(pipe_ends[1], "w");
  if (in) {
    std::fwrite(dot.data(), 1, dot.size(), in);
    std::fclose(in);
  }
  std::signal(SIGPIPE, handler);
  int result = 0;
  waitpid(child, &result, 0);
  if (WIFEXITED(result) && WEXITSTATUS(result) == 127)
    throw UserError("the picture needs Graphviz: its command 'dot' was not found")
        .note("expected  the package graphviz; --format dot prints the text that it would draw");
  if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) throw UserError("dot failed to draw the graph");
}

int show(const ShowArguments& o) {
  ir::Graph graph = load_graph(o.path);
  codegen::EmitOptions emit = codegen::recorded_options(graph, graph_file(o.path));
  emit.evaluation = codegen::read_evaluation(graph_file(o.path));
  ir::PassOptions passes;
  const codegen::Target& target = codegen::target_named(emit.target);
  passes.target = &target.passes;
  if (o.evaluation) {
    if (graph.losses.empty()) throw UserError(o.path + ": has no loss to evaluate: it does not train");
    if (graph.stage == "trace")
      graph = ir::evaluation_graph(graph);
    else if (emit.evaluation)
      graph = *emit.evaluation;
    else if (ir::evaluation_differs(graph))
      throw UserError(o.path + ": how the graph is evaluated is not known")
          .note("expected  the graph at the stage 'trace', or " + std::string(codegen::kEvaluationFile) + " beside it");
    else
      throw UserError(o.path + ": the graph is evaluated by its forward phase; there is no other graph to show");
    for (const char* pass : {"prepare_weights", "choose_winograd"})
      passes.disabled.emplace_back(pass);  // as make_evaluation has it
  }
  if (!o.stage.empty()) {
    if (o.stage != "final") passes.to = o.stage;
    ir::finish_passes(graph, passes);
  }
  if (o.format == "text") {
    write_text(o.output, ir::to_text(graph));
  } else if (o.format == "json") {
    write_text(o.output, ir::to_json(graph));
  } else if (o.format == "dot") {
    write_text(o.output, codegen::graph_picture(graph));
  } else if (o.format == "svg" || o.format == "png") {
    if (o.format == "png" && o.output.empty())
      throw UserError("a PNG picture goes to a file").note("expected  -o FILE.png");
    render_dot(codegen::graph_picture(graph), o.format, o.output);
  } else {
    passes.to.clear();  // a plan is of the graph after all of them
    const ir::Graph given = graph;
    ir::finish_passes(graph, passes);
    const codegen::Plan plan = codegen::make_plan(graph, target, o.evaluation);
    if (o.format == "memory") {
      std::int64_t before = 0;
      if (codegen::recomputation_of(graph, plan).steps > 0 && given.stage == "trace") {
        ir::Graph whole = given;
        passes.disabled.emplace_back("recompute_activations");
        ir::finish_passes(whole, passes);
        before = codegen::make_plan(whole, target).arena_bytes();
      }
      write_text(o.output, codegen::memory_picture(graph, plan, before));
      return 0;
    }
    std::string text = codegen::memory_table(graph, plan);
    bool unknown = false;
    if (const auto evaluation = codegen::make_evaluation(given, graph, emit, unknown))
      text += fmt::format("\nThe evaluation, in the same memory, which takes {} bytes:\n",
                          std::max(plan.arena_bytes(), evaluation->plan.arena_bytes())) +
              codegen::memory_table(evaluation->graph, evaluation->plan);
    write_text(o.output, text);
  }
  return 0;
}

}  // namespace

void add_show(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("show", "Shows a graph: as text, JSON or a picture, and where its memory goes");
  auto options = std::make_shared<ShowArguments>();
  command->add_option("graph", options->path, "A saved graph, an emitted project, or a JSON file")->required();
  command
      ->add_option("-f,--format", options->format,
                   "text, json, dot, svg or png (Graphviz, grouped by module); plan: the buffers as a table; memory: "
                   "the arena over time, as SVG")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json", "dot", "svg", "png", "plan", "memory"}))
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "Where to write; the screen when absent")->type_name("FILE");
  command->add_flag("--evaluation", options->evaluation, "Show the network as a training project evaluates it");
  command->add_option("--after", options->stage, "Show the graph after this pass ('final': after the last)")
      ->type_name("PASS");
  command->callback([options, &status] { status = show(*options); });
}

}  // namespace graven::cli
