// The folder that a project is emitted into: nothing outside of it is touched, and nothing in it is lost that somebody
// else wrote.
//
//   OutputFolder folder(directory);                  // made where it is not there; another emission into it waits
//   until this object is gone const auto changes = folder.compare(hashes);     // what is to be written, what is a
//   user's folder.begin(hashes);                            // from here on it is known for Graven's, however far the
//   emission gets folder.write("model.cpp", text); folder.finish(hashes);
//
// .graven/manifest.json has the SHA-256 of every file as Graven wrote it. A file whose content is another one was
// edited. Links and whatever else is neither a folder nor a file are not followed, replaced or removed: paths are
// walked folder by folder. The folder itself may be a link.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace graven::codegen {

/// Where the record lies in a project: a folder that has it is an emitted project.
inline constexpr const char* kManifest = ".graven/manifest.json";

/// SHA-256 by path, of the files that a project is to have.
using Hashes = std::map<std::string, std::string>;

class OutputFolder {
 public:
  enum class For { writing, reading };
  /// User error where it is a file, cannot be made or looked at, or its record is damaged. `reading`: it must be there,
  /// and is left as it is.
  explicit OutputFolder(const std::filesystem::path& path, For use = For::writing);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  /// User error for a folder that is neither empty nor an emitted project.
  void require_project_or_empty() const;
  /// Whether an emission has left its record here.
  bool has_record() const { return recorded_; }

  struct Changes {
    std::vector<std::string> unchanged, write;
    /// Edited, while what Graven writes there is as before, or is no longer written: left alone.
    std::vector<std::string> kept;
    std::vector<std::string> conflicts;  ///< edited, or of unknown origin, where Graven has something else to write
    std::vector<std::string> stale;      ///< as Graven wrote them, and no longer part of the project
  };
  /// Of all files that are to be there. User error where something in their way is neither a folder nor a file.
  Changes compare(const Hashes& hashes) const;

  /// Records that the files may be as before or as they are to be.
  void begin(const Hashes& hashes);
  /// Records what the files are. `kept` stay recorded as Graven wrote them, where it still does.
  void finish(const Hashes& hashes);

  /// Whole or not at all, in the folder's own temporary file. Not forced to disk: a project that a power cut damages is
  /// emitted again.
  void write(const std::string& path, std::string_view text);
  /// Where a large file can be written before it gets its name, by place().
  std::string staging(const std::string& path);
  void place(const std::string& path);
  void remove(const std::string& path);

 private:
  struct Found;
  Found find(const std::string& path) const;
  int open_parent(const std::string& path, bool make, std::string* obstacle) const;
  int records_folder();
  void remove_abandoned();
  static std::string temporary_of(const std::string& path);
  void read_record();
  void write_record();
  std::string place_of(const std::string& path) const { return (path_ / path).string(); }

  std::filesystem::path path_;
  int root_ = -1;
  bool locked_ = false, recorded_ = false;
  std::map<std::string, std::set<std::string>> record_;  ///< what Graven may have left as each file's content
};

/// SHA-256 of a text.
std::string hash_of(std::string_view text);

}  // namespace graven::codegen
