// The cache of compiled artefacts: files by the hash of all that went into them.
//
//   ArtefactCache cache(ArtefactCache::default_directory());
//   const std::string library = cache.get(key, [&](const std::string& path) { compile_to(path); });
//
// Rules:
//   - Nothing is used that another user could have put there. The folder is this user's and private (0700 when it is
//     made), and nobody else can rename what is above it. An entry is a plain file of this user's (or root's) that no
//     other can write, with the hash that stands beside it. So nobody else can change what lies there between that look
//     and the use of the path.
//   - An entry is made in a temporary folder, outside the cache, and then copied: under a temporary name, synced,
//     closed, renamed. A cache that cannot be made, trusted, read or written, that is full, deleted meanwhile or
//     mounted without exec, is done without: the entry stays in the temporary folder until the process ends, and one
//     warning says so.
//   - Makers of the same entry wait for one another (a lock with a second look), readers take no lock. A file is never
//     overwritten, so a loaded library stays what it was. What is there and does not work is made anew, once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace graven::codegen {

class ArtefactCache {
 public:
  /// `directory` is made when it is first needed; a relative one is below the current folder; empty: no cache on disk.
  explicit ArtefactCache(const std::string& directory);

  /// $GRAVEN_CACHE, else $XDG_CACHE_HOME/graven, else $HOME/.cache/graven; empty when none is set, or GRAVEN_CACHE is
  /// "off".
  static std::string default_directory();

  using Make = std::function<void(const std::string& path)>;
  /// Empty, or why what lies at the path cannot be used.
  using Try = std::function<std::string(const std::string& path)>;
  /// The path of the entry, made by `make(path)` unless it is there: `path` lies in a folder that is empty, private and
  /// removed afterwards. Whatever `make` throws passes through and leaves no entry. What `attempt` refuses is not kept,
  /// and made anew unless it was made just now: then its reason is the user error. The path returned is the one that
  /// `attempt` accepted last.
  std::string get(
      const std::string& key, const Make& make, const Try& attempt = [](const std::string&) { return std::string(); });
  /// Of the last get(): whether the entry was there.
  bool was_hit() const { return hit_; }
  /// Empty, or why the folder on disk is not used.
  const std::string& warning() const { return warning_; }

 private:
  void open();
  void do_without(const std::string& reason);
  std::string look(const std::string& key, const Try& attempt);
  void publish(const std::string& key, const std::vector<std::byte>& content);

  std::string directory_, warning_;
  bool hit_ = false;
  bool opened_ = false, readable_ = false, writable_ = false;
};

/// Writes a text that a compiler is to read, and makes the folders that it lies in. UserError where that cannot be
/// done.
void write_source(const std::filesystem::path& path, std::string_view text);

}  // namespace graven::codegen
