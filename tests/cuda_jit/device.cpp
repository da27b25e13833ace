#include "tests/cuda_jit/device.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "codegen/build/process.h"
#include "tests/tolerances.h"

namespace graven::cuda_jit {

namespace {

/// Before anything asks for a device.
const bool kStandIn = [] { return setenv("GRAVEN_CUDA_PATH", STAND_IN, 0) == 0; }();

}  // namespace

long long count(const char* function) {
  void* const library = dlopen(STAND_IN "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(library, nullptr);
  return reinterpret_cast<long long (*)()>(dlsym(library, function))();
}

void expect_close(const Tensor& got, const Tensor& expected, DType computed) {
  ASSERT_TRUE(kStandIn);
  ASSERT_EQ(got.describe(), expected.describe());
  const std::vector<double> a = got.to_vector<double>(), b = expected.to_vector<double>();
  double largest = 0;
  for (const double x : b) largest = std::max(largest, std::isfinite(x) ? std::abs(x) : 0);
  const tests::tolerance::Tolerance& of = tests::tolerance::network_on_device;
  const DType precision = computed == f32 ? got.dtype() : computed;
  const double tolerance = precision == f16 ? of.f16 : precision == bf16 ? of.bf16 : of.f32;
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(a[i] == b[i] || std::abs(a[i] - b[i]) <= tolerance * (1 + largest))
        << "element " << i << " of " << a.size() << ": " << a[i] << ", expected " << b[i];
}

bool compiles_with_nvrtc(const codegen::CudaJitReport& report, bool may_warn) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("cuda_jit_" + std::to_string(getpid()));
  for (const auto& [path, text] : report.files) {
    std::filesystem::create_directories((folder / path).parent_path());
    std::ofstream(folder / path) << text;
  }
  std::ofstream(folder / "program.txt") << report.program;
  {
    std::ofstream names(folder / "names.txt");
    for (const std::string& name : report.kernels) names << name << "\n";
  }
  const codegen::ProcessResult said =
      codegen::run_process({COMPILE_WITH_NVRTC, folder.string(), "sm_90"}, {.seconds = 300});
  std::filesystem::remove_all(folder);
  constexpr int kMissing = 77;
  if (said.exit_status == kMissing) return false;
  constexpr int kWarned = 3;
  EXPECT_TRUE(said.exit_status == 0 || (may_warn && said.exit_status == kWarned)) << said.output;
  return true;
}

}  // namespace graven::cuda_jit
