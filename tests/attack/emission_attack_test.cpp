// Emission into folders that others have been in, killed at any moment, and several at once: nothing that is not
// Graven's is changed, and what is there in the end is one whole project.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/emit/output_folder.h"
#include "codegen/emit/project.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "tests/attack/attack.h"
#include "tests/emit/graphs.h"

extern char** environ;

namespace graven::attack {
namespace {

namespace fs = std::filesystem;

fs::path fresh_folder(const std::string& name) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "attack" / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// What stands at every path below: kind, and content or target.
std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().lexically_relative(folder).generic_string();
    const fs::file_status status = entry.symlink_status();
    all[path] = fs::is_symlink(status)        ? "link to " + fs::read_symlink(entry.path()).string()
                : fs::is_directory(status)    ? "folder"
                : fs::is_regular_file(status) ? "file " + text_of(entry.path())
                                              : "something else";
  }
  return all;
}

bool is_temporary(const std::string& path) { return path.find("tmp") != std::string::npos || path.ends_with(".new"); }

codegen::EmitReport emit_one_of_two(bool training, const fs::path& project, bool force) {
  return codegen::emit(training ? codegen::mlp_training() : codegen::my_linear(), project,
                       {.name = "net", .force = force, .format = false});
}

TEST(Emission, IntoFoldersThatOthersHaveChanged) {
  const fs::path work = fresh_folder("folders"), project = work / "project", outside = work / "outside";
  Attack attack("emission into changed folders", 60);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    fs::remove_all(project);
    fs::remove_all(outside);
    fs::create_directories(outside / "kernels/cpu");
    for (const char* file : {"mine.txt", "kernels/mine.h", "kernels/cpu/linear.h", "model.cpp"})
      std::ofstream(outside / file) << "mine";
    const bool before = attack.below(2) == 0, after = attack.below(2) == 0, force = attack.below(3) == 0;
    emit_one_of_two(before, project, false);
    const auto written = snapshot(project);
    std::vector<std::string> paths;
    for (const auto& [path, what] : written) paths.push_back(path);
    std::string done;
    for (std::size_t changes = 1 + attack.below(3); changes > 0; --changes) {
      const std::string path = attack.choose(paths);
      const fs::path place = project / path;
      bool below_a_folder = true;  // another change may have put something else in its way
      for (fs::path above = place.parent_path(); above != work; above = above.parent_path())
        below_a_folder = below_a_folder && fs::is_directory(fs::symlink_status(above));
      if (!below_a_folder) continue;
      const bool is_folder = fs::is_directory(fs::symlink_status(place));
      const std::size_t kind = attack.below(9);
      static const char* const names[] = {"edited",           "foreign file",  "link to a file",
                                          "link to a folder", "dangling link", "pipe",
                                          "other kind",       "removed",       "no record"};
      if (kind == 0 && !fs::is_regular_file(fs::symlink_status(place))) continue;
      attack.count(names[kind]);
      done += std::string(names[kind]) + " " + path + "; ";
      if (kind >= 2 && kind <= 7) fs::remove_all(place);
      switch (kind) {
        case 0:
          std::ofstream(place, std::ios::app) << "// mine\n";
          break;
        case 1: {
          static const char* const foreign[] = {"mine.h",         "model_utils.cpp", "evaluation_notes.cpp",
                                                "functors_old.h", "tmp.1.mine",      "weights.safetensors.new"};
          std::ofstream((is_folder ? place : place.parent_path()) / attack.choose(foreign)) << "mine";
          break;
        }
        case 2:
          fs::create_symlink(outside / "model.cpp", place);
          break;
        case 3:
          fs::create_symlink(outside / "kernels", place);
          break;
        case 4:
          fs::create_symlink(outside / "not_there", place);
          break;
        case 5:
          ASSERT_EQ(::mkfifo(place.c_str(), 0600), 0);
          break;
        case 6:
          if (is_folder)
            std::ofstream(place) << "mine";
          else
            fs::create_directories(place / "mine");
          break;
        case 7:
          break;
        default:
          fs::remove_all(project / ".graven");
      }
    }
    SCOPED_TRACE(done);
    const auto theirs = snapshot(project), beyond = snapshot(outside);
    bool emitted = false;
    try {
      emit_one_of_two(after, project, force);
      emitted = true;
      attack.count("emitted");
    } catch (const UserError& e) {
      attack.count("refused");
      EXPECT_NE(std::string(e.what()).find("project"), std::string::npos) << "says no place: " << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
    EXPECT_EQ(snapshot(outside), beyond) << "outside of the folder";
    const auto now = snapshot(project);
    for (const auto& [path, what] : theirs) {
      const auto was = written.find(path);
      const bool gravens = was != written.end() && was->second == what;
      // Its own temporary files are named by it; nobody else puts any into .graven.
      if (gravens || path.starts_with(".graven/")) continue;
      const auto found = now.find(path);
      const bool overwritten = force && emitted && what.starts_with("file ") && was != written.end();
      EXPECT_TRUE(overwritten || (found != now.end() && found->second == what)) << "lost or changed: " << path;
    }
    if (!emitted) {
      for (const auto& [path, what] : now)
        if (!path.starts_with(".graven")) {
          EXPECT_TRUE(theirs.count(path) && theirs.at(path) == what) << "written, and then refused: " << path;
        }
    }
    for (const auto& [path, what] : now)
      EXPECT_TRUE(!is_temporary(path) || (theirs.count(path) && !path.starts_with(".graven/tmp"))) << path;
  }
}

pid_t start_emission(const fs::path& saved, const fs::path& project) {
  const std::string command = GRAVEN_BINARY_DIR "/graven", from = saved.string(), to = project.string();
  const char* words[] = {command.c_str(), "emit",   from.c_str(), "-o",   to.c_str(), "-q",
                         "--no-format",   "--name", "net",        nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, (project.string() + ".errors").c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0666);
  pid_t process = -1;
  EXPECT_EQ(posix_spawn(&process, command.c_str(), &actions, nullptr, const_cast<char**>(words), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return process;
}

int status_of(pid_t process) {
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return status;
}

/// Two saved graphs and the projects that they become alone.
struct TwoGraphs {
  fs::path work, project = work / "project", saved[2] = {work / "saved_training", work / "saved_inference"};
  std::map<std::string, std::string> whole[2];
  explicit TwoGraphs(const std::string& name) : work(fresh_folder(name)) {
    for (int i = 0; i < 2; ++i) {
      fs::create_directories(saved[i]);
      ir::write_graph((saved[i] / "graph.json").string(), i == 0 ? codegen::mlp_training() : codegen::my_linear());
      const fs::path alone = work / ("alone_" + std::to_string(i));
      EXPECT_EQ(status_of(start_emission(saved[i], alone)), 0) << text_of(alone.string() + ".errors");
      whole[i] = snapshot(alone);
    }
  }
  /// The files of one project, except folders that the other one needs.
  void expect_whole(int which) const {
    const auto now = snapshot(project);
    for (const auto& [path, what] : whole[which]) {
      const auto found = now.find(path);
      EXPECT_TRUE(found != now.end() && found->second == what)
          << path << (found == now.end() ? " is missing" : " differs");
    }
    for (const auto& [path, what] : now)
      EXPECT_TRUE(what == "folder" || whole[which].count(path)) << path << " is left over";
  }
};

TEST(Emission, KilledAtAnyMomentIsRepeated) {
  const TwoGraphs graphs("kills");
  Attack attack("killed emissions", 12);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    if (attack.below(3) == 0) fs::remove_all(graphs.project);
    for (std::size_t kills = 1 + attack.below(3); kills > 0; --kills) {
      const pid_t process = start_emission(graphs.saved[attack.below(2)], graphs.project);
      ::usleep(static_cast<useconds_t>(attack.below(150'000)));
      ::kill(process, SIGKILL);
      attack.count(WIFSIGNALED(status_of(process)) ? "killed" : "ended before");
    }
    const int which = static_cast<int>(attack.below(2));
    EXPECT_EQ(status_of(start_emission(graphs.saved[which], graphs.project)), 0)
        << text_of(graphs.project.string() + ".errors");
    graphs.expect_whole(which);
  }
}

TEST(Emission, AtOnceLeavesOneWholeProject) {
  const TwoGraphs graphs("at_once");
  Attack attack("emissions at once", 4);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    if (attack.below(2) == 0) fs::remove_all(graphs.project);
    std::vector<pid_t> processes;
    for (std::size_t count = 2 + attack.below(5); count > 0; --count)
      processes.push_back(start_emission(graphs.saved[attack.below(2)], graphs.project));
    for (const pid_t process : processes) {
      EXPECT_EQ(status_of(process), 0) << text_of(graphs.project.string() + ".errors");
      attack.count("emissions");
    }
    graphs.expect_whole(text_of(graphs.project / "model.h").find(": training.") != std::string::npos ? 0 : 1);
  }
}

}  // namespace
}  // namespace graven::attack
