// The cache of compiled artefacts under everything that formats and faults can do to it.
#include "codegen/build/cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>

#include "ir/diagnostic.h"
#include "runtime_min/sha256.h"

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

/// A disk of one megabyte, mounted where that is allowed.
class TinyDisk {
 public:
  explicit TinyDisk(std::string path) : path_(std::move(path)) {
    fs::create_directories(path_);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1m,mode=0700") == 0;
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  ~TinyDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_;
};

TEST_F(CacheTest, AFullDiskMeansMemoryOnly) {
  const TinyDisk disk(directory());
  if (!disk.mounted()) GTEST_SKIP() << "no disk can be mounted here: " << std::strerror(errno);
  // As a compiler does: it fails, says why in the user's language, and what it had written is gone.
  int made = 0;
  const auto make = [&](const std::string& path) {
    ++made;
    std::ofstream out(path, std::ios::binary);
    out << std::string(2 << 20, 'a');
    out.close();
    if (out) return;
    fs::remove(path);
    throw UserError("the compiler failed");
  };
  write(directory() + "/early", "artefact");
  write(directory() + "/early.sha256", runtime::sha256(std::as_bytes(std::span("artefact", 8))));
  ArtefactCache cache(directory());
  const std::string path = cache.get("key", make);
  EXPECT_EQ(fs::file_size(path), 2u << 20);
  EXPECT_NE(cache.warning().find("the cache " + directory() + " is on a disk without space"), std::string::npos) << cache.warning();
  EXPECT_EQ(made, 2) << "in the cache, and in the temporary folder";
  EXPECT_EQ(cache.get("key", make), path);
  cache.get("another", make);
  EXPECT_EQ(made, 3) << "the cache is not tried again";
  EXPECT_EQ(cache.get("early", make), directory() + "/early") << "what it holds can be used";
  // What fails for another reason is the user's to see, on a full disk as well as elsewhere.
  ArtefactCache later(directory());
  EXPECT_THROW(later.get("broken", [](const std::string&) { throw UserError("the compiler failed"); }), UserError);
}

}  // namespace
}  // namespace graven::codegen
