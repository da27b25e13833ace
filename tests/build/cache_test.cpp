// The cache of compiled artefacts under everything that formats and faults can do to it.
#include "codegen/build/cache.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>
#include <thread>
#include <vector>

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
      {"a link", [](const std::string& e) { fs::rename(e, e + ".real"), fs::create_symlink(e + ".real", e); }},
      {"a second name",
       [](const std::string& e) { fs::remove(e + ".second"), fs::create_hard_link(e, e + ".second"); }},
      {"a pipe", [](const std::string& e) { fs::remove(e), mkfifo(e.c_str(), 0600); }},
      {"open to others", [](const std::string& e) { fs::permissions(e, fs::perms::all); }},
      {"hash open to others", [](const std::string& e) { fs::permissions(e + ".sha256", fs::perms::all); }},
      {"hash a link",
       [](const std::string& e) {
         fs::rename(e + ".sha256", e + ".hash"), fs::create_symlink(e + ".hash", e + ".sha256");
       }},
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
  for (const auto& file : fs::directory_iterator(directory()))
    EXPECT_EQ(file.path().string().find(".tmp."), std::string::npos) << file.path();
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
      {"others may rename it", (root_ / "open" / "cache").string(),
       "lies in " + (root_ / "open").string() + ", where other users may rename it"},
      {"a link to such a folder", (root_ / "link").string(),
       "lies in " + (root_ / "open").string() + ", where other users may rename it"},
      {"a link to nowhere", (root_ / "dangling").string(), "cannot be read"},
  };
  fs::create_directory_symlink(root_ / "open" / "cache", root_ / "link");
  fs::create_directory_symlink(root_ / "nowhere", root_ / "dangling");
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
  explicit TinyDisk(std::string path, unsigned long flags = 0) : path_(std::move(path)) {
    fs::create_directories(path_);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", flags, "size=1m,mode=0700") == 0;
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  ~TinyDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  bool make_read_only() const { return mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0; }

 private:
  std::string path_;
  bool mounted_;
};

TEST_F(CacheTest, AFullDiskMeansMemoryOnly) {
  const TinyDisk disk(directory());
  if (!disk.mounted()) GTEST_SKIP() << "no disk can be mounted here: " << std::strerror(errno);
  int made = 0;
  const auto make = [&](const std::string& path) {
    ++made;
    write(path, std::string(2 << 20, 'a'));
  };
  ArtefactCache(directory()).get("early", [](const std::string& path) { write(path, "artefact"); });
  ArtefactCache cache(directory());
  const std::string path = cache.get("key", make);
  EXPECT_EQ(fs::file_size(path), 2u << 20);
  EXPECT_NE(cache.warning().find("the cache " + directory() + " cannot be used: "), std::string::npos)
      << cache.warning();
  EXPECT_NE(cache.warning().find("No space left"), std::string::npos) << cache.warning();
  EXPECT_EQ(cache.get("key", make), path);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(cache.get("early", make), directory() + "/early") << "what it holds can be used";
  // What fails for another reason is the user's to see, on a full disk as well as elsewhere.
  ArtefactCache later(directory());
  EXPECT_THROW(later.get("broken", [](const std::string&) { throw UserError("the compiler failed"); }), UserError);
}

TEST_F(CacheTest, AReadOnlyDiskIsReadAndNotWritten) {
  const TinyDisk disk(directory());
  if (!disk.mounted()) GTEST_SKIP() << "no disk can be mounted here: " << std::strerror(errno);
  const auto make = [](const std::string& path) { write(path, "artefact"); };
  ArtefactCache(directory()).get("early", make);
  ASSERT_TRUE(disk.make_read_only()) << std::strerror(errno);
  ArtefactCache cache(directory());
  EXPECT_EQ(cache.get("early", make), directory() + "/early");
  EXPECT_EQ(read(cache.get("key", make)), "artefact");
  EXPECT_NE(cache.warning().find("cannot be written"), std::string::npos) << cache.warning();
}

TEST_F(CacheTest, ADiskWithoutExecHoldsNoPrograms) {
  const TinyDisk disk(directory(), MS_NOEXEC);
  if (!disk.mounted()) GTEST_SKIP() << "no disk can be mounted here: " << std::strerror(errno);
  const auto make = [](const std::string& path) { write(path, "artefact"); };
  const char* before = std::getenv("TMPDIR");
  const std::string given = before ? before : "";
  setenv("TMPDIR", directory().c_str(), 1);  // of no use either
  ArtefactCache cache(directory());
  const std::string path = cache.get("key", make);
  before ? setenv("TMPDIR", given.c_str(), 1) : unsetenv("TMPDIR");
  EXPECT_EQ(read(path), "artefact");
  EXPECT_FALSE(path.starts_with(directory())) << path;
  EXPECT_NE(cache.warning().find("noexec"), std::string::npos) << cache.warning();
}

TEST_F(CacheTest, ACacheThatGoesMeanwhileIsDoneWithout) {
  struct Case {
    const char* what;
    std::function<void()> happens;
  };
  const Case cases[] = {
      {"deleted", [&] { fs::remove_all(directory()); }},
      {"replaced by a file", [&] { fs::remove_all(directory()), write(directory(), ""); }},
  };
  for (const Case& c : cases) {
    fs::remove_all(directory());
    ArtefactCache cache(directory());
    const auto artefact = [](const std::string& path) { write(path, "artefact"); };
    cache.get("first", artefact);
    int made = 0;
    const std::string key = std::string("key ") + c.what;
    const auto make = [&](const std::string& path) {
      if (++made == 1) c.happens();
      write(path, "artefact");
    };
    const std::string path = cache.get(key, make);
    EXPECT_EQ(read(path), "artefact") << c.what;
    EXPECT_NE(cache.warning().find("cannot be used"), std::string::npos) << c.what << ": " << cache.warning();
    EXPECT_EQ(cache.get(key, make), path) << c.what;
    EXPECT_EQ(made, 1) << c.what;
  }
}

TEST_F(CacheTest, ARelativeFolderIsBelowTheCurrentOne) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  ArtefactCache cache("some/cache");
  fs::current_path(before);
  EXPECT_EQ(cache.get("key", [](const std::string& path) { write(path, "artefact"); }),
            (root_ / "some/cache/key").string());
  EXPECT_EQ(cache.warning(), "");
}

TEST_F(CacheTest, WhatDoesNotWorkIsNotKept) {
  const auto works = [](const std::string& path) {
    return read(path) == "works" ? std::string() : std::string("does not work");
  };
  ArtefactCache cache(directory());
  // The compiler reports success and writes rubbish: an error, and another try next time.
  try {
    cache.get("key", [](const std::string& path) { write(path, "rubbish"); }, works);
    ADD_FAILURE() << "rubbish is accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.message(), "does not work");
  }
  EXPECT_FALSE(fs::exists(directory() + "/key"));
  EXPECT_THROW(cache.get("none", [](const std::string&) {}, works), UserError) << "success, and no file";
  ArtefactCache later(directory());
  const auto make = [](const std::string& path) { write(path, "works"); };
  EXPECT_EQ(later.get("key", make, works), directory() + "/key");
  // What lies there whole and does not work is made anew.
  const std::string entry =
      ArtefactCache(directory()).get("other", [](const std::string& path) { write(path, "worked once"); });
  EXPECT_EQ(read(later.get("other", make, works)), "works");
  EXPECT_EQ(read(entry), "works");
  // What works in the temporary folder alone is the cache's fault.
  ArtefactCache third(directory());
  const std::string path = third.get("third", make, [&](const std::string& p) {
    return std::string(p.starts_with(directory()) ? "not from this disk" : "");
  });
  EXPECT_FALSE(path.starts_with(directory())) << path;
  EXPECT_NE(third.warning().find("not from this disk"), std::string::npos) << third.warning();
}

TEST_F(CacheTest, ThreadsWithoutACacheShareWhatIsMade) {
  std::vector<std::thread> threads;
  std::atomic<int> whole = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      ArtefactCache cache("");
      for (int round = 0; round < 20; ++round) {
        const std::string path =
            cache.get("shared " + std::to_string(round), [&](const std::string& p) { write(p, "artefact"); });
        if (read(path) == "artefact") ++whole;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(whole, 8 * 20) << "a path that was returned stays";
}

/// Runs as user and group 65534.
int as_nobody(const std::function<void()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) _exit(100);
    umask(0);
    what();
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string recorded(const std::string& key, const std::string& text) {
  return runtime::sha256(std::as_bytes(std::span(text.data(), text.size()))) + "  " + key + "\n";
}

TEST_F(CacheTest, NothingOfAnotherUserIsLoaded) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, who can be another user";
  fs::permissions(root_, fs::perms(0755));
  const auto make = [](const std::string& path) { write(path, "mine"); };
  ArtefactCache(directory()).get("mine", make);
  ArtefactCache(directory()).get("renamed", [](const std::string& path) { write(path, "another of mine"); });
  // Once it was open to all, and another user was there.
  fs::permissions(directory(), fs::perms::all);
  ASSERT_EQ(as_nobody([&] {
              write(directory() + "/theirs", "theirs");
              write(directory() + "/theirs.sha256", recorded("theirs", "theirs"));
              write(directory() + "/theirs.lock", "");
              fs::rename(directory() + "/renamed", directory() + "/mine");
              fs::rename(directory() + "/renamed.sha256", directory() + "/mine.sha256");
              fs::create_hard_link(directory() + "/theirs", directory() + "/linked");
              fs::create_hard_link(directory() + "/theirs.sha256", directory() + "/linked.sha256");
              const int lock = open((directory() + "/theirs.lock").c_str(), O_RDWR);
              if (flock(lock, LOCK_EX) != 0) _exit(1);
              const pid_t holder = fork();
              if (holder == 0) {  // until the test ends it
                alarm(100);
                for (;;) pause();
              }
              write(directory() + "/holder", std::to_string(holder));
            }),
            0);
  fs::permissions(directory(), fs::perms::owner_all);
  const pid_t holder = std::stoi(read(directory() + "/holder"));
  ArtefactCache cache(directory());
  for (const char* key : {"theirs", "mine", "renamed", "linked"}) {
    EXPECT_EQ(read(cache.get(key, make)), "mine") << key;
    EXPECT_EQ(cache.warning(), "") << key;
  }
  kill(holder, SIGKILL);
}

TEST_F(CacheTest, AFolderIsAsPrivateAsThoseAboveIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, who can give folders to others";
  struct Case {
    uid_t owner;
    gid_t group;
    mode_t mode;
    bool used;
  };
  const Case cases[] = {
      {0, 0, 0755, true},      {0, 0, 0775, true},       {0, 65534, 0755, true},  {0, 65534, 0775, false},
      {0, 0, 0777, false},     {0, 0, 01777, true},      {0, 65534, 01775, true}, {65534, 0, 0755, false},
      {65534, 0, 0700, false}, {65534, 0, 01777, false},
  };
  for (const Case& c : cases) {
    const std::string above = (root_ / "above").string();
    fs::remove_all(above);
    fs::create_directories(above + "/between");
    ASSERT_EQ(chown(above.c_str(), c.owner, c.group), 0);
    ASSERT_EQ(chmod(above.c_str(), c.mode), 0);
    ArtefactCache cache(above + "/between/cache");
    const std::string key = "of " + std::to_string(&c - cases);  // what a folder does not take is kept by its key
    const std::string path = cache.get(key, [](const std::string& p) { write(p, "artefact"); });
    EXPECT_EQ(path == above + "/between/cache/" + key, c.used)
        << c.owner << " " << c.group << " " << std::oct << c.mode << ": " << cache.warning();
  }
}

}  // namespace
}  // namespace graven::codegen
