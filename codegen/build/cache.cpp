#include "codegen/build/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "ir/diagnostic.h"
#include "runtime_min/file.h"
#include "runtime_min/sha256.h"

namespace graven::codegen {

namespace fs = std::filesystem;

namespace {

using runtime::Descriptor;

UserError failed(const std::string& path, const char* what) {
  return UserError(path + ": cannot be " + what + ": " + std::strerror(errno));
}

/// Whether only this user and root can write the file, under any name that it may have.
bool is_own_file(int fd) {
  struct stat info{};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (info.st_uid == geteuid() || info.st_uid == 0) &&
         (info.st_mode & 022) == 0 && info.st_nlink == 1;
}

std::optional<std::vector<std::byte>> read_all(int fd) {
  std::vector<std::byte> content;
  std::byte part[1 << 16];
  for (;;) {
    const ssize_t n = read(fd, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return content;
    content.insert(content.end(), part, part + n);
  }
}

/// A link is not followed, a pipe not waited for.
std::optional<std::vector<std::byte>> read_file(const std::string& path, bool own = false) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.value < 0 || (own && !is_own_file(file.value))) return std::nullopt;
  return read_all(file.value);
}

/// Of a file that nobody else can have written, none else.
std::optional<std::vector<std::byte>> read_own_file(const std::string& path) { return read_file(path, true); }

/// What stands beside an entry, as sha256sum writes it: an entry that was given another's name is none.
std::string record_of(const std::string& key, const std::vector<std::byte>& content) {
  return runtime::sha256(content) + "  " + key + "\n";
}

/// Whether an entry of that key, whole and untouched by others, lies in the folder.
bool is_entry(const std::string& directory, const std::string& key) {
  const auto record = read_own_file(directory + "/" + key + ".sha256");
  if (!record) return false;
  const auto content = read_own_file(directory + "/" + key);
  return content &&
         record_of(key, *content) == std::string(reinterpret_cast<const char*>(record->data()), record->size());
}

/// A new file beside `path`, on the disk before it gets that name. Programs are loaded from it: mode 0700.
void write_whole(const std::string& path, const void* data, std::size_t size) {
  std::string temporary = path + ".tmp.XXXXXX";
  const Descriptor file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.value < 0) throw failed(path, "written");
  const auto* from = static_cast<const char*>(data);
  bool written = fchmod(file.value, 0700) == 0;
  while (written && size > 0) {
    const ssize_t n = write(file.value, from, size);
    if (n < 0 && errno == EINTR) continue;
    written = n > 0;
    if (!written) break;
    from += n;
    size -= static_cast<std::size_t>(n);
  }
  if (written && fsync(file.value) == 0 && rename(temporary.c_str(), path.c_str()) == 0) return;
  const UserError error = failed(path, "written");
  unlink(temporary.c_str());
  throw error;
}

/// Makes the folder and those above it, as far as they are missing, for this user alone whatever the umask allows.
bool make_private_folders(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return true;
  if (path.has_parent_path() && path.parent_path() != path && !make_private_folders(path.parent_path())) return false;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

/// Empty, or how others could put files of theirs there. `directory` has no links in it.
std::string distrust(const fs::path& directory) {
  struct stat info{}, root{};
  if (stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & 022) != 0)
    return "is not a private folder of this user (0700)";
  if (stat("/", &root) != 0) return "cannot be looked at";
  for (fs::path above = directory; above != above.parent_path();) {
    above = above.parent_path();
    // In a sticky folder others cannot rename what is this user's. A group with the user's number is that user alone.
    // Whoever owns the root can do everything anyway; in a user namespace that need not be user 0.
    const bool owned =
        stat(above.c_str(), &info) == 0 && (info.st_uid == geteuid() || info.st_uid == 0 || info.st_uid == root.st_uid);
    const bool writable =
        (info.st_mode & 002) != 0 || ((info.st_mode & 020) != 0 && info.st_gid != 0 && info.st_gid != geteuid());
    if (!owned || (writable && (info.st_mode & S_ISVTX) == 0))
      return "lies in " + above.string() + ", where other users may rename it,";
  }
  return {};
}

constexpr const char* kNoExec = "is on a disk from which no program may run (noexec)";

bool may_run_programs(const std::string& directory) {
  struct statvfs info{};
  return statvfs(directory.c_str(), &info) != 0 || (info.f_flag & ST_NOEXEC) == 0;
}

/// The lock of an entry, or none where none can be had: then two may make the same entry, and either is right.
int lock_entry(const std::string& path) {
  const std::string lock = path + ".lock";
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd >= 0 && is_own_file(fd)) {
      while (flock(fd, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        close(fd);
        return -1;
      }
      return fd;
    }
    // Another user's, who may hold it for ever, or no file at all.
    if (fd >= 0) close(fd);
    if (unlink(lock.c_str()) != 0) return -1;
  }
  return -1;
}

/// A folder of this process alone, from which programs may run; removed on leaving.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    UserError error(
        "no private temporary folder can be made from which programs may run (TMPDIR, /tmp, /var/tmp, /dev/shm)");
    const char* chosen = std::getenv("TMPDIR");
    for (const std::string& base :
         {std::string(chosen ? chosen : ""), std::string("/tmp"), std::string("/var/tmp"), std::string("/dev/shm")}) {
      if (base.empty()) continue;
      std::error_code failure;
      std::string path = (fs::canonical(base, failure) / "graven-XXXXXX").string();
      if (failure || mkdtemp(path.data()) == nullptr) {
        error.note(base + ": " + (failure ? failure.message() : std::strerror(errno)));
        continue;
      }
      std::string reason = distrust(path);
      if (reason.empty() && !may_run_programs(path)) reason = kNoExec;
      if (reason.empty()) {
        path_ = path;
        return;
      }
      error.note(path + " " + reason);
      rmdir(path.c_str());
    }
    throw error;
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})), process_(other.process_) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty() && process_ == getpid())
      fs::remove_all(path_, ignored);  // not in a process that was forked meanwhile
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  pid_t process_ = getpid();
};

/// What could not go into a cache, by cache and key, until the process ends.
struct Kept {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, TemporaryFolder> folders;
};

Kept& kept() {
  static Kept all;
  return all;
}

/// What makers that were killed left behind. Only whoever has the entry's lock may.
void remove_leftovers(const std::string& directory, const std::string& key) {
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(key + ".tmp.") || name.starts_with(key + ".sha256.tmp.")) unlink(at->path().c_str());
  }
}

}  // namespace

ArtefactCache::ArtefactCache(const std::string& directory) {
  if (directory.empty()) return;
  std::error_code error;
  directory_ = fs::absolute(directory, error).string();
  if (!error) return;
  directory_ = directory;
  opened_ = true;
  do_without("cannot be found: " + error.message());
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

void ArtefactCache::do_without(const std::string& reason) {
  writable_ = false;
  if (warning_.empty())
    warning_ = "the cache " + directory_ + " " + reason + "; compiled programs are kept for this process only";
}

/// Finds out, once, what the folder is good for.
void ArtefactCache::open() {
  if (std::exchange(opened_, true) || directory_.empty()) return;
  if (!make_private_folders(directory_)) return do_without(std::string("cannot be made: ") + std::strerror(errno));
  std::error_code error;
  const fs::path real = fs::canonical(directory_, error);
  if (error) return do_without("cannot be read: " + error.message());
  if (const std::string reason = distrust(real); !reason.empty()) return do_without(reason);
  directory_ = real.string();
  if (!may_run_programs(directory_)) return do_without(kNoExec);
  readable_ = true;
  writable_ = access(directory_.c_str(), W_OK | X_OK) == 0;
  if (!writable_) do_without(std::string("cannot be written: ") + std::strerror(errno));
}

/// The path of an entry that is there and works, or empty.
std::string ArtefactCache::look(const std::string& key, const Try& attempt) {
  hit_ = true;
  const std::string path = directory_ + "/" + key;
  if (readable_ && is_entry(directory_, key) && attempt(path).empty()) return path;
  const std::lock_guard lock(kept().mutex);
  if (const auto found = kept().folders.find({directory_, key}); found != kept().folders.end()) {
    const std::string temporary = found->second.path() + "/" + key;
    if (is_entry(found->second.path(), key) && attempt(temporary).empty()) return temporary;
    kept().folders.erase(found);
  }
  hit_ = false;
  return {};
}

/// User error when the folder does not take it.
void ArtefactCache::publish(const std::string& key, const std::vector<std::byte>& content) {
  const std::string path = directory_ + "/" + key, record = record_of(key, content);
  // The record first: a reader that sees the entry finds it; an entry whose record is of another content is made anew.
  write_whole(path + ".sha256", record.data(), record.size());
  write_whole(path, content.data(), content.size());
  const Descriptor folder(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.value >= 0) fsync(folder.value);
}

std::string ArtefactCache::get(const std::string& key, const Make& make, const Try& attempt) {
  GRAVEN_CHECK(!key.empty() && key.find('/') == std::string::npos, "a key is a file name");
  open();
  if (std::string found = look(key, attempt); !found.empty()) return found;
  const std::string path = directory_ + "/" + key;
  const Descriptor lock(writable_ ? lock_entry(path) : -1);
  if (lock.value >= 0) {
    // The second look: whoever held the lock before may have made it.
    if (std::string found = look(key, attempt); !found.empty()) return found;
    remove_leftovers(directory_, key);
  }
  TemporaryFolder folder;
  const std::string made = folder.path() + "/" + key;
  make(made);
  const auto content = read_file(made);
  if (!content)
    throw UserError("the compiler reports success and leaves nothing that can be read: " +
                    failed(made, "read").message());
  if (writable_) {
    try {
      publish(key, *content);
      const std::string reason = attempt(path);
      if (reason.empty()) return path;
      unlink(path.c_str());
      unlink((path + ".sha256").c_str());
      // Where it works from the temporary folder the cache is to blame; where not, the error below says it.
      do_without("holds programs that cannot be used (" + reason + ")");
    } catch (const UserError& error) {
      do_without("cannot be used: " + error.message());
    }
  }
  // What the compiler made may be writable by others (umask 0); the folder is not open to them.
  if (chmod(made.c_str(), 0700) != 0) throw failed(made, "written");
  const std::string record = record_of(key, *content);
  write_whole(made + ".sha256", record.data(), record.size());
  if (const std::string reason = attempt(made); !reason.empty()) throw UserError(reason);
  // Another thread may have made it meanwhile, and use it.
  const std::lock_guard guard(kept().mutex);
  return kept().folders.try_emplace({directory_, key}, std::move(folder)).first->second.path() + "/" + key;
}

void write_source(const std::filesystem::path& path, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) throw UserError(path.string() + ": cannot be written");
}

}  // namespace graven::codegen
