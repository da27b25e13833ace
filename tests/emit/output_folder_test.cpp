// Emission over a project that somebody changed: nothing of theirs is lost, and nothing outside of the folder is
// touched.
#include "codegen/emit/output_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "codegen/emit/project.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "tests/emit/graphs.h"

namespace graven::codegen {
namespace output_folder {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

void append(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

class OutputFolderTest : public testing::Test {
 protected:
  fs::path work_ = fs::path(GRAVEN_BINARY_DIR) / "emitted/output_folder" /
                   testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::path project_ = work_ / "project";
  OutputFolderTest() {
    fs::remove_all(work_);
    fs::create_directories(work_);
  }
  EmitReport emit_mlp(bool force = false) {
    return emit(mlp_training(), project_, {.name = "mlp", .force = force, .format = false});
  }
  EmitReport emit_linear(bool force = false) {
    return emit(my_linear(), project_, {.name = "mlp", .force = force, .format = false});
  }
  template <class Emit>
  std::string error_of(const Emit& emission) {
    try {
      emission();
      return "no error";
    } catch (const UserError& e) {
      return e.what();
    }
  }
};

TEST_F(OutputFolderTest, EditedFilesAreNamedAndNotOverwritten) {
  emit_mlp();
  append(project_ / "model.cpp", "// mine\n");
  append(project_ / "runtime/file.cpp", "// mine\n");  // the same text for every graph
  append(project_ / "model_utils.cpp", "// mine\n");
  append(project_ / "kernels/cpu/mine.h", "// mine\n");
  const EmitReport same = emit_mlp();
  EXPECT_EQ(same.kept, (std::vector<std::string>{"model.cpp", "runtime/file.cpp"}));
  EXPECT_TRUE(same.written.empty());
  const std::string edited = content(project_ / "model.cpp"), header = content(project_ / "model.h");
  EXPECT_EQ(error_of([&] { emit_linear(); }),
            "error: " + project_.string() +
                ": 1 of the files that would be overwritten is not as Graven wrote it: nothing was written\n"
                "  edited    model.cpp\n"
                "  expected  another folder, or these moved away; --force (EmitOptions::force) writes over them");
  EXPECT_EQ(content(project_ / "model.cpp"), edited);
  EXPECT_EQ(content(project_ / "model.h"), header);
  const EmitReport forced = emit_linear(true);
  EXPECT_EQ(content(project_ / "model.cpp").find("// mine"), std::string::npos);
  EXPECT_FALSE(forced.removed.empty());
  for (const char* mine : {"model_utils.cpp", "kernels/cpu/mine.h"})
    EXPECT_EQ(content(project_ / mine), "// mine\n") << mine;
  EXPECT_EQ(check(project_, {.name = "mlp", .format = false}), std::vector<std::string>());
}

TEST_F(OutputFolderTest, WhatIsNoLongerNeededIsRemovedUnlessItWasEdited) {
  emit_mlp();
  append(project_ / "runtime/train.cpp", "// mine\n");
  const EmitReport report = emit_linear();
  EXPECT_EQ(report.kept, std::vector<std::string>{"runtime/train.cpp"});
  EXPECT_TRUE(fs::exists(project_ / "runtime/train.cpp"));
  EXPECT_FALSE(fs::exists(project_ / "runtime/train.h"));
}

TEST_F(OutputFolderTest, AProjectWithoutARecordIsTreatedAsEdited) {
  emit_mlp();
  fs::remove_all(project_ / ".graven");
  EXPECT_TRUE(emit_mlp().written.empty());
  fs::remove_all(project_ / ".graven");
  EXPECT_NE(error_of([&] { emit_linear(); }).find("the project has no record of it"), std::string::npos);
  emit_linear(true);
  EXPECT_TRUE(fs::exists(project_ / "runtime/train.cpp")) << "whose it is cannot be told";
}

TEST_F(OutputFolderTest, ASavedGraphIsNotReplaced) {
  fs::create_directories(project_);
  ir::write_graph((project_ / "graph.json").string(), my_linear());
  const std::string saved = content(project_ / "graph.json");
  for (const bool force : {false, true})
    EXPECT_NE(error_of([&] { emit_linear(force); }).find("holds a saved graph"), std::string::npos);
  EXPECT_EQ(content(project_ / "graph.json"), saved);
}

TEST_F(OutputFolderTest, NothingIsWrittenOrRemovedThroughLinks) {
  emit_mlp();
  for (const std::string path :
       {"kernels", "kernels/cpu", ".graven", "model.cpp", "weights.safetensors", ".graven/manifest.json"}) {
    SCOPED_TRACE(path);
    fs::remove_all(work_ / "elsewhere");
    fs::rename(project_ / path, work_ / "elsewhere");
    fs::create_symlink(work_ / "elsewhere", project_ / path);
    if (fs::is_directory(work_ / "elsewhere")) append(work_ / "elsewhere/mine.h", "mine");
    std::map<std::string, std::string> before, after;
    const auto note = [&](std::map<std::string, std::string>& into) {
      if (fs::is_regular_file(work_ / "elsewhere")) into["elsewhere"] = content(work_ / "elsewhere");
      if (fs::is_directory(work_ / "elsewhere"))
        for (const auto& entry : fs::recursive_directory_iterator(work_ / "elsewhere"))
          if (entry.is_regular_file()) into[entry.path().string()] = content(entry.path());
    };
    note(before);
    for (const bool force : {false, true}) {
      EXPECT_NE(error_of([&] { emit_linear(force); }).find(path + ": is a link"), std::string::npos);
      EXPECT_TRUE(fs::is_symlink(project_ / path));
    }
    note(after);
    EXPECT_EQ(after, before);
    fs::remove(project_ / path);
    fs::rename(work_ / "elsewhere", project_ / path);
  }
  ASSERT_EQ(::mkfifo((project_ / "pipe").c_str(), 0600), 0);
  fs::remove(project_ / "model.cpp");
  fs::rename(project_ / "pipe", project_ / "model.cpp");
  EXPECT_NE(error_of([&] { emit_linear(true); }).find("model.cpp: is a link or something else"), std::string::npos);
  EXPECT_TRUE(fs::is_fifo(project_ / "model.cpp"));
}

TEST_F(OutputFolderTest, TheFolderItselfMayBeALink) {
  fs::create_directories(work_ / "elsewhere");
  fs::create_symlink("elsewhere", project_);
  emit_mlp();
  EXPECT_TRUE(fs::is_symlink(project_));
  EXPECT_TRUE(fs::exists(work_ / "elsewhere/model.cpp"));
}

TEST_F(OutputFolderTest, ARecordThatNamesOtherFoldersIsRefused) {
  emit_mlp();
  append(work_ / "victim", "mine");
  const std::string record = content(project_ / kManifest);
  for (const std::string path : {"../victim", "/victim", "kernels/../../victim", "", "a//b", "."}) {
    std::ofstream(project_ / kManifest) << R"({"format": "graven.manifest", "version": 1, "files": {")" + path +
                                               R"(": [")" + hash_of("mine") + "\"]}}";
    EXPECT_NE(error_of([&] { emit_linear(true); }).find("manifest.json: is not what Graven wrote"), std::string::npos)
        << path;
  }
  EXPECT_EQ(content(work_ / "victim"), "mine");
}

TEST_F(OutputFolderTest, EmissionsAtOnceLeaveOneWholeProject) {
  std::vector<std::string> errors(6);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < errors.size(); ++i)
    threads.emplace_back([&, i] { errors[i] = error_of([&] { i % 2 == 0 ? emit_mlp() : emit_linear(); }); });
  for (std::thread& t : threads) t.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "no error");
  EXPECT_EQ(check(project_, {.name = "mlp", .format = false}), std::vector<std::string>());
  for (const auto& entry : fs::directory_iterator(project_ / ".graven"))
    EXPECT_EQ(entry.path().filename(), "manifest.json");
}

}  // namespace output_folder
}  // namespace graven::codegen
