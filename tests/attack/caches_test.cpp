// The cache of compiled programs, tampered with by its owner and, where root can be somebody else, by another user; and
// makers of entries and whole programs, killed at any moment. Whatever happens, get() returns what its maker makes, and
// nothing stays behind that runs.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/build/cache.h"
#include "codegen/build/process.h"
#include "runtime_min/sha256.h"
#include "tests/attack/attack.h"

namespace graven::attack {
namespace {

namespace fs = std::filesystem;
using codegen::ArtefactCache;

/// A folder of its own, which is removed on leaving, and with it what killed processes leave in the temporary folder.
struct Folder {
  fs::path path;
  Folder() {
    std::string pattern = "/tmp/graven-attack-XXXXXX";
    path = mkdtemp(pattern.data());
    fs::permissions(path, fs::perms(0755));
    fs::create_directory(path / "temporary");
    setenv("TMPDIR", (path / "temporary").c_str(), 1);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    given_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", given_.c_str(), 1);
    fs::remove_all(path);
  }

 private:
  std::string given_ = std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "";
};

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// What the maker of a key makes: more than a page, so that it is not written at one stroke.
std::string content_of(const std::string& key) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += key + " " + std::to_string(i) + "\n";
  return text;
}

std::string record_of(const std::string& key, const std::string& text) {
  return runtime::sha256(std::as_bytes(std::span(text.data(), text.size()))) + "  " + key + "\n";
}

/// 0 when a process of its own gets the right content from the cache, whatever it has to do for it.
int get_right(const std::string& directory, const std::string& key) {
  try {
    ArtefactCache cache(directory);
    return read(cache.get(key, [&](const std::string& path) { write(path, content_of(key)); })) == content_of(key) ? 0
                                                                                                                   : 1;
  } catch (...) {
    return 2;
  }
}

struct Tampering {
  const char* what;
  std::function<void(Attack&, const fs::path& directory, const std::string& key)> apply;
};

const std::vector<std::string> kKeys = {"one.so", "two.so", "three.so"};

const std::vector<Tampering>& tamperings() {
  const auto file = [](Attack& a, const fs::path& d, const std::string& key) {
    return d / (a.below(3) == 0 ? key + ".sha256" : key);
  };
  static const std::vector<Tampering> all = {
      {"cut", [=](Attack& a, const fs::path& d,
                  const std::string& k) { truncate(file(a, d, k).c_str(), static_cast<off_t>(a.below(20000))); }},
      {"bytes changed",
       [=](Attack& a, const fs::path& d, const std::string& k) {
         const fs::path path = file(a, d, k);
         std::string text = read(path);
         if (!text.empty()) text[a.below(text.size())] ^= static_cast<char>(1 + a.below(255));
         write(path, text);
       }},
      {"removed", [=](Attack& a, const fs::path& d, const std::string& k) { fs::remove(file(a, d, k)); }},
      {"renamed",
       [=](Attack& a, const fs::path& d, const std::string& k) {
         const std::string& other = a.choose(kKeys);
         std::error_code ignored;
         fs::rename(d / k, d / other, ignored);
         fs::rename(d / (k + ".sha256"), d / (other + ".sha256"), ignored);
       }},
      {"made a link",
       [=](Attack& a, const fs::path& d, const std::string& k) {
         const fs::path path = file(a, d, k);
         fs::remove(path);
         fs::create_symlink(a.below(2) ? d / a.choose(kKeys) : fs::path("/dev/zero"), path);
       }},
      {"made a pipe",
       [=](Attack& a, const fs::path& d, const std::string& k) {
         const fs::path path = file(a, d, k);
         fs::remove(path);
         mkfifo(path.c_str(), 0600);
       }},
      {"made a folder",
       [=](Attack& a, const fs::path& d, const std::string& k) {
         const fs::path path = file(a, d, k);
         fs::remove(path);
         fs::create_directories(path / "in it");
       }},
      {"opened to all",
       [=](Attack& a, const fs::path& d, const std::string& k) { chmod(file(a, d, k).c_str(), 0777); }},
      {"closed", [=](Attack& a, const fs::path& d, const std::string& k) { chmod(file(a, d, k).c_str(), 0); }},
      {"its lock taken away", [](Attack&, const fs::path& d, const std::string& k) { fs::remove(d / (k + ".lock")); }},
      {"its lock made a link",
       [](Attack&, const fs::path& d, const std::string& k) {
         fs::remove(d / (k + ".lock"));
         fs::create_symlink(d / k, d / (k + ".lock"));
       }},
      {"leftovers", [](Attack& a, const fs::path& d,
                       const std::string& k) { write(d / (k + ".tmp." + std::to_string(a.below(100000))), "half"); }},
      {"the cache removed", [](Attack&, const fs::path& d, const std::string&) { fs::remove_all(d); }},
      {"the cache opened", [](Attack&, const fs::path& d, const std::string&) { chmod(d.c_str(), 0777); }},
      {"the cache closed",
       [](Attack& a, const fs::path& d, const std::string&) { chmod(d.c_str(), a.below(2) ? 0500 : 0); }},
      {"the cache made a file",
       [](Attack&, const fs::path& d, const std::string&) {
         fs::remove_all(d);
         write(d, "");
       }},
      {"another user's entry",
       [](Attack& a, const fs::path& d, const std::string& k) {
         if (geteuid() != 0 || !fs::is_directory(d)) return;
         const bool locked = a.below(2) == 0;
         chmod(d.c_str(), 0777);
         const pid_t other = fork();
         if (other == 0) {
           if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
           std::error_code ignored;
           for (const std::string& name : {k, k + ".sha256", k + ".lock"}) fs::remove_all(d / name, ignored);
           write(d / k, "theirs");
           write(d / (k + ".sha256"), record_of(k, "theirs"));
           if (locked) write(d / (k + ".lock"), "");
           _exit(0);
         }
         int status = 0;
         waitpid(other, &status, 0);
         chmod(d.c_str(), 0700);
       }},
  };
  return all;
}

TEST(Attack, Caches) {
  Attack attack("caches", 40);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    const Folder folder;
    const std::string directory = folder.path / "cache";
    for (const std::string& key : kKeys) {
      if (attack.below(4) == 0) continue;
      EXPECT_EQ(get_right(directory, key), 0);
    }
    for (std::size_t n = 1 + attack.below(3); n > 0; --n) {
      const Tampering& tampering = attack.choose(tamperings());
      attack.count(tampering.what);
      try {
        tampering.apply(attack, directory, attack.choose(kKeys));
      } catch (const fs::filesystem_error&) {  // one tampering may leave nothing for the next
      }
    }
    std::vector<pid_t> readers;
    for (std::size_t n = 1 + attack.below(3); n > 0; --n) {
      const pid_t reader = fork();
      if (reader == 0) {
        alarm(60);  // a wait for ever is a failure
        int worst = 0;
        for (const std::string& key : kKeys) worst = std::max(worst, get_right(directory, key));
        _exit(worst);
      }
      readers.push_back(reader);
    }
    for (const pid_t reader : readers) {
      int status = 0;
      ASSERT_EQ(waitpid(reader, &status, 0), reader);
      EXPECT_EQ(status, 0) << "1: another content, 2: an error (each in 256ths), 14: a wait for ever";
    }
    attack.count("readers", static_cast<std::int64_t>(readers.size()));
    if (::testing::Test::HasFailure()) break;
  }
}

/// Whether a process of that number runs; one that nobody has collected yet has ended.
bool runs(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string word;
  return (stat >> word >> word >> word) && word != "Z";
}

TEST(Attack, Kills) {
  Attack attack("kills", 30);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    const Folder folder;
    const std::string directory = folder.path / "cache", key = "one.so", note = folder.path / "note";
    const bool in_compiler = attack.below(2) == 0;
    const pid_t maker = fork();
    if (maker == 0) {
      for (;;) {
        fs::remove(fs::path(directory) / key);
        ArtefactCache(directory).get(key, [&](const std::string& path) {
          write(path, content_of(key));
          // A compiler of which two processes run.
          const std::string compiler =
              R"(sh -c 'echo $$ > "$1.new" && mv "$1.new" "$1"; exec sleep 600' sh "$0"; true)";
          if (in_compiler) codegen::run_process({"sh", "-c", compiler, note});
        });
      }
    }
    pid_t compiler = 0;
    for (int i = 0; in_compiler && i < 2000 && compiler == 0; ++i) {
      usleep(5000);
      std::ifstream(note) >> compiler;
    }
    usleep(static_cast<useconds_t>(attack.below(in_compiler ? 2000 : 30000)));
    kill(maker, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(maker, &status, 0), maker);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    attack.count(in_compiler ? "while the compiler ran" : "while entries were made");
    if (in_compiler) {
      ASSERT_GT(compiler, 0);
      for (int i = 0; i < 1000 && runs(compiler); ++i) usleep(10000);
      EXPECT_FALSE(runs(compiler)) << "the compiler goes on";
    }
    EXPECT_EQ(get_right(directory, key), 0);
    for (const auto& file : fs::directory_iterator(directory))
      EXPECT_EQ(file.path().string().find(".tmp."), std::string::npos) << file.path() << " stays behind";
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace graven::attack
