// The device's memory: each allocation ends at a guard page, is filled with NaN, and cannot be touched while the host
// runs.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace cuda_on_cpu {

/// How much memory a device has: 16 GiB, or as CUDA_ON_CPU_MEMORY says.
std::size_t device_bytes();

class DeviceMemory {
 public:
  /// nullptr when the device is full (device_bytes()) or the system gives no more.
  void* allocate(std::size_t bytes, int device);
  /// False when `address` was not allocated. Failure when what lies after the allocation was overwritten.
  bool release(void* address);
  /// While open, device memory can be read and written: an allocation is made accessible when a fault shows that it is
  /// used, so that a run costs what it touches, however much is allocated.
  void open() { open_ = true; }
  /// Failure, after closing, when a canary of what was touched has been overwritten.
  void close();
  /// For the fault handler: whether the fault is cured, and what faulted can go on.
  bool admit(const void* address);
  bool contains(const void* address, std::size_t bytes) const;
  /// The device that it is memory of, or -1.
  int device_of(const void* address) const;
  /// "4 bytes past the end of an allocation of 256 bytes", or "" when no allocation is near. Allocates nothing: for
  /// signal handlers.
  bool describe(const void* address, char* text, std::size_t text_bytes) const;
  std::size_t allocated() const { return allocated_; }

 private:
  struct Allocation {
    char* mapping;
    std::size_t mapping_bytes;  // with both guard pages
    char* data;
    std::size_t bytes;
    int device = 0;
    bool accessible = false;
    Allocation* next_accessible = nullptr;
  };
  const Allocation* find(const void* address, std::size_t bytes) const;
  void protect(const Allocation& allocation, int protection) const;
  void check_canary(const Allocation& allocation) const;

  std::map<const char*, Allocation> allocations_;  // by data
  Allocation* accessible_ = nullptr;               // a list
  std::size_t allocated_ = 0;
  bool open_ = false;
};

}  // namespace cuda_on_cpu
