// graven: what can be done with a saved graph, without the program that made it.
//
//   graven show  saved/                      the graph as text; --format json, svg, png, dot, plan, memory
//   graven check saved/                      is it whole, and do the weights fit?
//   graven emit  saved/ -o lenet/            a standalone project; --check compares instead of writing
//   graven build lenet/                      CMake, configured and built
//   graven run   lenet/ -- --help            builds if need be, runs the program
//   graven simulate saved/ --ranks 8 ...    how long a step takes on a cluster, and how to share it
//   graven tune saved/                      measures algorithms here: tuning.json, which emission reads
//   graven passes, graven ops                what there is
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>

#include "codegen/cli/command.h"
#include "ir/diagnostic.h"
#include "runtime_min/file.h"

int main(int argc, char** argv) {
  graven::runtime::fill_standard_streams();
  CLI::App app{"Graven carves neural networks into standalone C++ and CUDA projects."};
  app.name("graven");
  app.require_subcommand(0, 1);  // none and an unknown one are told apart below
  app.set_version_flag("--version", "graven " GRAVEN_VERSION);
  app.failure_message(CLI::FailureMessage::help);
  app.add_flag_callback(
      "--markdown",
      [&] {
        graven::cli::write_text("", graven::cli::options_markdown(app));
        throw CLI::Success();  // as --help ends
      },
      "Print every command's options as Markdown: the last part of docs/command.md");
  int status = 0;
  graven::cli::add_emit(app, status);
  graven::cli::add_build(app, status);
  graven::cli::add_run(app, status);
  graven::cli::add_show(app, status);
  graven::cli::add_check(app, status);
  graven::cli::add_simulate(app, status);
  graven::cli::add_tune(app, status);
  graven::cli::add_passes(app, status);
  graven::cli::add_ops(app, status);
  try {
    if (argc > 1 && argv[1][0] != '-' &&
        app.get_subcommands([&](const CLI::App* c) { return c->get_name() == argv[1]; }).empty())
      throw CLI::ParseError("there is no command '" + std::string(argv[1]) + "'", 2);
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::ParseError("a command is required", 2);
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& wrong) {
    std::fprintf(stderr, "error: %s\n  graven --help lists the commands, graven COMMAND --help its options\n",
                 wrong.what());
    return 2;
  } catch (const graven::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  } catch (const std::bad_alloc&) {
    // No text is put together here: that would take memory.
    const char* command = argc > 1 ? argv[1] : "";
    const char* argument = argc > 2 && argv[2][0] != '-' ? argv[2] : "";
    std::fprintf(stderr, "error: out of memory in graven %s%s%s\n", command, *argument ? " " : "", argument);
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return status;
}
