// Versions of one project, which tests build and have live in one process: the same name and interface, other shapes
// and numbers.
#pragma once

#include <graven/graven.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "codegen/build/process.h"

namespace graven::codegen {

/// What is computed; of two versions everything differs. Its kernels take constants, configs and functors by the same
/// names.
struct VersionNet : nn::Module<VersionNet> {
  double scale;
  nn::Conv2d conv;
  nn::Linear hidden, out;
  explicit VersionNet(std::int64_t size)
      : scale(0.5 + 0.25 * static_cast<double>(size)),
        conv(child("conv", nn::Conv2d(2, size, 3))),
        hidden(child("hidden", nn::Linear(size, 4 * size))),
        out(child("out", nn::Linear(4 * size, 3))) {}
  Tensor forward(Tensor x) {
    const Tensor pooled = relu(conv(x)).mean({2, 3});
    return out(relu(hidden(pooled)) * scale + tensor({0.5f, -0.25f, 1.f}).sum() * scale) *
           tensor({scale, 1., -scale}, f32);
  }
};
struct InferVersion : nn::Graph<InferVersion> {
  VersionNet model;
  explicit InferVersion(std::int64_t size) : model(child("model", VersionNet(size))) {}
  Tensor build(Tensor x) { return model(x); }
};
struct TrainVersion : nn::Graph<TrainVersion> {
  VersionNet model;
  optim::SGD optimizer;
  explicit TrainVersion(std::int64_t size)
      : model(child("model", VersionNet(size))),
        optimizer(model.parameters(), {.lr = 0.01 / static_cast<double>(size), .momentum = 0.5}) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

/// Emits the version of this size, called `version`, into the folder.
inline void emit_version(std::int64_t size, bool training, const std::filesystem::path& folder) {
  manual_seed(size);
  const EmitOptions options{.name = "version", .selftest = 0, .format = false};
  if (training) {
    TrainVersion graph(size);
    graph.compile(spec({2, 2, size + 3, 7}, "x"), spec({2}, i64, "labels"));
    emit(graph, folder.string(), options);
  } else {
    InferVersion graph(size);
    graph.compile(spec({Dim("batch", size), 2, size + 3, 7}, "x"));
    emit(graph, folder.string(), options);
  }
}

/// What a library needs that is compiled by hand, or it may not be unloaded: what the standard library's headers define
/// is its own. Else g++ has the process share some of it, and libraries opened with RTLD_GLOBAL share all.
inline std::vector<std::string> shares_nothing(const std::string& compiler) {
  if (compiler.find("clang") != std::string::npos) return {"-Wl,-Bsymbolic"};
  return {"-fno-gnu-unique", "-Wl,-Bsymbolic"};
}

/// What the calls of a project are compiled for, where there is no CMake: docs/emitted_project.md names the flags.
struct ByHand {
  std::string compiler;
  std::vector<std::string> flags = {};  ///< besides
};

/// The project's library as users link it who have no CMake: every source of the library, one command.
inline std::string library_by_hand(const ByHand& how, const std::filesystem::path& project, const std::string& output) {
  std::vector<std::string> command = {how.compiler, "-std=c++20", "-shared", "-fPIC", "-pthread", "-I."};
  command.insert(command.end(), {"-Dgraven=version_graven", "-DGRAVEN_LEVEL_NAMESPACE=isa_base", "-DGRAVEN_HAS_BASE"});
  command.insert(command.end(), how.flags.begin(), how.flags.end());
  for (const auto& file : std::filesystem::directory_iterator(project)) {
    const std::string name = file.path().filename().string();
    if (name.ends_with(".cpp") && name != "main.cpp" && name != "selftest.cpp") command.push_back(name);
  }
  for (const char* name : {"file", "safetensors", "json_reader"})
    if (const std::string path = std::string("runtime/") + name + ".cpp"; std::filesystem::exists(project / path))
      command.push_back(path);
  command.insert(command.end(), {"-o", output});
  const ProcessResult r = run_process(command, {.directory = project.string(), .seconds = 500});
  EXPECT_EQ(r.failure, "") << how.compiler << "\n" << r.output;
  return (project / output).string();
}

/// Compiles tests/emit/host/versions.cpp, which has libraries of versions come and go.
inline std::string build_host_of_versions(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::string program = (folder / "versions").string();
  const ProcessResult r = run_process({GRAVEN_CXX, "-std=c++17", "-O1", "-pthread",
                                       GRAVEN_SOURCE_DIR "/tests/emit/host/versions.cpp", "-ldl", "-o", program},
                                      {.seconds = 200});
  EXPECT_EQ(r.failure, "") << r.output;
  return program;
}

/// A library of a version, with its weights.
struct Version {
  std::string library, weights, alone = {};
};

/// The host, with these libraries, through these steps. Empty, or what is wrong.
inline std::string fault_of_host(const std::string& host, const std::vector<Version>& versions,
                                 const std::vector<std::string>& steps) {
  std::vector<std::string> command = {host};
  for (const Version& v : versions) command.insert(command.end(), {v.library, v.weights, v.alone});
  command.emplace_back("--");
  command.insert(command.end(), steps.begin(), steps.end());
  const ProcessResult r = run_process(command, {.seconds = 100});
  if (r.failure.empty() && r.output == "as it should be\n") return {};
  std::string line;
  for (const std::string& step : steps) line += step + " ";
  return line + r.failure + ": " + r.output;
}

/// What a version computes where there is no other.
inline std::string alone(const std::string& host, const Version& version) {
  const ProcessResult r = run_process({host, version.library, version.weights, "", "--", "l0", "r0"}, {.seconds = 100});
  EXPECT_EQ(r.failure, "") << r.output;
  return r.output.substr(0, r.output.find('\n'));
}

}  // namespace graven::codegen
