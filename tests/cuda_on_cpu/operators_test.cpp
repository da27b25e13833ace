// The one list of operators' cases on one more backend: everything that CUDA has kernels for is emitted as one CUDA
// project, compiled against the emulated device, run, and compared with the reference kernels in double.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "ir/diagnostic.h"
#include "tests/all_tests.h"
#include "tests/ops/compare.h"

namespace graven::tests {
namespace {

namespace fs = std::filesystem;
using ir::TensorData;
using ir::ValueId;

/// Operators that CUDA has no kernel for: passes make them, for CPUs alone, and for ranks that have tensors in parts.
const std::set<std::string> kWithoutKernel = {"conv2d_winograd", "fused_reduction", "inverted_residual"};

/// Of an operator, where not all tests are asked for.
constexpr std::size_t kSomeCases = 6;

void run(const std::vector<std::string>& command, const fs::path& folder) {
  const codegen::ProcessResult r = codegen::run_process(command, {.directory = folder.string(), .seconds = 800});
  if (r.exit_status != 0)
    throw std::runtime_error(command[0] + ": status " + std::to_string(r.exit_status) + "\n" + r.output);
}

const codegen::EmitOptions kOptions{.name = "batch", .target = "cuda", .format = false};

/// Whether the cases, and their gradients where they have them, can be emitted for CUDA.
bool have_kernels(const std::vector<NamedCase>& cases) {
  for (const bool gradients : {false, true}) {
    Batch batch = make_batch(cases, gradients);
    // Something comes in, whatever the operators.
    batch.graph.outputs.push_back(
        batch.graph.call("relu", {batch.graph.add_input("present", {ir::DType::f32, {1}})}, {}, {}));
    try {
      codegen::render_project(batch.graph, kOptions);
    } catch (const UserError& e) {
      const std::string what = e.what();
      EXPECT_NE(what.find("CUDA"), std::string::npos) << cases[0].name << ": " << what;
      // f32 kernels compute what those of half types do not.
      for (const char* half : {"does not take f16", "does not take bf16"})
        EXPECT_EQ(what.find(half), std::string::npos) << cases[0].name << ": " << what;
      return false;
    }
  }
  return true;
}

std::size_t bytes_of(const ir::TensorType& type) {
  return static_cast<std::size_t>(type.shape.numel().value()) * ir::size_of(type.dtype);
}

/// A program that reads all inputs from one file, runs the model, and writes all outputs into another.
std::string host_program(const ir::Graph& graph) {
  std::ostringstream text;
  text << "#include <cstdio>\n#include <cstdlib>\n#include <memory>\n#include <vector>\n#include \"model.h\"\n"
          "struct Any {\n  void* data;\n  template <class T>\n  operator T*() const { return static_cast<T*>(data); "
          "}\n};\n"
          "static Any memory(std::size_t bytes) { return {std::calloc(bytes + 64, 1)}; }\n"
          "static Any read(std::FILE* file, std::size_t bytes) {\n  const Any any = memory(bytes);\n"
          "  if (std::fread(any.data, 1, bytes, file) != bytes) std::abort();\n  return any;\n}\n"
          "int main() {\n  std::FILE* in = std::fopen(\"inputs\", \"rb\");\n  std::FILE* out = std::fopen(\"outputs\", "
          "\"wb\");\n"
          "  std::vector<Any> x, y;\n";
  for (const ValueId v : graph.inputs) text << "  x.push_back(read(in, " << bytes_of(graph.type(v)) << "));\n";
  for (const ValueId v : graph.outputs) text << "  y.push_back(memory(" << bytes_of(graph.type(v)) << "));\n";
  // The first call is recorded; what is written is what the second one, which replays it, finds.
  text << "  batch::Model model(std::make_shared<const batch::Weights>(\"\"));\n"
          "  for (int call = 0; call < 2; ++call) model.forward(";
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) text << (i > 0 ? ", " : "") << "x[" << i << "]";
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) text << ", y[" << i << "]";
  text << ");\n";
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    text << "  std::fwrite(y[" << i << "].data, 1, " << bytes_of(graph.type(graph.outputs[i])) << ", out);\n";
  text << "  return std::fclose(out);\n}\n";
  return text.str();
}

std::string bytes_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Computed run_on_cuda(const ir::Graph& graph, const std::vector<TensorData>& inputs) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "cuda_projects" / ("operators_" + graph.name);
  fs::remove_all(folder);
  codegen::emit(graph, folder, kOptions);
  std::ofstream(folder / "host.cu") << host_program(graph);
  {
    std::ofstream file(folder / "inputs", std::ios::binary);
    for (const TensorData& t : inputs)
      file.write(reinterpret_cast<const char*>(t.bytes.data()), static_cast<std::streamsize>(t.bytes.size()));
  }
  std::vector<std::string> objects;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(".cu")) continue;
    run({GRAVEN_PROJECT_COMPILER, "-std=c++20", "-O0", "-w", "-I.",
         std::string("-I") + GRAVEN_SOURCE_DIR + "/tests/cuda_on_cpu/include", "-include",
         GRAVEN_PRECOMPILED "/device.h", "-x", "c++", "-c", file, "-o", file + ".o"},
        folder);
    objects.push_back(file + ".o");
  }
  std::vector<std::string> link = {GRAVEN_PROJECT_COMPILER};
  link.insert(link.end(), objects.begin(), objects.end());
  const std::string library = std::string(GRAVEN_BINARY_DIR) + "/libgraven.a";
  link.insert(link.end(), {GRAVEN_EMULATOR, library, "-lpthread", "-rdynamic", "-o", "host"});
  run(link, folder);
  // The device's threads and blocks may run in any order: the bits are the same.
  std::string forward;
  for (const char* order : {"forward", "random:5"}) {
    run({"/usr/bin/env", "LD_LIBRARY_PATH=" GRAVEN_STAND_INS, std::string("CUDA_ON_CPU_ORDER=") + order, "./host"},
        folder);
    const std::string bytes = bytes_in(folder / "outputs");
    EXPECT_TRUE(forward.empty() || bytes == forward) << "other bits in the order " << order;
    forward = bytes;
  }
  Computed result;
  std::istringstream file(forward);
  for (const ValueId v : graph.outputs) {
    TensorData data{graph.type(v), std::vector<std::byte>(bytes_of(graph.type(v)))};
    file.read(reinterpret_cast<char*>(data.bytes.data()), static_cast<std::streamsize>(data.bytes.size()));
    if (!file) throw std::runtime_error("the program wrote too little");
    result.outputs.push_back(std::move(data));
  }
  return result;
}

TEST(CudaOperators, ComputeWhatTheReferenceDoes) {
  std::map<std::string, std::vector<NamedCase>> by_operator;
  for (NamedCase& c : cases_to_compile()) by_operator[std::string(c.op->name)].push_back(std::move(c));
  std::vector<NamedCase> cases;
  std::set<std::string> without;
  for (auto& [name, of_operator] : by_operator) {
    // All at once, and one by one where one of them is refused: a dtype that the kernel does not take.
    if (!have_kernels(of_operator)) std::erase_if(of_operator, [](const NamedCase& c) { return !have_kernels({c}); });
    if (of_operator.empty()) without.insert(name);
    // To compile them is most of the work: of those with many, some that lie apart, where not all are asked for.
    const std::size_t step = all_tests() ? 1 : (of_operator.size() + kSomeCases - 1) / kSomeCases;
    for (std::size_t i = 0; i < of_operator.size(); i += step) cases.push_back(std::move(of_operator[i]));
  }
  EXPECT_EQ(without, kWithoutKernel);
  const Backend cuda{"CUDA on the emulated device", run_on_cuda, true};
  for (const bool gradients : {false, true}) compare_batch(cuda, cases, gradients);
}

}  // namespace
}  // namespace graven::tests
