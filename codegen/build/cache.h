// The cache of compiled artefacts: files by the hash of all that went into them.
//
//   ArtefactCache cache(ArtefactCache::default_directory());
//   const std::string library = cache.get(key, [&](const std::string& path) { compile_to(path); });
//
// Rules: an entry is written under a temporary name in the same folder, synced, closed, and renamed; beside it stands the hash of its content,
// verified whenever it is read, and a mismatch makes it anew. Makers of the same entry wait for one another (a lock with a second look), readers take
// no lock. A file is never overwritten, so a loaded library stays what it was. The folder is private (0700). When it cannot be used, or its
// disk is full, entries go to a temporary folder that lives as long as the process, and one warning says so.
#pragma once

#include <functional>
#include <string>

namespace graven::codegen {

class ArtefactCache {
 public:
  /// `directory` is made when it is first needed; empty: no cache on disk.
  explicit ArtefactCache(std::string directory);
  ~ArtefactCache();
  ArtefactCache(const ArtefactCache&) = delete;
  ArtefactCache& operator=(const ArtefactCache&) = delete;

  /// $GRAVEN_CACHE, else $XDG_CACHE_HOME/graven, else $HOME/.cache/graven; empty when none is set, or GRAVEN_CACHE is "off".
  static std::string default_directory();

  /// The path of the entry, made by `make(path)` unless it is there. Whatever `make` throws passes through and leaves no entry.
  std::string get(const std::string& key, const std::function<void(const std::string& path)>& make);
  /// Of the last get(): whether the entry was there.
  bool was_hit() const { return hit_; }
  /// Empty, or why the folder on disk is not used.
  const std::string& warning() const { return warning_; }

 private:
  bool usable(const std::string& directory);
  std::string lookup(const std::string& directory, const std::string& key) const;
  std::string make_entry(const std::string& directory, const std::string& key, const std::function<void(const std::string&)>& make);

  std::string directory_, temporary_, warning_;
  bool hit_ = false;
  bool full_ = false;  ///< the folder can be read, and has no room for more
};

}  // namespace graven::codegen
