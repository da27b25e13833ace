// The arrows of the house: frontend -> ir <- codegen; kernels/ and runtime_min/ include nothing of Graven but
// themselves. Reads every #include "..." of the tree, so that a wrong arrow fails here before it grows.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/patterns.h"

namespace {

namespace fs = std::filesystem;

struct Rule {
  std::string folder;                // files below this folder, or one file
  std::vector<std::string> allowed;  // may include quoted paths that begin with one of these
};

// The longest folder that fits a file decides. Quoted includes without a folder are neighbours and always allowed.
const std::vector<Rule> kRules = {
    {"ir/", {"ir/", "kernels/config/"}},            // operators read the kernels' config structs: data, not code
    {"ir/json_file.cpp", {"ir/", "runtime_min/"}},  // constants beside a graph are a safetensors file
    {"ir/scalar.cpp", {"ir/", "kernels/cpu/scalar_math.h"}},  // what is folded is what the kernels compute in double
    {"frontend/", {"frontend/", "graven/", "ir/", "kernels/", "runtime_min/"}},  // eager mode runs the kernels
    {"frontend/emit/",
     {"frontend/", "graven/", "ir/", "codegen/emit/",
      "codegen/build/"}},  // the one bridge: nn::Graph handed to the generator
    {"codegen/", {"codegen/", "ir/", "kernels/config/", "runtime_min/"}},
    {"codegen/build/cuda/",
     {"codegen/", "ir/", "runtime_min/", "cuda_host/"}},  // the host's side of kernels/cuda, without their bodies
    {"codegen/cuda_table/",
     {"codegen/build/cuda/", "codegen/cuda_table/", "codegen/targets/cuda/",
      "ir/"}},  // a program that writes that, and a part of codegen/build
    {"codegen/cli/",
     {"codegen/", "ir/", "runtime_min/",
      "frontend/eager/oracle.h"}},  // a program at the end of the line: recorded results come from the executor
    {"codegen/eager_table/",
     {"codegen/emit/", "codegen/lowering/", "frontend/eager/", "ir/"}},  // a program that writes a part of eager mode
    {"frontend/include/graven/codegen.h", {"graven/", "codegen/emit/project.h"}},  // emit(graph, ...) and its options
    {"kernels/config/", {"kernels/config/"}},
    {"kernels/reference/",
     {"kernels/config/", "kernels/reference/", "kernels/cpu/dtype.h", "kernels/cpu/functor.h", "kernels/cpu/level.h",
      "kernels/cpu/check_index.h", "kernels/cpu/check_value.h"}},  // types, names and an error, no arithmetic
    {"kernels/cpu/", {"kernels/config/", "kernels/cpu/"}},
    {"kernels/cuda/",
     {"kernels/config/", "kernels/cuda/", "kernels/cpu/dtype.h", "kernels/cpu/check_index.h",
      "kernels/cpu/check_value.h"}},
    {"runtime_min/", {"runtime_min/"}},
};

std::vector<fs::path> sources(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (entry.path().generic_string().find("/templates/") != std::string::npos) continue;  // of emitted projects
    if (entry.is_regular_file() &&
        (extension == ".h" || extension == ".cpp" || extension == ".cuh" || extension == ".inc"))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> quoted_includes(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> found;
  for (std::string line; std::getline(in, line);) {
    for (const graven::tests::Match& include : graven::tests::matches(line, "^\\s*#\\s*include\\s+\"([^\"]+)\""))
      found.push_back(include.groups[1]);
  }
  return found;
}

const Rule* rule_for(const std::string& path) {
  const Rule* best = nullptr;
  for (const Rule& r : kRules)
    if (path.rfind(r.folder, 0) == 0 && (!best || r.folder.size() > best->folder.size())) best = &r;
  return best;
}

TEST(Arrows, EveryIncludePointsTheAllowedWay) {
  const fs::path root = GRAVEN_SOURCE_DIR;
  int seen = 0;
  for (const std::string top : {"ir", "frontend", "codegen", "kernels", "runtime_min"})
    for (const fs::path& file : sources(root / top)) {
      const std::string path = fs::relative(file, root).generic_string();
      const Rule* rule = rule_for(path);
      ASSERT_NE(rule, nullptr) << path << ": no rule covers this file; add its folder to the table in this test";
      for (std::string include : quoted_includes(file)) {
        ++seen;
        if (include.find('/') == std::string::npos) continue;
        if (include.front() == '.')
          include = (fs::path(path).parent_path() / include).lexically_normal().generic_string();
        const bool allowed = std::any_of(rule->allowed.begin(), rule->allowed.end(),
                                         [&](const std::string& a) { return include.rfind(a, 0) == 0; });
        EXPECT_TRUE(allowed) << path << " includes \"" << include << "\": files in " << rule->folder
                             << " may not (see ARCHITECTURE.md, the arrows)";
      }
    }
  EXPECT_GT(seen, 50) << "the test read almost no includes: it looks in the wrong place";
}

// What is copied into emitted projects stands on its own: each kernel header has its config and its neighbours only.
TEST(Arrows, CopiedTextNamesNoOtherFolder) {
  const fs::path root = GRAVEN_SOURCE_DIR;
  for (const std::string top : {"kernels", "runtime_min"})
    for (const fs::path& file : sources(root / top))
      for (const std::string& include : quoted_includes(file))
        for (const std::string forbidden : {"ir/", "codegen/", "frontend/", "graven/"})
          EXPECT_NE(include.rfind(forbidden, 0), 0u)
              << fs::relative(file, root).generic_string() << " includes \"" << include << "\"";
}

}  // namespace
