// Measured choices in emitted projects: which entries of a file hold, what they change, and how little. Times are made
// up here; tests/command measures some.
#include "codegen/build/tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/emit/project.h"
#include "ir/json.h"
#include "ir/tuning.h"
#include "tests/passes/graphs.h"

namespace graven::tests {
namespace {

namespace fs = std::filesystem;

const codegen::Target& kCpu = codegen::target_named("cpu");
constexpr const char* kConvolution = "conv2d f32[1,8,8,64] f32[64,64,3,3] padding 1x1";

ir::TuningEntry entry(const std::string& choice, const std::string& chosen) {
  return {.target = "cpu",
          .device = ir::name_of_device({}),
          .versions = codegen::tuning_versions(kCpu),
          .choice = choice,
          .chosen = chosen,
          .milliseconds = {}};
}

class TunedProjects : public testing::Test {
 protected:
  std::string write(const std::vector<ir::TuningEntry>& entries) const {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    const fs::path file = fs::path(GRAVEN_BINARY_DIR) / "tuning" / (name + ".json");
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << ir::tuning_text(entries);
    return file.string();
  }
};

std::map<std::string, std::string> project_of(const ir::Graph& graph, const std::string& target = "cpu") {
  return codegen::render_project(graph, {.name = "tuned", .target = target, .format = false});
}

std::multiset<std::string> lines_of(const std::string& text) {
  std::multiset<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

TEST_F(TunedProjects, TakeWhatWasMeasuredAndSayWhatDoesNotHold) {
  ir::TuningEntry foreign = entry(kConvolution, "direct"), stale = foreign, unknown = foreign, other = foreign;
  foreign.device = "Another, 64 processors";
  stale.versions = "graven 0.0.1, kernels 00000000";
  unknown.chosen = "winograd 8";
  other.choice = "conv2d f32[1,9,9,64] f32[64,64,3,3] padding 1x1";
  ir::TuningEntry cuda = foreign;
  cuda.target = "cuda";
  const struct {
    std::vector<ir::TuningEntry> entries;
    std::string chosen, said;
  } cases[] = {
      {{}, "", ""},
      {{entry(kConvolution, "direct")}, "direct", ""},
      {{entry(kConvolution, "winograd 4"), cuda}, "winograd 4", ""},
      {{entry(kConvolution, "winograd 2")}, "", ""},  // as heuristics have it
      {{foreign}, "", "1 for another device (Another, 64 processors; here is " + ir::name_of_device({}) + ")"},
      {{stale}, "", "1 of other versions (here is " + codegen::tuning_versions(kCpu) + ")"},
      {{unknown, other}, "", "2 of choices that the graph does not have"},
      {{entry(kConvolution, "direct"), foreign, stale, other}, "direct", ", 1 of choices that the graph does not have"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(ir::tuning_text(c.entries));
    ir::Graph graph = wide_inference();
    const std::string note = codegen::apply_tuning(graph, write(c.entries), kCpu);
    EXPECT_EQ(ir::tuned(graph, kConvolution), c.chosen);
    EXPECT_EQ(ir::has_tuned(graph), !c.chosen.empty());
    EXPECT_EQ(note.empty(), c.said.empty()) << note;
    EXPECT_NE(note.find(c.said), std::string::npos) << note;
    EXPECT_EQ(note.find('\n'), std::string::npos) << "one line";
  }
  // A device that is named, of which the file knows the library.
  ir::Graph graph = wide_inference();
  EXPECT_EQ(codegen::apply_tuning(graph, write({foreign}), kCpu, foreign.device), "");
  EXPECT_EQ(ir::tuned(graph, kConvolution), "direct");
}

TEST_F(TunedProjects, DifferWhereTheChoiceDoes) {
  ir::Graph graph = wide_inference();
  const auto before = project_of(graph);
  EXPECT_EQ(before, project_of(graph));
  const std::string file = write({entry(kConvolution, "winograd 4"), entry(ir::threads_key(graph), "3")});
  EXPECT_EQ(codegen::apply_tuning(graph, file, kCpu), "");
  const auto after = project_of(graph);
  ir::Graph again = wide_inference();
  codegen::apply_tuning(again, file, kCpu);
  EXPECT_EQ(after, project_of(again)) << "the same graph and the same file are the same bytes";

  std::set<std::string> changed;
  for (const auto& [path, text] : after)
    if (before.at(path) != text) changed.insert(path);
  const std::set<std::string> expected = {"README.md", "calls.h",       "configs.h", "graph.json", "infer.cpp",
                                          "main.cpp",  "memory_plan.h", "model.cpp", "model.h",    "params.h"};
  EXPECT_TRUE(std::includes(expected.begin(), expected.end(), changed.begin(), changed.end()))
      << testing::PrintToString(changed);
  const std::multiset<std::string> old_lines = lines_of(before.at("model.cpp")),
                                   new_lines = lines_of(after.at("model.cpp"));
  std::vector<std::string> new_only;
  std::set_difference(new_lines.begin(), new_lines.end(), old_lines.begin(), old_lines.end(),
                      std::back_inserter(new_only));
  // A comment for each of the two convolutions, and that of their weight's packing, which is larger.
  EXPECT_EQ(new_only.size(), 3u) << testing::PrintToString(new_only);
  EXPECT_EQ(std::count_if(new_only.begin(), new_only.end(),
                          [](const std::string& line) { return line.find(", as measured") != std::string::npos; }),
            2)
      << testing::PrintToString(new_only);
  EXPECT_EQ(after.at("configs.h").find(".tile = 2"), std::string::npos);
  EXPECT_NE(before.at("configs.h").find(".tile = 2"), std::string::npos);
  EXPECT_NE(after.at("main.cpp").find(".threads = 3"), std::string::npos) << after.at("main.cpp");
}

TEST_F(TunedProjects, OfTrainingsPackWhatWasMeasured) {
  ir::Graph graph = mlp_training();
  const std::string key = "linear f32[64,784] f32[256,784], training";
  EXPECT_EQ(codegen::apply_tuning(graph, write({entry(key, "packed")}), kCpu), "");
  EXPECT_EQ(ir::tuned(graph, key), "packed");
  EXPECT_NE(project_of(graph).at("model.cpp").find("pack_linear_weight"), std::string::npos);
  EXPECT_EQ(project_of(mlp_training()).at("model.cpp").find("pack_linear_weight"), std::string::npos);
}

TEST_F(TunedProjects, ForCudaNameTheAlgorithm) {
  ir::TuningEntry product = entry("linear f32 m=64 n=256 k=784", "algorithm 5");
  product.target = "cuda";
  product.device = "A GPU, sm_90";
  product.versions = codegen::tuning_versions(codegen::target_named("cuda"), false) + ", cuBLASLt 130000";
  ir::Graph graph = mlp_training();
  EXPECT_EQ(codegen::apply_tuning(graph, write({product}), codegen::target_named("cuda"), product.device), "");
  const auto project = project_of(graph, "cuda");
  EXPECT_NE(project.at("configs.h").find(".algorithm = 5"), std::string::npos) << project.at("configs.h");
  EXPECT_EQ(project_of(mlp_training(), "cuda").at("configs.h").find("algorithm"), std::string::npos);
  EXPECT_NE(project.at("model.cu").find(", as measured"), std::string::npos);
}

}  // namespace
}  // namespace graven::tests
