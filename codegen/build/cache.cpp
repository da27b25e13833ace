#include "codegen/build/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

#include "ir/diagnostic.h"
#include "runtime_min/error.h"
#include "runtime_min/file.h"
#include "runtime_min/sha256.h"

namespace graven::codegen {

namespace fs = std::filesystem;

namespace {

/// Closes on leaving; a lock on it goes with it.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

std::string content_hash(const std::string& path) {
  const runtime::MappedFile file(path);
  return runtime::sha256(file.bytes());
}

/// A file that is on the disk before it gets its name.
void sync_and_close(const std::string& path) {
  Descriptor file{open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (file.fd < 0 || fsync(file.fd) != 0) throw UserError(path + ": cannot be written: " + std::strerror(errno));
}

void write_small_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) throw UserError(path + ": cannot be written: " + std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  if (std::fclose(file) != 0 || !written) throw UserError(path + ": cannot be written: " + std::strerror(errno));
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw UserError(to + ": cannot be renamed: " + std::strerror(errno));
}

/// Whether the folder has no room for a compiled program (or the user's quota none), so that what failed there may have failed for that. It is tried:
/// compilers say so in the user's language, and once they have failed they have given the room back that they had.
bool lacks_space(const std::string& directory) {
  constexpr off_t kRoom = off_t{16} << 20;  // more than the largest library and what is written beside it
  const std::string path = directory + "/room.tmp." + std::to_string(getpid());
  errno = 0;
  const Descriptor file{open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  const int reason = file.fd < 0 ? errno : posix_fallocate(file.fd, 0, kRoom);
  unlink(path.c_str());
  return reason == ENOSPC || reason == EDQUOT;
}

}  // namespace

ArtefactCache::ArtefactCache(std::string directory) : directory_(std::move(directory)) {}

ArtefactCache::~ArtefactCache() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

std::string ArtefactCache::default_directory() {
  auto environment = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const std::string own = environment("GRAVEN_CACHE"); !own.empty()) return own == "off" ? std::string() : own;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty() && xdg[0] == '/') return xdg + "/graven";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/graven";
  return {};
}

bool ArtefactCache::usable(const std::string& directory) {
  std::error_code error;
  const bool there = fs::is_directory(directory, error);
  if (!there) {
    fs::create_directories(fs::path(directory).parent_path(), error);
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
      warning_ = "the cache " + directory + " cannot be made: " + std::strerror(errno) + "; compiled programs are kept for this process only";
      return false;
    }
  }
  struct stat info{};
  if (stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022) != 0) {
    // Whoever can write there could make this process run their code.
    warning_ = "the cache " + directory + " is not a private folder of this user (0700); compiled programs are kept for this process only";
    return false;
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    warning_ = "the cache " + directory + " cannot be written; compiled programs are kept for this process only";
    return false;
  }
  return true;
}

std::string ArtefactCache::lookup(const std::string& directory, const std::string& key) const {
  const std::string path = directory + "/" + key;
  try {
    if (access(path.c_str(), R_OK) != 0) return {};
    const runtime::MappedFile recorded(path + ".sha256");
    const std::string expected(reinterpret_cast<const char*>(recorded.bytes().data()), recorded.bytes().size());
    if (content_hash(path) == expected) return path;
  } catch (const runtime::Error&) {
    // Truncated, vanished or unreadable: as if it were not there.
  }
  return {};
}

std::string ArtefactCache::make_entry(const std::string& directory, const std::string& key, const std::function<void(const std::string&)>& make) {
  const std::string path = directory + "/" + key;
  Descriptor lock{open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (lock.fd < 0) throw UserError(path + ".lock: cannot be written: " + std::strerror(errno));
  while (flock(lock.fd, LOCK_EX) != 0)
    if (errno != EINTR) throw UserError(path + ".lock: cannot be locked: " + std::strerror(errno));
  // The second look: whoever held the lock before may have made it.
  if (const std::string found = lookup(directory, key); !found.empty()) {
    hit_ = true;
    return found;
  }
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  try {
    make(temporary);
    sync_and_close(temporary);
    const std::string hash = content_hash(temporary);
    write_small_file(temporary + ".sha256", hash);
    // The hash first: a reader that sees the entry finds its hash; an entry whose hash is of another content is made anew.
    rename_file(temporary + ".sha256", path + ".sha256");
    rename_file(temporary, path);
  } catch (...) {
    unlink(temporary.c_str());
    unlink((temporary + ".sha256").c_str());
    throw;
  }
  Descriptor folder{open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd >= 0) fsync(folder.fd);
  return path;
}

std::string ArtefactCache::get(const std::string& key, const std::function<void(const std::string& path)>& make) {
  hit_ = false;
  GRAVEN_CHECK(!key.empty() && key.find('/') == std::string::npos, "a key is a file name");
  if (!directory_.empty() && (warning_.empty() || full_)) {
    // What is there can be used even where nothing can be written.
    if (const std::string found = lookup(directory_, key); !found.empty() && usable(directory_)) {
      hit_ = true;
      return found;
    }
    if (!full_ && usable(directory_)) {
      try {
        return make_entry(directory_, key, make);
      } catch (const std::exception&) {
        if (!lacks_space(directory_)) throw;
        full_ = true;
        warning_ = "the cache " + directory_ + " is on a disk without space; compiled programs are kept for this process only";
      }
    }
  }
  if (temporary_.empty()) {
    const char* base = std::getenv("TMPDIR");
    std::string pattern = std::string(base && *base ? base : "/tmp") + "/graven-XXXXXX";
    if (!mkdtemp(pattern.data())) throw UserError(pattern + ": cannot be made: " + std::strerror(errno));
    temporary_ = pattern;
  }
  if (const std::string found = lookup(temporary_, key); !found.empty()) {
    hit_ = true;
    return found;
  }
  return make_entry(temporary_, key, make);
}

}  // namespace graven::codegen
