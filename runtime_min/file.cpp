#include "file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

#include "error.h"

namespace graven::runtime {

Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

/// For the system, which would take the text up to a zero byte for another path.
const char* checked(const std::string& path) {
  if (path.find('\0') != std::string::npos) throw Error(printable(path), "", "a path", "a zero byte in it");
  return path.c_str();
}

bool is_named(int descriptor, const std::string& path) {
  struct stat here, there;
  return ::fstat(descriptor, &here) == 0 && ::lstat(path.c_str(), &there) == 0 && here.st_dev == there.st_dev &&
         here.st_ino == there.st_ino;
}

/// A new file that this process holds a lock on as long as it is open; -1 and errno where there is none to be had.
int create_locked(const std::string& path) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) return -1;
    // Some file systems have no locks: then what a killed writer leaves stays.
    if (::flock(descriptor, LOCK_EX) != 0 || is_named(descriptor, path)) return descriptor;
    ::close(descriptor);  // taken for abandoned, and removed, before it was locked
  }
}

/// Removes what create_locked() made in a process that is gone. False where it is somebody's.
bool remove_abandoned(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.value < 0) return errno == ENOENT;
  struct stat status;
  if (::fstat(file.value, &status) != 0 || !S_ISREG(status.st_mode) || ::flock(file.value, LOCK_EX | LOCK_NB) != 0)
    return false;
  return !is_named(file.value, path) || ::unlink(path.c_str()) == 0;
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file(
      ::open(checked(path_), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe is refused below, not waited for
  if (file.value < 0) throw system_error(path_, "open");
  struct stat status;
  if (::fstat(file.value, &status) != 0) throw system_error(path_, "read");
  if (!S_ISREG(status.st_mode))
    throw Error(path_, "", "a file", S_ISDIR(status.st_mode) ? "a folder" : "something else");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED && errno == ENOMEM) throw OutOfMemory(size_);
  if (data == MAP_FAILED) throw system_error(path_, "map");
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> part) const {
  // The mapping begins at a page. A page that the part shares with others goes too: it is read again with them.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = static_cast<std::size_t>(part.data() - data_) / page * page;
  const std::size_t end = static_cast<std::size_t>(part.data() - data_) + part.size();
  if (end > begin)
    ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);  // a wish: nothing depends on it
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), buffer_(kBufferBytes) {
  if (is_stream(path_)) {
    descriptor_ = open_stream(path_);
    return;
  }
  // A name that is taken belongs to another writer of the same file, or to one that was killed.
  for (int i = 0; i < 1000; ++i) {
    temporary_ = path_ + ".graven-tmp" + (i == 0 ? "" : "." + std::to_string(i));
    do {
      descriptor_ = create_locked(temporary_);
      if (descriptor_ >= 0) return;
      if (errno != EEXIST) throw system_error(path_, "create");
    } while (remove_abandoned(temporary_));
  }
  throw Error(path_, "cannot create: a thousand others write it");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::close(descriptor_);
}

void AtomicFile::write(const void* data, std::size_t size) {
  const auto* from = static_cast<const std::byte*>(data);
  while (size > 0) {
    if (used_ == buffer_.size()) flush();
    const std::size_t n = std::min(size, buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, from, n);
    used_ += n;
    from += n;
    size -= n;
  }
}

void AtomicFile::flush() {
  for (std::size_t done = 0; done < used_;) {
    const ssize_t n = ::write(descriptor_, buffer_.data() + done, used_ - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error(path_, "write");
    done += static_cast<std::size_t>(n);
  }
  used_ = 0;
}

void AtomicFile::commit(bool sync_folder) {
  flush();
  if (temporary_.empty()) {
    if (::close(std::exchange(descriptor_, -1)) != 0) throw system_error(path_, "close");
    return;
  }
  if (::fsync(descriptor_) != 0) throw system_error(path_, "write");
  // Renamed while it is locked: nobody takes it for one that was left behind.
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw system_error(path_, "create");
  if (::close(std::exchange(descriptor_, -1)) != 0) throw system_error(path_, "close");
  if (sync_folder) sync_directory(parent_of(path_));
}

void fill_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The least number that is free is this one, since those below are taken. Opened the other way round, so that using
    // it is an error.
    const int file = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (file >= 0 && file != stream) ::close(file);
  }
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw system_error("standard output", "write");
}

FileKind kind_of(const std::string& path) {
  struct stat status;
  if (::stat(checked(path), &status) != 0) return FileKind::absent;
  if (S_ISREG(status.st_mode)) return FileKind::regular;
  return S_ISDIR(status.st_mode) ? FileKind::directory : FileKind::other;
}

bool is_stream(const std::string& path) {
  struct stat own, status;
  if (::lstat(checked(path), &own) != 0 || S_ISREG(own.st_mode)) return false;
  const bool reachable = ::stat(path.c_str(), &status) == 0;
  if (reachable && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode))) return true;
  if (reachable && S_ISDIR(status.st_mode)) throw Error(path, "", "a file", "a folder");
  // Neither the link nor what it points to is somebody's to replace.
  if (S_ISLNK(own.st_mode)) throw Error(path, "", "a file", "a link: give the file that it points to, or remove it");
  throw Error(path, "", "a file", "something else");
}

int open_stream(const std::string& path, int flags) {
  // A pipe without a reader would be waited for; written to, it is waited for as it should be.
  const int descriptor = ::open(checked(path), O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  if (descriptor < 0 && errno == ENXIO) throw Error(path, "", "a pipe that is read from", "one without a reader");
  if (descriptor < 0) throw system_error(path, flags & O_APPEND ? "open for appending" : "open");
  const int status = ::fcntl(descriptor, F_GETFL);
  if (status < 0 || ::fcntl(descriptor, F_SETFL, status & ~O_NONBLOCK) != 0) {
    const Error error = system_error(path, "open");
    ::close(descriptor);
    throw error;
  }
  return descriptor;
}

void make_directories(const std::string& path) {
  if (::mkdir(checked(path), 0777) == 0) return;
  if (errno == ENOENT && parent_of(path) != path) {
    make_directories(parent_of(path));
    if (::mkdir(path.c_str(), 0777) == 0) return;
  }
  if (errno != EEXIST) throw system_error(path, "create the folder");
  if (kind_of(path) != FileKind::directory) throw Error(path, "", "a folder", "a file");
}

std::vector<std::string> list_directory(const std::string& path) {
  DIR* directory = ::opendir(checked(path));
  if (directory == nullptr) throw system_error(path, "list");
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

void sync_directory(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.value < 0) throw system_error(path, "open");
  // Some file systems cannot sync a folder and say so with EINVAL: then there is nothing to wait for.
  if (::fsync(folder.value) != 0 && errno != EINVAL) throw system_error(path, "write");
}

void remove_path(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    throw system_error(path, "remove");
  }
  if (S_ISDIR(status.st_mode)) {
    for (const std::string& name : list_directory(path)) {
      if (::unlink(join(path, name).c_str()) != 0) throw system_error(join(path, name), "remove");
    }
    if (::rmdir(path.c_str()) != 0) throw system_error(path, "remove");
  } else if (::unlink(path.c_str()) != 0) {
    throw system_error(path, "remove");
  }
}

std::string join(const std::string& folder, const std::string& name) {
  if (folder.empty() || (!name.empty() && name[0] == '/')) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

std::string parent_of(const std::string& path) {
  std::size_t end = path.size();
  while (end > 1 && path[end - 1] == '/') --end;
  const std::size_t slash = path.rfind('/', end - 1);
  if (end == 0 || slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string find_beside_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return kind_of(name) == FileKind::absent ? "" : name;
  std::vector<std::string> folders;
  char program[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) {
    const std::string path(program, static_cast<std::size_t>(length));
    folders.push_back(parent_of(path));
    folders.push_back(parent_of(folders[0]));
    folders.push_back(join(folders[1], "share" + path.substr(path.rfind('/'))));  // where cmake --install puts it
    // CMake's generators for several configurations build in a folder of each: build/Debug, where the project lies one
    // further up.
    if (kind_of(join(folders[1], "CMakeCache.txt")) == FileKind::regular) folders.push_back(parent_of(folders[1]));
  }
  folders.push_back(".");
  for (const std::string& folder : folders) {
    if (std::string path = join(folder, name); kind_of(path) == FileKind::regular) return path;
  }
  return "";
}

std::string required_beside_program(const std::string& name) {
  std::string path = find_beside_program(name);
  if (path.empty())
    throw Error(name, "", "this file beside the program, in the folder above it, in share/ there, or in this one",
                "no such file");
  return path;
}

}  // namespace graven::runtime
