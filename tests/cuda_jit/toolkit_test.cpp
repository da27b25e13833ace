// The names and values of CUDA that the library is compiled with (codegen/build/cuda/toolkit) are those of the toolkit,
// where there is one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "codegen/build/process.h"
#include "tests/patterns.h"

namespace graven::tests {
namespace {

TEST(CudaToolkit, HasTheNumbersThatTheLibraryIsCompiledWith) {
  const std::string include = "/usr/local/cuda/include";
  if (!std::filesystem::exists(include + "/cublasLt.h")) GTEST_SKIP() << "no CUDA toolkit in /usr/local/cuda";
  std::string text =
      "#include <cstddef>\n#include <cublasLt.h>\n#include <cuda.h>\n#include <cuda_runtime_api.h>\n"
      "static_assert(sizeof(cublasLtMatmulAlgo_t) == 64);\n"
      "static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 64 + 8 + 4 + 4 + 16);\n"
      "static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64);\n"
      "static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == 72);\n"
      // codegen/build/cuda/libraries.cpp
      "static_assert(int(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 75);\n"
      "static_assert(int(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) == 76);\n"
      "static_assert(int(CUDA_ERROR_NO_DEVICE) == 100);\n"
      "static_assert(int(CUDA_ERROR_OUT_OF_MEMORY) == int(cudaErrorMemoryAllocation));\n"
      "static_assert(int(CU_STREAM_NON_BLOCKING) == int(cudaStreamNonBlocking));\n"
      "static_assert(int(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == int(cudaStreamCaptureModeThreadLocal));\n";
  std::set<std::string> seen;
  for (const char* header : {"cuda_runtime.h", "cublasLt.h"}) {
    std::stringstream own;
    own << std::ifstream(std::string(GRAVEN_SOURCE_DIR "/codegen/build/cuda/toolkit/") + header).rdbuf();
    for (const Match& m : matches(own.str(), "\\b(cuda[A-Z]\\w*|CU[A-Z_0-9]+F?) = (\\d+)"))
      if (seen.insert(m.groups.at(1)).second)
        text += "static_assert(int(" + m.groups.at(1) + ") == " + m.groups.at(2) + ");\n";
  }
  EXPECT_GT(seen.size(), 30u);
  const std::string file = testing::TempDir() + "cuda_toolkit_" + std::to_string(getpid()) + ".cpp";
  std::ofstream(file) << text;
  const codegen::ProcessResult said =
      codegen::run_process({GRAVEN_CXX, "-std=c++20", "-fsyntax-only", "-I" + include, file}, {.seconds = 120});
  std::filesystem::remove(file);
  EXPECT_EQ(said.exit_status, 0) << said.output << text;
}

}  // namespace
}  // namespace graven::tests
