// A folder of the build tree in which a test emits projects, builds them and trains with them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/projects/data.h"
#include "tests/projects/launchers.h"

namespace graven::tests {

class Workplace {
 public:
  explicit Workplace(const std::string& name) : folder_(fs::path(GRAVEN_BINARY_DIR) / name) {}

  /// Empty.
  void begin() const {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  const fs::path& folder() const { return folder_; }
  std::string path(const std::string& of) const { return (folder_ / of).string(); }
  std::string program(const std::string& project, const Launcher& l) const {
    return (folder_ / project / ("build-" + l.name) / kProgram).string();
  }
  void build(const std::string& project, const Launcher& l) const {
    build_project(folder_ / project, l.name, {"-DGRAVEN_MPI=ON", "-DMPI_CXX_COMPILER=" + l.compiler});
  }
  codegen::ProcessResult run(const std::string& project, const Launcher& l, int ranks,
                             const std::vector<std::string>& options) const {
    return run_ranks(l, ranks, program(project, l), options, folder_);
  }
  /// Trains from the seed 5, with one thread a rank; the checkpoints lie in `out`.
  void train(const std::string& project, const Launcher& l, int ranks, const std::string& out,
             const std::vector<std::string>& more) const {
    std::vector<std::string> options = {"--out", path(out), "--seed", "5", "--threads", "1"};
    options.insert(options.end(), more.begin(), more.end());
    const codegen::ProcessResult r = run(project, l, ranks, options);
    EXPECT_EQ(r.exit_status, 0) << r.output;
  }

  /// What the last checkpoints hold, within rounding; and bit for bit.
  void expect_near(const std::string& a, const std::string& b, double bound) const {
    for (const char* file : {"/latest/weights.safetensors", "/latest/optimizer.safetensors"})
      EXPECT_LT(difference(path(a) + file, path(b) + file), bound) << a << ", " << b << file;
  }
  void expect_same(const std::string& a, const std::string& b) const {
    for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
      EXPECT_EQ(read_file(path(a) + "/latest/" + file), read_file(path(b) + "/latest/" + file)) << b << ": " << file;
  }

 private:
  fs::path folder_;
};

}  // namespace graven::tests
