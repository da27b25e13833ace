// Emitted CUDA projects as tests use them: emitted, built for the emulated device, and run as programs; and what goes
// into these and comes out of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "frontend/eager/oracle.h"
#include "ir/json.h"
#include "ir/passes/derive_evaluation.h"
#include "tests/all_tests.h"
#include "tests/read_text.h"

namespace graven::codegen {

namespace fs = std::filesystem;
using ir::Graph;

inline std::string run(const std::vector<std::string>& command, const fs::path& folder) {
  const ProcessResult r = run_process(command, {.directory = folder.string(), .seconds = 500});
  std::string line;
  for (const auto& c : command) line += c + " ";
  if (r.exit_status != 0)
    throw std::runtime_error(line + "\nstatus " + std::to_string(r.exit_status) + "\n" + r.output);
  return r.output;
}

/// What the program of a sample writes, in a folder of this test's own.
inline fs::path sample(const std::string& name, const std::string& option, const std::vector<std::string>& more = {}) {
  std::string called = std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + "_" + name;
  for (const std::string& word : more) called += "_" + word;
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "cuda_projects" / called;
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::vector<std::string> command = {"/usr/bin/env", "GRAVEN_CACHE=" + (folder / "cache").string(),
                                      GRAVEN_BINARY_DIR "/samples/" + name, option, (folder / "out").string()};
  command.insert(command.end(), more.begin(), more.end());
  run(command, folder);
  return folder / "out";
}

inline Graph graph_in(const fs::path& folder) { return ir::read_graph((folder / "graph.json").string()); }
inline Graph my_linear() { return graph_in(sample("01_my_linear", "--save")); }
inline Graph fit_polynomial() { return graph_in(sample("02_polynomial_fit", "--save")); }
inline Graph lenet_train() { return graph_in(sample("03_lenet", "--out") / "saved/lenet_train"); }
inline Graph lenet_infer() { return graph_in(sample("03_lenet", "--out") / "saved/lenet"); }

/// Version 1.0 of the format, little-endian.
template <class T>
void write_npy(const fs::path& path, const std::string& descr, const std::vector<std::int64_t>& shape,
               const std::vector<T>& values) {
  std::string dims;
  for (const std::int64_t d : shape) dims += std::to_string(d) + ",";
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + dims + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out << "\x93NUMPY" << '\x01' << '\0' << static_cast<char>(header.size() % 256)
      << static_cast<char>(header.size() / 256) << header;
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

/// The floats of a file that the program wrote.
inline std::vector<float> read_npy(const fs::path& path) {
  const std::string text = read_text(path);
  EXPECT_GT(text.size(), 10u) << path;
  if (text.size() <= 10) return {};
  const std::size_t begin = 10 + static_cast<unsigned char>(text[8]) + 256u * static_cast<unsigned char>(text[9]);
  std::vector<float> values((text.size() - begin) / sizeof(float));
  std::memcpy(values.data(), text.data() + begin, values.size() * sizeof(float));
  return values;
}

/// A network emitted for both targets, and the programs.
class Projects {
 public:
  /// `evaluates_apart`: the CUDA project evaluates by a function of its own. `finds_races`: the device hears of each of
  /// its accesses to memory, which takes several times as long. `runs_long`: longer than it takes to optimise it.
  explicit Projects(const std::string& name, const Graph& graph, bool evaluates_apart = false, bool finds_races = false,
                    bool runs_long = false)
      : Projects(name) {
    finds_races_ = finds_races;
    is_optimized_ = runs_long || tests::all_tests();
    emit(graph, folder_ / "cpu", {.name = name, .format = false});
    EmitOptions options{.name = name, .target = "cuda", .execute = eager::reference_run, .format = false};
    if (evaluates_apart) options.evaluation = std::make_shared<Graph>(ir::evaluation_graph(graph));
    emit(graph, folder_ / "cuda", options);
    build();
  }
  /// Emitted by somebody else, who put it there.
  Projects(const std::string& name, const fs::path& on_cpu, const fs::path& on_cuda) : Projects(name) {
    fs::copy(on_cpu, folder_ / "cpu", fs::copy_options::recursive);
    fs::copy(on_cuda, folder_ / "cuda", fs::copy_options::recursive);
    build();
  }
  const fs::path& folder() const { return folder_; }
  /// Runs a program of the project ("selftest", or the name) with these arguments. No CUDA program gives work to the
  /// default stream.
  std::string run(const std::string& target, const std::string& program, const std::vector<std::string>& arguments,
                  const std::string& order = "") {
    std::vector<std::string> command = {"/usr/bin/env", "CUDA_ON_CPU_DEFAULT_STREAM=refuse",
                                        "LD_LIBRARY_PATH=" GRAVEN_STAND_INS};
    if (!order.empty()) command.push_back("CUDA_ON_CPU_ORDER=" + order);
    // A race is one in every order: the self-test, and what runs in this one, tell of it.
    if (program != "selftest" && order != "forward") command.emplace_back("CUDA_ON_CPU_RACES=ignore");
    command.push_back((folder_ / target / program).string());
    command.insert(command.end(), arguments.begin(), arguments.end());
    return codegen::run(command, folder_ / target);
  }
  /// What a run that fails says.
  std::string failure(const std::string& target, const std::string& program,
                      const std::vector<std::string>& arguments) {
    try {
      return "it succeeded: " + run(target, program, arguments);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
  }
  /// A further program that uses the CUDA project's model: what it prints.
  std::string run_user(const std::string& text) {
    compile_user(text);
    return run("cuda", "user", {});
  }
  /// The same, for the test to run: cuda/user in the folder.
  void compile_user(const std::string& text) {
    std::ofstream(folder_ / "cuda/user.cpp") << text;
    link(cuda_, compile(cuda_, "user.cpp"), "user");
  }
  /// The CUDA program, built with -DGRAVEN_NVTX=ON: which ranges it begins ("forward", "model.0: linear") and ends
  /// ("pop"), a line each.
  std::string ranges_of(const std::vector<std::string>& arguments) {
    Compiled compiled = cuda_;
    compiled.options.emplace_back("-DGRAVEN_NVTX");
    compile(compiled, "model_api.cu");
    link(compiled, "main.cpp.o", "with_ranges");
    const fs::path file = folder_ / "cuda/ranges";
    fs::remove(file);
    std::vector<std::string> command = {"/usr/bin/env", "NVTX_RANGES=" + file.string(),
                                        (folder_ / "cuda/with_ranges").string()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    codegen::run(command, folder_ / "cuda");
    return read_text(file);
  }
  /// The CUDA project's self-test, with `to` instead of `from` in one of its files: how it fails.
  std::string fails_with(const std::string& file, const std::string& from, const std::string& to) {
    const std::string text = read_text(folder_ / "cuda" / file);
    const std::size_t at = text.find(from);
    if (at == std::string::npos) return "there is no '" + from + "' in " + file;
    std::ofstream(folder_ / "cuda" / file) << std::string(text).replace(at, from.size(), to);
    Compiled compiled = cuda_;
    compiled.options.insert(compiled.options.end(), {"-w", "-O0"});  // it is run once
    for (std::string& object : compiled.objects) object = compile(compiled, object.substr(0, object.size() - 2));
    link(compiled, "selftest.cpp.o", "selftest_with_fault");
    std::ofstream(folder_ / "cuda" / file) << text;
    return failure("cuda", "selftest_with_fault", {});
  }

 private:
  struct Compiled {
    std::string compiler;
    fs::path at;
    std::vector<std::string> options, libraries, objects;
  };
  explicit Projects(const std::string& name)
      : name_(name), folder_(fs::path(GRAVEN_BINARY_DIR) / "cuda_projects" / name) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void build() {
    std::vector<std::string> options = {"-DGRAVEN_HAS_BASE", "-DGRAVEN_LEVEL_NAMESPACE=isa_base"};
    // CMake gives the name to the calls alone.
    if (GRAVEN_PROJECT_COMPILER_IS_CLANG) options.emplace_back("-Wno-inline-namespace-reopened-noninline");
    build("cpu", ".cpp", std::move(options), {});
    options = {std::string("-I") + GRAVEN_SOURCE_DIR + "/tests/cuda_on_cpu/include", "-Wno-unknown-pragmas"};
    if (finds_races_) {
      options.insert(options.end(), {"-fsanitize=thread", "-g1"});
      if (GRAVEN_CXX_IS_CLANG)
        options.insert(options.end(), {"-mllvm", "-tsan-distinguish-volatile"});
      else
        options.emplace_back("--param=tsan-distinguish-volatile=1");
    }
    cuda_ = build("cuda", ".cu", std::move(options), {GRAVEN_EMULATOR});
  }
  Compiled build(const std::string& target, const std::string& extension, std::vector<std::string> options,
                 std::vector<std::string> libraries) {
    options.insert(options.end(), {"-std=c++20", is_optimized_ ? "-O1" : "-O0", "-Wall", "-Wextra", "-Werror", "-I."});
    if (!is_optimized_ && !finds_races_)
      options.insert(options.end(),
                     {"-include", std::string(GRAVEN_PRECOMPILED "/") + (target == "cuda" ? "device.h" : "host.h")});
    if (GRAVEN_SANITIZED)
      options.insert(options.end(),
                     {"-fsanitize=address,undefined", "-fno-sanitize=alignment", "-fno-sanitize-recover=all", "-g1"});
    // clang++ (14) tells of no copy of a struct.
    const std::string compiler = finds_races_ && target == "cuda" ? GRAVEN_CXX : GRAVEN_PROJECT_COMPILER;
    Compiled compiled{compiler, folder_ / target, std::move(options), std::move(libraries), {}};
    for (const auto& entry : fs::directory_iterator(compiled.at)) {
      const std::string file = entry.path().filename().string();
      if (file.ends_with(extension) && file != "main.cpp" && file != "selftest.cpp")
        compiled.objects.push_back(compile(compiled, file));
    }
    link(compiled, compile(compiled, "main.cpp"), name_);
    link(compiled, compile(compiled, "selftest.cpp"), "selftest");
    return compiled;
  }
  static std::string compile(const Compiled& with, const std::string& file) {
    std::vector<std::string> command = {with.compiler};
    command.insert(command.end(), with.options.begin(), with.options.end());
    command.insert(command.end(), {"-x", "c++", "-c", file, "-o", file + ".o"});
    codegen::run(command, with.at);
    return file + ".o";
  }
  /// The run time is the same text as the library's.
  static void link(const Compiled& with, const std::string& object, const std::string& program) {
    std::vector<std::string> command = {with.compiler, object};
    command.insert(command.end(), with.objects.begin(), with.objects.end());
    command.insert(command.end(), with.libraries.begin(), with.libraries.end());
    if (GRAVEN_SANITIZED) command.emplace_back("-fsanitize=address,undefined");
    // The stand-ins of cuDNN and NCCL, which a program opens, use its device.
    command.insert(command.end(),
                   {std::string(GRAVEN_BINARY_DIR) + "/libgraven.a", "-lpthread", "-rdynamic", "-o", program});
    codegen::run(command, with.at);
  }

  Compiled cuda_;
  bool finds_races_ = false, is_optimized_ = tests::all_tests();
  std::string name_;
  fs::path folder_;
};

/// Losses of each step, from the program's log.
inline std::vector<double> losses(const fs::path& log) {
  std::vector<double> result;
  std::istringstream lines(read_text(log));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json["event"] == "step") result.push_back(json["loss"]);
  }
  return result;
}

/// What the log says of the held-out set after each epoch: loss and accuracy.
inline std::vector<std::pair<double, double>> evaluations(const fs::path& log) {
  std::vector<std::pair<double, double>> result;
  std::istringstream lines(read_text(log));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json["event"] == "epoch") result.emplace_back(json.at("test_loss"), json.at("accuracy"));
  }
  return result;
}

/// The weights and states of all checkpoints in a folder.
inline std::map<std::string, std::string> checkpoints(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".safetensors")
      files[entry.path().lexically_relative(folder).string()] = read_text(entry.path());
  return files;
}

/// How a CUDA program is run: threads in this order, and recorded calls or not.
struct Way {
  const char *order, *option;
};
inline std::vector<std::string> with_option(std::vector<std::string> arguments, const Way& way) {
  if (*way.option != 0) arguments.emplace_back(way.option);
  return arguments;
}

inline void expect_same_losses(const std::vector<double>& cuda, const std::vector<double>& cpu, double tolerance) {
  ASSERT_EQ(cuda.size(), cpu.size());
  ASSERT_FALSE(cpu.empty());
  for (std::size_t i = 0; i < cpu.size(); ++i)
    EXPECT_NEAR(cuda[i], cpu[i], tolerance * std::abs(cpu[i])) << "step " << i + 1;
}

inline std::vector<float> numbers(std::size_t n, double scale) {
  std::vector<float> values;
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back(static_cast<float>(scale * (static_cast<double>(state >> 11) * 0x1p-53 - 0.5)));
  }
  return values;
}

inline constexpr const char* kOrders[] = {"forward", "reverse", "random:7"};

/// `text` with what stands for NAME, TYPE and so on.
inline std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, value] : values)
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
      text.replace(at, name.size(), value);
  return text;
}

}  // namespace graven::codegen
