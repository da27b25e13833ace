// Running a program: an argument vector, no shell; its output captured; a limit on its time.
//
//   const ProcessResult r = run_process({"c++", "--version"}, {.seconds = 10});
//   if (!r.failure.empty()) throw UserError("c++ " + r.failure).note(r.output);
//
// When this process ends, however it does, so does what it waits for.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace graven::codegen {

struct ProcessOptions {
  std::string directory = {};          ///< where it runs; empty: here
  double seconds = 600;                ///< then it and its children are killed
  bool echo = false;                   ///< pass its output on to the screen instead of capturing it
  std::size_t output_limit = 1 << 20;  ///< bytes of output that are kept: the first half and the last half
};

struct ProcessResult {
  int exit_status = -1;  ///< 127: it could not be started; 128 + N: ended by signal N
  bool timed_out = false;
  std::string failure = {};  ///< empty, or to follow its name: "takes longer than 20 s", "fails with exit status 1"
  std::string output;        ///< stdout and stderr as they came
};

/// User error when there is no process to be had. Standard input is empty.
ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

/// The path of a program in PATH; empty when there is none.
std::string find_program(const std::string& name);

}  // namespace graven::codegen
