// Ahead of time: configures and builds an emitted project with CMake.
//
//   const std::string program = codegen::build_project("lenet/", {.jobs = 2});     // "lenet/build/lenet"
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace graven::codegen {

struct BuildOptions {
  std::filesystem::path build_directory = {};  ///< empty: `<project>/build`
  std::string build_type = "Release";
  int jobs = 0;  ///< 0: one a processor
  std::vector<std::string> cmake_arguments = {};
  bool echo = false;      ///< show what CMake and the compiler say as they say it
  double seconds = 1800;  ///< limit for each of the two steps
};

/// Returns the path of the program. User error when the folder is no emitted project, CMake is missing, or the build
/// fails (with the end of its output).
std::string build_project(const std::filesystem::path& project, const BuildOptions& options = {});

}  // namespace graven::codegen
