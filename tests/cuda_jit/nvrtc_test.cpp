// What just-in-time compilation gives to NVRTC: the texts of emission, byte by byte, and names that the real NVRTC
// finds in them, where it is installed. That needs no GPU.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/build/jit_cuda.h"
#include "codegen/emit/project.h"
#include "codegen/targets/targets.h"
#include "ir/passes/pass.h"
#include "tests/cuda_jit/device.h"
#include "tests/cuda_jit/networks.h"

namespace graven {
namespace {

using cuda_jit::Network;

/// Runs a traced graph once on the stand-in's device, all its tensors being zero, so that all of its kernels are
/// compiled.
void run_once(const ir::Graph& traced, codegen::CudaJitReport& report) {
  const ir::Device device("cuda");
  const auto executable = codegen::compile_on_cuda(traced, {.device = device}, &report);
  ir::Graph graph = traced;  // behind the passes, which add the optimizers' states
  ir::PassOptions options;
  options.target = &codegen::target_named("cuda").passes;
  ir::finish_passes(graph, options);
  std::vector<std::shared_ptr<std::byte>> memory;
  const auto allocate = [&](ir::ValueId v) {
    std::int64_t n = static_cast<std::int64_t>(ir::size_of(graph.type(v).dtype));
    for (const Dim& d : graph.type(v).shape) n *= d.maximum();
    memory.push_back(ir::allocate_on_device(device, static_cast<std::size_t>(n)));
    ir::clear_on_device(device, memory.back().get(), static_cast<std::size_t>(n));
    return std::pair(memory.back().get(), static_cast<std::size_t>(n));
  };
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const auto v = static_cast<ir::ValueId>(i);
    const ir::ValueKind kind = graph.value(v).kind;
    if (kind != ir::ValueKind::parameter && kind != ir::ValueKind::buffer && kind != ir::ValueKind::state) continue;
    const auto [data, bytes] = allocate(v);
    executable->bind(graph.value(v).name, data, bytes);
  }
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<std::int64_t> symbols;
  for (const ir::ValueId v : graph.inputs) inputs.push_back(allocate(v).first);
  for (const ir::ValueId v : graph.outputs) outputs.push_back(allocate(v).first);
  for (const ir::Symbol& s : graph.symbols()) symbols.push_back(s.most);
  ir::StepNumbers numbers{.step = 1, .draw = 1};
  for (const ir::Optimizer& o : graph.optimizers)
    numbers.learning_rates.resize(numbers.learning_rates.size() + o.groups.size());
  executable->run(inputs, outputs, symbols, numbers);
  ir::synchronize_device(device);
}

class CudaJitTexts : public testing::TestWithParam<Network> {};

TEST_P(CudaJitTexts, AreThoseOfEmissionAndCompileWithNvrtc) {
  const cuda_jit::Running running = GetParam().make();
  running.move("cuda");
  std::vector<Tensor> inputs;
  for (const Tensor& x : GetParam().inputs()) inputs.push_back(x.cuda());
  running.call(inputs);
  const nn::GraphBase* const network = running.graph.get();
  codegen::CudaJitReport report;
  run_once(network->graph(), report);
  ASSERT_FALSE(report.kernels.empty());

  codegen::EmitOptions options;
  options.target = "cuda";
  options.format = false;
  options.selftest = 0;
  const std::map<std::string, std::string> emitted = codegen::render_project(network->graph(), options);
  for (const auto& [path, text] : report.files) {
    ASSERT_TRUE(emitted.count(path)) << path;
    const std::string& of_project = emitted.at(path);
    if (path == "configs.h") {
      // A project names its blocks; kernels need the structs of updates' options.
      std::size_t seen = 0;
      for (std::size_t at = text.find("/// The options of"); at != std::string::npos;
           at = text.find("/// The options of", at + 1), ++seen)
        EXPECT_NE(of_project.find(text.substr(at, text.find("};\n", at) + 3 - at)), std::string::npos);
      EXPECT_GT(seen, 0u);
    } else if (path == "functors.h" && network->training()) {
      // A project has what its evaluation computes, too.
      for (std::size_t at = text.find("\nstruct "); at != std::string::npos; at = text.find("\nstruct ", at + 1))
        EXPECT_NE(of_project.find(text.substr(at, text.find("\n};\n", at) - at)), std::string::npos)
            << text.substr(at, 60);
    } else {
      EXPECT_EQ(text, of_project) << path;
    }
  }
  EXPECT_GT(report.files.size(), 3u);

  if (!cuda_jit::compiles_with_nvrtc(report)) GTEST_SKIP() << "no CUDA toolkit: libnvrtc.so cannot be loaded";
}

INSTANTIATE_TEST_SUITE_P(Networks, CudaJitTexts, testing::ValuesIn(cuda_jit::networks()),
                         [](const testing::TestParamInfo<Network>& info) { return info.param.name; });

}  // namespace
}  // namespace graven
