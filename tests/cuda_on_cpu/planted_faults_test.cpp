// Faults that are planted into the kernels, one at a time: the emulated device tells of each.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/read_text.h"

namespace {

namespace fs = std::filesystem;

const fs::path kKernels = fs::path(GRAVEN_SOURCE_DIR) / "kernels/cuda";

/// What a shell's command prints.
std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "cannot run " + command;
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), n);
  pclose(pipe);
  return output;
}

// ---- barriers -------------------------------------------------------------------------------------------------------

/// A test of this program that a file's barriers matter in, and the kernel whose blocks must take several items for
/// that, or "".
struct Use {
  const char* test;
  const char* folded = "";
};
const std::map<std::string, std::vector<Use>> kUses = {
    {"adafactor.cuh", {{"CudaUpdate.Adafactor"}}},
    {"batch_norm.cuh", {{"CudaBatchNorm.TrainsInPieces"}}},
    {"block.cuh", {{"CudaClipFactor.EveryNorm"}, {"CudaUpdate.RunsARuleWithNorms"}}},
    {"columns.cuh", {{"CudaReduce.BlocksThatTakeSeveralItems"}}},
    {"conv2d_columns.cuh", {{"CudaConv2d.ForwardAndGradients", "conv2d_rearrange_kernel"}}},
    {"conv2d_depthwise.cuh", {{"CudaConv2d.ForwardAndGradients"}}},
    {"index.cuh", {{"CudaIndex.RowsSelectedAndAdded"}}},
    {"key_sort.cuh", {{"CudaSort.TilesAndMerges"}}},
    {"moments.cuh", {{"CudaGroupNorm.EveryGrouping", "group_norm"}}},
    {"pool2d.cuh", {{"CudaPool2d.VectorsAndLargeWindows", "avg_pool2d_block_kernel"}}},
    {"reduce.cuh", {{"CudaReduce.BlocksThatTakeSeveralItems"}, {"CudaReduce.EveryReduction"}}},
    {"rows.cuh", {{"CudaCrossEntropy.EveryReduction"}, {"CudaCrossEntropy.EveryWayToShareARow"}}},
    {"scan.cuh", {{"CudaScan.LinesAndPieces"}}},
    {"softmax.cuh", {{"CudaSoftmax.ForwardAndBackward", "softmax_backward_columns_kernel"}}},
    {"strided_copy.cuh", {{"CudaStridedCopy.VectorsAndTiles", "strided_tiles_kernel"}}},
    {"update.cuh", {{"CudaUpdate.RunsARule"}}},
};

/// Each barrier is needed, and its want is told as a race: it is left out, and a test of its kernel fails.
TEST(PlantedFaults, EveryBarrierThatIsLeftOut) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kKernels))
    if (entry.path().extension() == ".cuh") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  int barriers = 0;
  for (const fs::path& file : files) {
    std::ifstream text(file);
    std::string line;
    for (int number = 1; std::getline(text, line); ++number) {
      line = line.substr(0, line.find("//"));
      if (line.find("__syncthreads()") == std::string::npos && line.find("__syncwarp()") == std::string::npos) continue;
      ++barriers;
      const std::string place = file.filename().string() + ":" + std::to_string(number);
      const auto uses = kUses.find(file.filename().string());
      ASSERT_NE(uses, kUses.end()) << place << ": a barrier in a file of which this test knows no use";
      std::string outputs;
      bool is_told = false;
      for (const Use& use : uses->second) {
        std::string command = "CUDA_ON_CPU_LEAVE_OUT=" + place;
        if (*use.folded != 0) command += " CUDA_ON_CPU_FOLD=" + std::string(use.folded) + ":1";
        const std::string output = output_of(command + " '" + program + "' --gtest_filter=" + use.test);
        is_told = output.find("a race on ") != std::string::npos && output.find("[  FAILED  ]") != std::string::npos;
        if (is_told) break;
        outputs += output;
      }
      EXPECT_TRUE(is_told) << "nobody notices the want of the barrier at " << place << "\n" << outputs;
    }
  }
  EXPECT_GT(barriers, 20) << "of the kernels in " << kKernels;
}

}  // namespace
