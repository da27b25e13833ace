// One block of memory for everything, cut up once: page-aligned, zeroed, nothing allocated afterwards.
//
//   ArenaPlan plan;
//   const std::size_t images = plan.add(bytes);   // offsets, each a multiple of 64
//   Arena arena(plan.bytes());
//   float* p = arena.at<float>(images);
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <string>
#include <utility>

#include "error.h"

namespace graven::runtime {

class ArenaPlan {
 public:
  std::size_t add(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

class Arena {
 public:
  Arena() = default;
  explicit Arena(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw OutOfMemory(bytes);
    data_ = static_cast<std::byte*>(data);
#ifdef MADV_HUGEPAGE
    if (bytes >= (std::size_t{1} << 22)) ::madvise(data_, bytes_, MADV_HUGEPAGE);  // a wish: nothing depends on it
#endif
  }
  Arena(Arena&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Arena& operator=(Arena&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Arena() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  template <class T = void>
  T* at(std::size_t offset) const {
    return static_cast<T*>(static_cast<void*>(data_ + offset));
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace graven::runtime
