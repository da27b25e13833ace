#include "codegen/emit/output_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "ir/diagnostic.h"
#include "runtime_min/error.h"
#include "runtime_min/file.h"
#include "runtime_min/sha256.h"

namespace graven::codegen {

namespace {

namespace fs = std::filesystem;

constexpr const char* kRecords = ".graven";
constexpr std::string_view kTemporary = "tmp.";

using runtime::Descriptor;

UserError cannot_be(const std::string& path, const char* what) {
  const int reason = errno;
  return UserError(path + ": cannot be " + what + ": " + std::strerror(reason));
}

UserError in_the_way(const std::string& path, const char* expected) {
  return UserError(path + ": is a link or something else that is no " + expected +
                   ": Graven writes into the project's own folder only")
      .note("move it away, or emit into another folder; nothing was written");
}

/// "a/b/c.h" as its components. Empty where it could lead out of the folder.
std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, end - at));
    if (parts.back().empty() || parts.back() == "." || parts.back() == "..") return {};
    at = end + 1;
  }
  return parts;
}

void write_all(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw cannot_be(path, "written");
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// The names in an open folder, sorted.
std::vector<std::string> names_in(int folder, const std::string& path) {
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* directory = again < 0 ? nullptr : ::fdopendir(again);
  if (!directory) {
    const UserError error = cannot_be(path, "listed");
    if (again >= 0) ::close(again);
    throw error;
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory))
    if (std::string name = entry->d_name; name != "." && name != "..") names.push_back(std::move(name));
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string hash_of(std::string_view text) {
  return runtime::sha256(std::as_bytes(std::span(text.data(), text.size())));
}

OutputFolder::OutputFolder(const fs::path& path, For use) : path_(path) {
  std::error_code ignored;
  if (path.native().find('\0') != std::string::npos)
    throw UserError(runtime::printable(path.native()) + ": a path has no zero byte");
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored))
    throw UserError(path.string() + ": is a file; a project needs a folder");
  try {
    if (use == For::writing) runtime::make_directories(path.string());
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
  root_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root_ < 0) throw cannot_be(path.string(), "opened");
  try {
    // Where the file system has no locks, emissions at once are not told apart; each file still appears whole.
    if (use == For::writing)
      while (!(locked_ = ::flock(root_, LOCK_EX) == 0) && errno == EINTR) continue;
    read_record();
    remove_abandoned();
  } catch (...) {
    ::close(root_);
    throw;
  }
}

OutputFolder::~OutputFolder() {
  try {
    remove_abandoned();
  } catch (const std::exception&) {
    // The next emission does it.
  }
  ::close(root_);
}

void OutputFolder::require_project_or_empty() const {
  if (recorded_) return;
  const auto entries = names_in(root_, path_.string());
  std::string first;
  for (const std::string& name : entries) {
    if (name != "graph.json" && name != kRecords && first.empty()) first = name;
    if (name != "graph.json") continue;
    std::string text;
    const Descriptor file(::openat(root_, "graph.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.value < 0 && errno == ELOOP) throw in_the_way(place_of(name), "file");
    char part[65536];
    ssize_t n = -1;
    while (file.value >= 0 && (n = ::read(file.value, part, sizeof part)) > 0)
      text.append(part, static_cast<std::size_t>(n));
    if (n < 0) throw UserError(place_of(name) + ": cannot be read: is this folder Graven's?");
    const auto graph = nlohmann::json::parse(text, nullptr, false);
    const auto says = [&](const char* key, const char* value) {
      return graph.is_object() && graph.contains(key) && graph[key] == value;
    };
    if (!says("format", "graven.graph")) {
      first = name;
      break;
    }
    if (says("stage", "trace"))
      throw UserError(path_.string() + ": holds a saved graph, which the project's would replace")
          .note("expected  another folder for the project");
    return;  // a project without a record
  }
  if (!first.empty())
    throw UserError(path_.string() + ": is not empty, and holds no graph of Graven's")
        .note("expected  a new folder, an empty one, or one that a project was emitted into before")
        .note("found     " + first);
}

// ---- paths ----------------------------------------------------------------------------------------------------------

/// The folder that `path` lies in, opened without following links; -1 where it is not there, or, with `obstacle`, what
/// stands in its way.
int OutputFolder::open_parent(const std::string& path, bool make, std::string* obstacle) const {
  const std::vector<std::string> parts = components(path);
  GRAVEN_CHECK(!parts.empty(), "a path that leads out of the project: " + path);
  int folder = ::openat(root_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) throw cannot_be(path_.string(), "opened");
  std::string so_far;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    so_far += (i > 0 ? "/" : "") + parts[i];
    const Descriptor above(folder);
    if (make && ::mkdirat(above.value, parts[i].c_str(), 0777) != 0 && errno != EEXIST)
      throw cannot_be(place_of(so_far), "made");
    folder = ::openat(above.value, parts[i].c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0) continue;
    if (errno == ENOENT && !make) return -1;
    if (errno != ELOOP && errno != ENOTDIR) throw cannot_be(place_of(so_far), "opened");
    if (!obstacle) throw in_the_way(place_of(so_far), "folder");
    *obstacle = so_far;
    return -1;
  }
  return folder;
}

struct OutputFolder::Found {
  bool there = false;
  std::string hash;
};

OutputFolder::Found OutputFolder::find(const std::string& path) const {
  const Descriptor parent(open_parent(path, false, nullptr));
  const std::string name = components(path).back();
  struct stat status;
  if (parent.value < 0) return {};
  if (::fstatat(parent.value, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return {};
    throw cannot_be(place_of(path), "looked at");
  }
  if (!S_ISREG(status.st_mode)) throw in_the_way(place_of(path), "file");
  const Descriptor file(::openat(parent.value, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.value < 0) throw cannot_be(place_of(path), "read");
  try {
    return {true, runtime::sha256(runtime::MappedFile("/proc/self/fd/" + std::to_string(file.value)).bytes())};
  } catch (const runtime::Error& e) {
    throw UserError(place_of(path) + ": cannot be read: " + e.what());
  }
}

OutputFolder::Changes OutputFolder::compare(const Hashes& hashes) const {
  Changes changes;
  for (const auto& [path, hash] : hashes) {
    const Found found = find(path);
    const auto recorded = record_.find(path);
    if (!found.there)
      changes.write.push_back(path);
    else if (found.hash == hash)
      changes.unchanged.push_back(path);
    else if (recorded != record_.end() && recorded->second.count(found.hash))
      changes.write.push_back(path);
    else if (recorded != record_.end() && recorded->second == std::set<std::string>{hash})
      changes.kept.push_back(path);
    else
      changes.conflicts.push_back(path);
  }
  for (const auto& [path, known] : record_) {
    if (hashes.count(path)) continue;
    std::string obstacle;
    const Descriptor parent(open_parent(path, false, &obstacle));
    struct stat status;
    // What a user put in the place of a file that is no longer needed is left where it is.
    if (parent.value < 0 || ::fstatat(parent.value, components(path).back().c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    (S_ISREG(status.st_mode) && known.count(find(path).hash) ? changes.stale : changes.kept).push_back(path);
  }
  return changes;
}

// ---- writing --------------------------------------------------------------------------------------------------------

int OutputFolder::records_folder() { return open_parent(kManifest, true, nullptr); }

/// What this emission, or one that was killed, left of files: nobody else emits here now.
void OutputFolder::remove_abandoned() {
  if (!locked_) return;
  const Descriptor records(open_parent(kManifest, false, nullptr));
  if (records.value < 0) return;
  for (const std::string& name : names_in(records.value, place_of(kRecords)))
    if (name.starts_with(kTemporary)) ::unlinkat(records.value, name.c_str(), 0);
}

/// In the folder of the record; of this process alone, should there be no locks.
std::string OutputFolder::temporary_of(const std::string& path) {
  return fmt::format("{}{}.{}", kTemporary, ::getpid(), fs::path(path).filename().string());
}

void OutputFolder::write(const std::string& path, std::string_view text) {
  const Descriptor records(records_folder()), parent(open_parent(path, true, nullptr));
  const std::string temporary = temporary_of(path);
  {
    const Descriptor file(
        ::openat(records.value, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file.value < 0) throw cannot_be(place_of(path), "written");
    try {
      write_all(file.value, text, place_of(path));
    } catch (...) {
      ::unlinkat(records.value, temporary.c_str(), 0);
      throw;
    }
  }
  if (::renameat(records.value, temporary.c_str(), parent.value, components(path).back().c_str()) != 0) {
    const UserError error = cannot_be(place_of(path), "written");
    ::unlinkat(records.value, temporary.c_str(), 0);
    throw error;
  }
}

std::string OutputFolder::staging(const std::string& path) {
  const Descriptor records(records_folder());
  return place_of(std::string(kRecords) + "/" + temporary_of(path));
}

void OutputFolder::place(const std::string& path) {
  const Descriptor records(records_folder()), parent(open_parent(path, true, nullptr));
  if (::renameat(records.value, temporary_of(path).c_str(), parent.value, components(path).back().c_str()) != 0)
    throw cannot_be(place_of(path), "written");
}

void OutputFolder::remove(const std::string& path) {
  const Descriptor parent(open_parent(path, false, nullptr));
  if (parent.value >= 0 && ::unlinkat(parent.value, components(path).back().c_str(), 0) != 0 && errno != ENOENT)
    throw cannot_be(place_of(path), "removed");
}

// ---- the record -----------------------------------------------------------------------------------------------------

void OutputFolder::read_record() {
  const Descriptor parent(open_parent(kManifest, false, nullptr));
  if (parent.value < 0) return;
  const Descriptor file(::openat(parent.value, "manifest.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.value < 0 && errno == ENOENT) return;
  const auto damaged = [&] {
    return UserError(place_of(kManifest) + ": is not what Graven wrote")
        .note("remove it, and the files that another emission would change are named");
  };
  if (file.value < 0)
    throw errno == ELOOP ? in_the_way(place_of(kManifest), "file") : cannot_be(place_of(kManifest), "read");
  try {
    const runtime::MappedFile map("/proc/self/fd/" + std::to_string(file.value));
    const auto bytes = map.bytes();
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    const auto json = nlohmann::json::parse(begin, begin + bytes.size());
    if (json.at("format") != "graven.manifest" || json.at("version") != 1) throw damaged();
    for (const auto& [path, known] : json.at("files").items()) {
      if (components(path).empty() || path.find('\0') != std::string::npos) throw damaged();
      record_[path] = known.get<std::set<std::string>>();
    }
  } catch (const runtime::Error&) {
    throw damaged();
  } catch (const nlohmann::json::exception&) {
    throw damaged();
  }
  recorded_ = true;
}

void OutputFolder::write_record() {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [path, known] : record_) files[path] = known;
  write(kManifest, nlohmann::json{{"format", "graven.manifest"}, {"version", 1}, {"files", files}}.dump(1) + "\n");
  recorded_ = true;
}

void OutputFolder::begin(const Hashes& hashes) {
  bool news = !recorded_;
  for (const auto& [path, hash] : hashes) news |= record_[path].insert(hash).second;
  if (news) write_record();
}

void OutputFolder::finish(const Hashes& hashes) {
  std::map<std::string, std::set<std::string>> now;
  for (const auto& [path, hash] : hashes) now[path] = {hash};
  if (recorded_ && now == record_) return;
  record_ = std::move(now);
  write_record();
}

}  // namespace graven::codegen
