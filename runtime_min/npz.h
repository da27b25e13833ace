// NumPy's .npz files: zip archives of .npy files, as numpy.savez and savez_compressed write them.
//
//   const NpzFile file("set.npz");               // mapped; the directory is validated whole
//   const Array images = file.read("images");    // u8[100,28,28]; where it lies when it is stored, in memory when it
//                                                // is compressed
//
// Members are stored or deflated (also ZIP64, as NumPy has it for large ones), and their checksums verified when they
// are read. Anything else is an Error: encryption, other methods, several disks, names that stand twice, data that lies
// outside of the file or is not as long as the directory and the array's own header say; nothing is decompressed beyond
// what both declare.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "array.h"

namespace graven::runtime {

class NpzFile {
 public:
  explicit NpzFile(std::string path);

  const std::string& path() const { return path_; }
  /// Without ".npy", in the archive's order. Members of other names are passed over.
  const std::vector<std::string>& names() const { return names_; }
  bool has(std::string_view name) const;
  /// An Error when there is none of that name.
  Array read(std::string_view name, const HeaderCheck& check = no_check) const;

 private:
  struct Member {
    std::string name;  ///< without ".npy"
    bool deflated = false;
    std::uint32_t checksum = 0;
    std::uint64_t compressed = 0, size = 0, offset = 0;  ///< of its local header
  };
  void read_directory();
  std::string place(const std::string& name) const;

  std::string path_;
  Bytes file_;
  std::uint64_t directory_ = 0;  ///< where it begins; members lie before it
  std::vector<Member> members_;
  std::vector<std::string> names_;
};

}  // namespace graven::runtime
