// Starts emitted projects as several ranks, with each MPI that is installed where all tests are asked for
// (GRAVEN_ALL_TESTS; tests/run.sh --all), and else with the first.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "graven/graven.h"
#include "tests/all_tests.h"

namespace graven::tests {

struct Launcher {
  std::string name, compiler;
  std::vector<std::string> command;  ///< before the number of ranks
};

inline std::vector<Launcher> launchers() {
  std::vector<Launcher> found;
  // Processors may be fewer than ranks, and tests run as root in containers.
  for (const Launcher& l : {Launcher{"openmpi",
                                     "/usr/bin/mpicxx.openmpi",
                                     {"env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                      "/usr/bin/mpirun.openmpi", "--oversubscribe", "-n"}},
                            Launcher{"mpich", "/usr/bin/mpicxx.mpich", {"/usr/bin/mpiexec.mpich", "-n"}}})
    if (std::filesystem::exists(l.compiler)) found.push_back(l);
  if (!all_tests() && found.size() > 1) found.resize(1);
  return found;
}

/// What programs are called, in whatever folder.
inline const char* const kProgram = "net";

/// Builds the project, or one of its targets, in its folder build-ENGINE.
inline void build_project(const std::filesystem::path& project, const std::string& engine,
                          const std::vector<std::string>& options, const std::string& target = "all") {
  const std::string folder = project.string(), to = folder + "/build-" + engine;
  std::vector<std::string> configure = {
      "cmake", "-S", folder, "-B", to, "-DGRAVEN_LEVELS=base", "-DCMAKE_CXX_FLAGS=-Werror"};
  configure.insert(configure.end(), options.begin(), options.end());
  for (const auto& command : {configure, std::vector<std::string>{"cmake", "--build", to, "-j2", "--target", target}}) {
    const codegen::ProcessResult r = codegen::run_process(command, {.seconds = 600});
    ASSERT_EQ(r.exit_status, 0) << r.output;
  }
}

inline codegen::ProcessResult run_ranks(const Launcher& l, int ranks, const std::string& program,
                                        const std::vector<std::string>& options,
                                        const std::filesystem::path& directory) {
  std::vector<std::string> command = l.command;
  command.push_back(std::to_string(ranks));
  command.push_back(program);
  command.insert(command.end(), options.begin(), options.end());
  return codegen::run_process(command, {.directory = directory.string(), .seconds = 120});
}

/// Starts ranks that train until they are stopped, and, once there is a checkpoint in `out`, sends one of them the
/// signal, "KILL" or "STOP". The others have five seconds to end.
inline codegen::ProcessResult signal_one_rank(const Launcher& l, int ranks, const std::string& program,
                                              const std::vector<std::string>& options, const std::string& signal,
                                              const std::string& out) {
  std::string command;
  for (const std::string& word : l.command) command += word + " ";
  command += std::to_string(ranks) + " " + program;
  for (const std::string& word : options) command += " " + word;
  // The newest process of that name is one of the ranks. It is killed in the end: not every launcher ends what is
  // stopped.
  const std::string newest = "pkill -n -f '^" + program + "' -";
  return codegen::run_process({"bash", "-c",
                               "(" + command + ") & for i in $(seq 100); do [ -e " + out +
                                   "/latest/manifest.json ] && break; sleep 0.1; done; " + newest + signal +
                                   "; sleep 5; " + newest + "KILL; wait $!; echo status $?"},
                              {.directory = std::filesystem::path(out).parent_path().string(), .seconds = 60});
}

/// The largest difference of two files' tensors, relative to the largest of the tensor; without statistics, which are
/// those of the first rank's batches, unless they are `shared`.
inline double difference(const std::string& a, const std::string& b, bool shared = false) {
  double worst = 0;
  const auto of_a = nn::load(a), of_b = nn::load(b);
  EXPECT_EQ(of_a.size(), of_b.size());
  for (std::size_t v = 0; v < of_a.size(); ++v) {
    const auto& [name, t] = of_a[v];
    EXPECT_EQ(of_b[v].first, name);
    if (!shared && (name.find("running") != std::string::npos || name.find("tracked") != std::string::npos)) continue;
    const std::vector<double> x = t.to_vector<double>(), y = of_b[v].second.to_vector<double>();
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      apart = std::max(apart, std::abs(x[i] - y[i]));
    }
    worst = std::max(worst, apart / largest);
  }
  return worst;
}

}  // namespace graven::tests
