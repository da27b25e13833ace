// Files: one that is read through a mapping, one that appears whole or not at all, and folders.
//
//   const MappedFile file(path);
//   parse(file.bytes());                  // std::span<const std::byte>, valid while `file` lives
//
//   AtomicFile out("model.safetensors");  // writes model.safetensors.graven-tmp in the same folder
//   out.write(data, size);
//   out.commit();                       // fsync, rename, fsync of the folder; without it the temporary file is
//                                       // removed
//
// What a killed writer left of a file is removed by the next one that writes it. A device or a pipe is written into as
// it is; a link or a folder in the file's place is an Error.
//
// Every write, close and rename is checked; failures are Errors that name the path. A mapped file must not be written
// into by anybody while it is mapped (AtomicFile never does: it replaces the name).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace graven::runtime {

/// A whole regular file, read only. Pages are read when they are touched.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::size_t size() const { return size_; }
  /// Part of bytes() that was read: its pages no longer count as this process's memory, and are read again should they
  /// be touched.
  void release(std::span<const std::byte> part) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Bytes go through a buffer of 256 kB; an error may come with a later write or with commit().
  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// `sync_folder` false: the caller syncs the folder itself, after several files.
  void commit(bool sync_folder = true);

 private:
  void flush();

  std::string path_, temporary_;  ///< no temporary file: a stream
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;
  int descriptor_ = -1;
};

/// Fills the places of standard input, output and error where they are closed, so that no file that is opened later
/// gets their number, and with it what is printed. Printing still fails, as on a closed stream. For the beginning of
/// main().
void fill_standard_streams();
/// Results that were not printed, because the disk is full or the reader has gone, are lost: that is an Error.
void flush_output();

/// An open file of the system, closed on every way out; -1: none.
struct Descriptor {
  int value;
  explicit Descriptor(int opened) : value(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
};

enum class FileKind : std::uint8_t { absent, regular, directory, other };
FileKind kind_of(const std::string& path);
/// Whether an output of this name is a character device or a pipe, also through a link such as /dev/stdout: that is
/// written into, not replaced. Error where it can be neither: a folder, a link to a file or to nothing, a disk, a
/// socket.
bool is_stream(const std::string& path);
/// Opens for writing without waiting for a pipe's reader: without one it is an Error. `flags`: more of open()'s.
int open_stream(const std::string& path, int flags = 0);
/// Makes the folder and those above it. Succeeds when it is there already.
void make_directories(const std::string& path);
/// Names in the folder, without "." and "..", sorted by bytes.
std::vector<std::string> list_directory(const std::string& path);
/// Forces the folder's entries to disk.
void sync_directory(const std::string& path);
/// Removes a file, or a folder with the files in it (not with folders). Nothing happens when it is not there.
void remove_path(const std::string& path);
/// "a/b" and "c" to "a/b/c"; `name` itself when it is absolute or the folder is empty.
std::string join(const std::string& folder, const std::string& name);
/// "a/b" of "a/b/c", "." of "c", "/" of "/c".
std::string parent_of(const std::string& path);
/// The first of these that exists: `name` itself when it has a folder in it; otherwise beside the running program, in
/// the folder above it, in share/PROGRAM there, above the build folder where the program lies in build/Debug or its
/// like, and in the current folder. Empty when there is none.
std::string find_beside_program(const std::string& name);
/// The same, and an error that says where it was looked for when there is none.
std::string required_beside_program(const std::string& name);

}  // namespace graven::runtime
