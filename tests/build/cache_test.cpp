// The cache of compiled artefacts under everything that formats and faults can do to it.
#include "codegen/build/cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/diagnostic.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

class CacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "graven-cache-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::permissions(root_, fs::perms::owner_all, ignored);
    fs::remove_all(root_, ignored);
  }
  std::string directory() const { return (root_ / "cache").string(); }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  fs::path root_;
};

TEST_F(CacheTest, MakesOnceAndFindsAgain) {
  int made = 0;
  const auto make = [&](const std::string& path) {
    ++made;
    write(path, "artefact");
  };
  ArtefactCache cache(directory());
  EXPECT_EQ(read(cache.get("key", make)), "artefact");
  EXPECT_FALSE(cache.was_hit());
  ArtefactCache later(directory());
  EXPECT_EQ(read(later.get("key", make)), "artefact");
  EXPECT_TRUE(later.was_hit());
  EXPECT_EQ(made, 1);
  struct stat info{};
  ASSERT_EQ(stat(directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(CacheTest, DamagedEntriesAreMadeAnew) {
  struct Damage {
    const char* what;
    void (*apply)(const std::string& entry);
  };
  const Damage damages[] = {
      {"truncated", [](const std::string& e) { write(e, "arte"); }},
      {"emptied", [](const std::string& e) { write(e, ""); }},
      {"changed", [](const std::string& e) { write(e, "Artefact"); }},
      {"hash lost", [](const std::string& e) { fs::remove(e + ".sha256"); }},
      {"hash changed", [](const std::string& e) { write(e + ".sha256", "0"); }},
      {"entry lost", [](const std::string& e) { fs::remove(e); }},
  };
  int made = 0;
  const auto make = [&](const std::string& path) {
    ++made;
    write(path, "artefact");
  };
  for (const Damage& damage : damages) {
    const std::string entry = ArtefactCache(directory()).get("key", make);
    made = 0;
    damage.apply(entry);
    ArtefactCache cache(directory());
    EXPECT_EQ(read(cache.get("key", make)), "artefact") << damage.what;
    EXPECT_EQ(made, 1) << damage.what;
  }
}

TEST_F(CacheTest, AFailedMakerLeavesNothing) {
  ArtefactCache cache(directory());
  EXPECT_THROW(cache.get("key",
                         [](const std::string& path) {
                           write(path, "half");
                           throw UserError("the compiler failed");
                         }),
               UserError);
  int made = 0;
  EXPECT_EQ(read(cache.get("key",
                           [&](const std::string& path) {
                             ++made;
                             write(path, "whole");
                           })),
            "whole");
  EXPECT_EQ(made, 1);
  for (const auto& file : fs::directory_iterator(directory())) EXPECT_EQ(file.path().string().find(".tmp."), std::string::npos) << file.path();
}

TEST_F(CacheTest, SixteenProcessesOnAColdCacheMakeOneEntry) {
  std::vector<pid_t> children;
  const std::string log = (root_ / "log").string();
  for (int i = 0; i < 16; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        ArtefactCache cache(directory());
        const std::string path = cache.get("key", [&](const std::string& p) {
          std::ofstream(log, std::ios::app) << "made\n";
          usleep(50'000);
          write(p, "artefact");
        });
        _exit(read(path) == "artefact" ? 0 : 1);
      } catch (...) {
        _exit(2);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read(log), "made\n");
}

TEST_F(CacheTest, AKillInTheMiddleLeavesAUsableCache) {
  const pid_t child = fork();
  if (child == 0) {
    ArtefactCache cache(directory());
    cache.get("key", [](const std::string& path) {
      write(path, "half");
      kill(getpid(), SIGKILL);
    });
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ArtefactCache cache(directory());
  EXPECT_EQ(read(cache.get("key", [](const std::string& path) { write(path, "whole"); })), "whole");
}

TEST_F(CacheTest, FoldersThatCannotBeTrustedOrUsedMeanMemoryOnly) {
  struct Case {
    const char* what;
    std::string directory;
    std::string warning;
  };
  write((root_ / "file").string(), "");
  fs::create_directory(root_ / "open");
  fs::permissions(root_ / "open", fs::perms::all);
  const Case cases[] = {
      {"a file where the folder should be", (root_ / "file").string(), "not a private folder"},
      {"below a file", (root_ / "file" / "cache").string(), "cannot be made"},
      {"others may write", (root_ / "open").string(), "not a private folder"},
  };
  for (const Case& c : cases) {
    ArtefactCache cache(c.directory);
    int made = 0;
    const auto make = [&](const std::string& path) {
      ++made;
      write(path, "artefact");
    };
    const std::string path = cache.get("key", make);
    EXPECT_EQ(read(path), "artefact") << c.what;
    EXPECT_NE(cache.warning().find(c.warning), std::string::npos) << c.what << ": " << cache.warning();
    cache.get("key", make);
    EXPECT_EQ(made, 1) << c.what << ": kept within the process";
  }
  ArtefactCache none("");
  EXPECT_EQ(read(none.get("key", [](const std::string& path) { write(path, "artefact"); })), "artefact");
  EXPECT_EQ(none.warning(), "");
}

}  // namespace
}  // namespace graven::codegen
