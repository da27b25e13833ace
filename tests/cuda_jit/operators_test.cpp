// The one list of operators' cases on one more backend: everything that CUDA has kernels for, in one graph, whose
// kernels are compiled just in time and run on the emulated device, compared with the reference kernels in double.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "codegen/build/jit_cuda.h"
#include "codegen/emit/project.h"
#include "ir/diagnostic.h"
#include "tests/cuda_jit/device.h"
#include "tests/ops/compare.h"

namespace graven::tests {
namespace {

using ir::TensorData;
using ir::ValueId;

const ir::Device kDevice("cuda");

/// Whether the cases, and their gradients where they have them, have kernels and launchers.
bool have_kernels(const std::vector<NamedCase>& cases) {
  for (const bool gradients : {false, true}) {
    Batch batch = make_batch(cases, gradients);
    // Something comes in, whatever the operators.
    batch.graph.outputs.push_back(
        batch.graph.call("relu", {batch.graph.add_input("present", {ir::DType::f32, {1}})}, {}, {}));
    try {
      (void)codegen::compile_on_cuda(batch.graph, {.device = kDevice});
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

Computed run_on_device(const ir::Graph& graph, const std::vector<TensorData>& inputs) {
  codegen::CudaJitReport report;
  const auto executable = codegen::compile_on_cuda(graph, {.device = kDevice}, &report);
  std::vector<std::shared_ptr<std::byte>> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const TensorData& t : inputs) {
    memory.push_back(ir::allocate_on_device(kDevice, t.bytes.size()));
    ir::copy_to_device(kDevice, memory.back().get(), t.bytes.data(), t.bytes.size());
    in.push_back(memory.back().get());
  }
  for (const ValueId v : graph.outputs) {
    memory.push_back(ir::allocate_on_device(kDevice, bytes_of(graph.type(v))));
    out.push_back(memory.back().get());
  }
  // The second call replays what the first one has recorded.
  for (int call = 0; call < 2; ++call) executable->run(in, out, {}, {});
  EXPECT_GT(report.kernels.size(), 100u);
  // Some cases divide by zero, or ask whether an unsigned number is negative.
  (void)cuda_jit::compiles_with_nvrtc(report, true);
  Computed result;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const ir::TensorType& type = graph.type(graph.outputs[i]);
    TensorData data{type, std::vector<std::byte>(bytes_of(type))};
    ir::copy_to_host(kDevice, data.bytes.data(), static_cast<std::byte*>(out[i]), data.bytes.size());
    result.outputs.push_back(std::move(data));
  }
  return result;
}

TEST(CudaJitOperators, ComputeWhatTheReferenceDoes) {
  std::map<std::string, std::vector<NamedCase>> by_operator;
  for (NamedCase& c : cases_to_compile()) by_operator[std::string(c.op->name)].push_back(std::move(c));
  std::vector<NamedCase> cases;
  for (auto& [name, of_operator] : by_operator) {
    // All at once, and one by one where one of them is refused: a dtype that the kernel does not take.
    if (!have_kernels(of_operator)) std::erase_if(of_operator, [](const NamedCase& c) { return !have_kernels({c}); });
    std::move(of_operator.begin(), of_operator.end(), std::back_inserter(cases));
  }
  EXPECT_GT(cases.size(), 500u);
  const Backend cuda{"CUDA just in time on the emulated device", run_on_device, true};
  for (const bool gradients : {false, true}) compare_batch(cuda, cases, gradients);
}

}  // namespace
}  // namespace graven::tests
