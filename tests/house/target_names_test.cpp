// A target stands in its own folder and in the registry (codegen/targets); what else depends on a machine asks the
// target for it, so that a further one needs no edit elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/patterns.h"
#include "tests/read_text.h"

namespace graven::tests {
namespace {

namespace fs = std::filesystem;

/// Where `text` calls a target by its name, outside of comments.
std::vector<Match> named_targets(const std::string& text) { return matches(text, "\"cpu\"|(?:cuda|Cuda|CUDA)[\\w:]*"); }

std::string without_comments(const std::string& text) {
  std::string code;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    code += line.substr(0, line.find("//")) + "\n";
    begin = end + 1;
  }
  return code;
}

TEST(TargetNames, AreFound) {
  for (const char* text : {"if (target.name() == \"cuda\")", "style.kernel_folder != \"cpu\"", "lower_for_cuda(node)",
                           "headers.count(\"kernels/cuda/conv2d.cuh\")", "libraries = \"CUDA::cudart\";"})
    EXPECT_EQ(named_targets(text).size(), 1u) << text;
  for (const char* text : {"target.style.on_device", "\"kernels/cpu/elementwise.h\"", "cpu_count()"})
    EXPECT_TRUE(named_targets(text).empty()) << text;
  EXPECT_TRUE(named_targets(without_comments("int x;  // as cuda has it\n")).empty());
}

TEST(TargetNames, StandInTheirFolders) {
  // What Graven itself runs on is stated beside the options of passes; eager mode is compiled for it; and the command's
  // first line says what it is for. A device where tensors lie has the name that users give it, and what runs graphs
  // there is a room of its own.
  const std::vector<std::string> allowed = {"ir/passes/pass.h",
                                            "codegen/eager_table/main.cpp",
                                            "codegen/cli/main.cpp",
                                            "ir/device.h",
                                            "ir/device.cpp",
                                            "frontend/include/graven/device.h",
                                            "frontend/device.cpp",
                                            "codegen/build/jit.cpp",
                                            "codegen/build/jit_cuda.h",
                                            "codegen/build/jit_cuda.cpp", "frontend/include/graven/tensor.h",
      "frontend/tensor.cpp", "frontend/include/graven/module.h"};
  const std::vector<std::string> rooms = {"codegen/targets/", "codegen/build/cuda/", "codegen/cuda_table/"};
  const fs::path root = GRAVEN_SOURCE_DIR;
  std::size_t files = 0;
  for (const char* top : {"ir", "codegen", "frontend"})
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string path = entry.path().lexically_relative(root).generic_string();
      if (!path.ends_with(".cpp") && !path.ends_with(".h")) continue;
      ++files;
      if (std::any_of(rooms.begin(), rooms.end(), [&](const std::string& room) { return path.starts_with(room); }) ||
          std::find(allowed.begin(), allowed.end(), path) != allowed.end())
        continue;
      for (const Match& match : named_targets(without_comments(read_text(entry.path()))))
        ADD_FAILURE() << path << ": '" << match.groups.at(0)
                      << "': ask the target (codegen/targets/target.h), or put it into the target's folder";
    }
  EXPECT_GT(files, 350u);
}

}  // namespace
}  // namespace graven::tests
