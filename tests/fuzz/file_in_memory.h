// A file that lies in memory, for readers that take a path.
//
//   const FileInMemory file(bytes);
//   read_npy(file.path());
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "tests/fuzz/targets.h"

namespace graven::fuzz {

class FileInMemory {
 public:
  explicit FileInMemory(Input content) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    GRAVEN_FUZZ_CHECK(descriptor_ >= 0);
    for (std::size_t done = 0; done < content.size();) {
      const ssize_t n = ::write(descriptor_, content.data() + done, content.size() - done);
      GRAVEN_FUZZ_CHECK(n > 0);
      done += static_cast<std::size_t>(n);
    }
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;
  ~FileInMemory() { ::close(descriptor_); }

  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace graven::fuzz
