// Golden projects: what emission writes for small graphs, as a user gets it, checked in, so that a review of a change
// to the generator shows how its output changes. Copied kernels and run time are not part of them. `test_golden
// --bless` rewrites them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "codegen/emit/format.h"
#include "codegen/emit/project.h"
#include "frontend/eager/oracle.h"
#include "tests/emit/graphs.h"
#include "tests/read_text.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

bool bless = false;

bool is_copied(const std::string& path) {
  return path.compare(0, 8, "kernels/") == 0 || path.compare(0, 8, "runtime/") == 0;
}

void compare(const ir::Graph& graph, const std::string& name, const std::string& target = "cpu") {
  if (find_formatter().empty()) GTEST_SKIP() << "clang-format 19 is not installed: the bytes would differ";
  const fs::path folder = fs::path(GRAVEN_SOURCE_DIR) / "tests/golden" / name;
  if (bless) fs::remove_all(folder);
  std::size_t expected = 0;
  for (const auto& [path, text] :
       render_project(graph, {.name = name, .target = target, .execute = eager::reference_run})) {
    if (is_copied(path)) continue;
    ++expected;
    if (bless) {
      fs::create_directories((folder / path).parent_path());
      std::ofstream(folder / path, std::ios::binary) << text;
    }
    EXPECT_EQ(read_text(folder / path), text)
        << path << " is not what the golden project has. If the change is meant: test_golden --bless";
  }
  std::size_t found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) found += entry.is_regular_file();
  EXPECT_EQ(found, expected)
      << folder << " has files that are no longer emitted, or lacks some. If that is meant: test_golden --bless";
}

TEST(Golden, MyLinearInference) { compare(my_linear(), "my_linear"); }
TEST(Golden, PolynomialFitTraining) { compare(polynomial_fit(), "polynomial_fit"); }
TEST(Golden, PolynomialFitTrainingOnCuda) { compare(polynomial_fit(), "polynomial_fit_cuda", "cuda"); }

}  // namespace

void set_bless() { bless = true; }

}  // namespace graven::codegen

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--bless") graven::codegen::set_bless();
  return RUN_ALL_TESTS();
}
