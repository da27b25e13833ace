#include "codegen/build/aot.h"

#include <fstream>
#include <sstream>
#include <thread>

#include "codegen/build/process.h"
#include "ir/diagnostic.h"

namespace graven::codegen {

namespace fs = std::filesystem;

namespace {

std::string last_lines(const std::string& text, int lines) {
  std::size_t at = text.size();
  while (at > 0 && lines > 0)
    if (text[--at] == '\n') --lines;
  return text.substr(at == 0 ? 0 : at + 1);
}

void run_step(const std::vector<std::string>& command, const BuildOptions& options, const std::string& what) {
  const ProcessResult r = run_process(command, {.seconds = options.seconds, .echo = options.echo});
  if (r.failure.empty()) return;
  UserError error(what + (r.timed_out ? " " + r.failure : " failed"));
  std::istringstream lines(last_lines(r.output, 30));
  for (std::string line; std::getline(lines, line);) error.note(line);
  throw error;
}

constexpr const char* kNameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

/// The project's name, from `project(NAME ...)` in its CMakeLists.txt.
std::string program_name(const fs::path& project) {
  std::ifstream in(project / "CMakeLists.txt");
  const std::string command = "project(";
  for (std::string line; std::getline(in, line);) {
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.compare(0, command.size(), command) != 0) continue;
    const std::size_t name = line.find_first_not_of(" \t", command.size());
    if (name == std::string::npos) continue;
    const std::size_t length = line.substr(name).find_first_not_of(kNameCharacters);
    if (length != 0) return line.substr(name, length);
  }
  throw UserError(project.string() + ": is no emitted project: its CMakeLists.txt names no project");
}

}  // namespace

std::string build_project(const fs::path& project, const BuildOptions& options) {
  std::error_code ignored;
  std::error_code failed;
  const bool there = fs::exists(project / "CMakeLists.txt", failed);
  if (failed && failed != std::errc::not_a_directory)
    throw UserError(project.string() + ": cannot be looked at: " + failed.message());
  if (!there)
    throw UserError(project.string() + ": is no emitted project").note("expected  a folder with CMakeLists.txt");
  const std::string name = program_name(project);
  const std::string cmake = find_program("cmake");
  if (cmake.empty()) throw UserError("building needs CMake: no 'cmake' was found in PATH");
  const fs::path build = options.build_directory.empty() ? project / "build" : options.build_directory;
  const int jobs =
      options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::string> configure = {cmake, "-S",           project.string(),
                                        "-B",  build.string(), "-DCMAKE_BUILD_TYPE=" + options.build_type};
  if (!fs::exists(build / "CMakeCache.txt", ignored) && !find_program("ninja").empty())
    configure.insert(configure.end(), {"-G", "Ninja"});
  configure.insert(configure.end(), options.cmake_arguments.begin(), options.cmake_arguments.end());
  run_step(configure, options, project.string() + ": configuring");
  run_step({cmake, "--build", build.string(), "-j", std::to_string(jobs)}, options, project.string() + ": building");
  const fs::path program = build / name;
  if (!fs::exists(program, ignored)) throw UserError(program.string() + ": the build made no program of that name");
  return program.string();
}

}  // namespace graven::codegen
