// graven build, graven run: an emitted project, configured and built; its program, run.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "codegen/build/aot.h"
#include "codegen/cli/command.h"
#include "ir/diagnostic.h"

namespace graven::cli {

namespace {

struct BuildArguments {
  std::string project;
  codegen::BuildOptions build;
  std::vector<std::string> arguments;
};

void add_common(CLI::App* command, BuildArguments& o) {
  command->add_option("project", o.project, "An emitted project")->required();
  command->add_option("--type", o.build.build_type, "CMake's build type")->type_name("TYPE")->capture_default_str();
  command->add_option("-j,--jobs", o.build.jobs, "Compilers at once; 0: one a processor")
      ->type_name("N")
      ->check(whole_number(0, 4096))
      ->capture_default_str();
}

/// Becomes the program: its output and its status are ours, and the signals that are sent to us are its own.
[[noreturn]] void run_program(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw UserError(program + ": cannot be started: " + std::strerror(errno));
}

}  // namespace

void add_build(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("build", "Configures and builds an emitted project with CMake");
  auto o = std::make_shared<BuildArguments>();
  add_common(command, *o);
  command->add_flag("-v,--verbose", o->build.echo, "Show what CMake and the compiler say");
  command->callback([o, &status] {
    fmt::print("{}\n", codegen::build_project(o->project, o->build));
    status = 0;
  });
}

void add_run(CLI::App& app, int& /*the program's own*/) {
  auto* command = app.add_subcommand(
      "run", "Builds an emitted project if need be and runs its program: graven run PROJECT -- --help");
  auto o = std::make_shared<BuildArguments>();
  add_common(command, *o);
  command->add_option("arguments", o->arguments, "Passed to the program; put them after --");
  command->callback([o] { run_program(codegen::build_project(o->project, o->build), o->arguments); });
}

}  // namespace graven::cli
