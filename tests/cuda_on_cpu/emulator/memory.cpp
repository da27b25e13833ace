#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "cuda_on_cpu/device.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kAlignment = 256;  // what cudaMalloc promises
constexpr unsigned char kCanary = 0xcb;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

std::size_t device_bytes() {
  static const std::size_t bytes = [] {
    const char* const text = std::getenv("CUDA_ON_CPU_MEMORY");
    if (text == nullptr) return std::size_t{16} << 30;
    const unsigned long long number = std::strtoull(text, nullptr, 10);
    if (number == 0) throw Failure(std::string("CUDA_ON_CPU_MEMORY is '") + text + "'; it can be a number of bytes");
    return static_cast<std::size_t>(number);
  }();
  return bytes;
}

void* DeviceMemory::allocate(std::size_t bytes, int device) {
  if (bytes > device_bytes() - allocated_) return nullptr;
  const std::size_t page = page_bytes();
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t inner = (padded + page - 1) / page * page;
  void* mapping = mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  Allocation allocation{static_cast<char*>(mapping), inner + 2 * page,
                        static_cast<char*>(mapping) + page + inner - padded, bytes, device};
  protect(allocation, PROT_READ | PROT_WRITE);
  char* begin = allocation.mapping + page;
  std::memset(begin, kCanary, static_cast<std::size_t>(allocation.data - begin));
  std::memset(allocation.data, 0xff, bytes);
  std::memset(allocation.data + bytes, kCanary, padded - bytes);
  protect(allocation, PROT_NONE);
  allocations_[allocation.data] = allocation;
  allocated_ += bytes;
  return allocation.data;
}

bool DeviceMemory::release(void* address) {
  auto it = allocations_.find(static_cast<const char*>(address));
  if (it == allocations_.end()) return false;
  Allocation allocation = it->second;
  allocations_.erase(it);
  allocated_ -= allocation.bytes;
  protect(allocation, PROT_READ | PROT_WRITE);
  // Unmapped whatever the canary says; the mapping stays reserved, or a later allocation would hide a use after this.
  struct Unmap {
    const Allocation& a;
    ~Unmap() {
      madvise(a.mapping, a.mapping_bytes, MADV_DONTNEED);
      mprotect(a.mapping, a.mapping_bytes, PROT_NONE);
    }
  } unmap{allocation};
  check_canary(allocation);
  return true;
}

void DeviceMemory::protect(const Allocation& allocation, int protection) const {
  const std::size_t page = page_bytes();
  if (allocation.mapping_bytes > 2 * page)
    mprotect(allocation.mapping + page, allocation.mapping_bytes - 2 * page, protection);
}

bool DeviceMemory::admit(const void* address) {
  if (!open_) return false;
  const std::size_t page = page_bytes();
  const auto* p = static_cast<const char*>(address);
  auto it = allocations_.upper_bound(p);
  // The allocation that holds the address, or, for the slack before its data, the next one.
  for (int step = 0; step < 2; ++step) {
    if (step == 0 ? it != allocations_.end() : it != allocations_.begin()) {
      Allocation& a = step == 0 ? it->second : std::prev(it)->second;
      if (p >= a.mapping + page && p < a.mapping + a.mapping_bytes - page) {
        if (a.accessible) return false;
        protect(a, PROT_READ | PROT_WRITE);
        a.accessible = true;
        a.next_accessible = accessible_;
        accessible_ = &a;
        return true;
      }
    }
  }
  return false;
}

void DeviceMemory::close() {
  open_ = false;
  const auto shut = [this] {
    for (; accessible_ != nullptr; accessible_ = accessible_->next_accessible) {
      accessible_->accessible = false;
      protect(*accessible_, PROT_NONE);
    }
  };
  try {
    for (const Allocation* a = accessible_; a != nullptr; a = a->next_accessible) check_canary(*a);
  } catch (...) {
    shut();
    throw;
  }
  shut();
}

void DeviceMemory::check_canary(const Allocation& allocation) const {
  const std::size_t page = page_bytes();
  const char* begin = allocation.mapping + page;
  const char* end = allocation.mapping + allocation.mapping_bytes - page;
  auto check = [&](const char* from, const char* to, bool after) {
    for (const char* p = from; p < to; ++p) {
      if (static_cast<unsigned char>(*p) == kCanary) continue;
      const auto distance = after ? p - (allocation.data + allocation.bytes) : allocation.data - p;
      throw Failure("device memory was overwritten " + std::to_string(distance) + " bytes " +
                    (after ? "past the end of" : "before") + " an allocation of " + std::to_string(allocation.bytes) +
                    " bytes");
    }
  };
  check(begin, allocation.data, false);
  check(allocation.data + allocation.bytes, end, true);
}

const DeviceMemory::Allocation* DeviceMemory::find(const void* address, std::size_t bytes) const {
  const auto* p = static_cast<const char*>(address);
  auto it = allocations_.upper_bound(p);
  if (it == allocations_.begin()) return nullptr;
  const Allocation& a = std::prev(it)->second;
  if (p < a.data || p > a.data + a.bytes) return nullptr;
  return bytes <= static_cast<std::size_t>(a.data + a.bytes - p) ? &a : nullptr;
}

bool DeviceMemory::contains(const void* address, std::size_t bytes) const { return find(address, bytes) != nullptr; }

int DeviceMemory::device_of(const void* address) const {
  const Allocation* found = find(address, 0);
  return found != nullptr ? found->device : -1;
}

bool DeviceMemory::describe(const void* address, char* text, std::size_t text_bytes) const {
  const auto* p = static_cast<const char*>(address);
  for (const auto& [data, a] : allocations_) {
    if (p < a.mapping || p >= a.mapping + a.mapping_bytes) continue;
    if (p < a.data)
      std::snprintf(text, text_bytes, "%zu bytes before an allocation of %zu bytes",
                    static_cast<std::size_t>(a.data - p), a.bytes);
    else if (p >= a.data + a.bytes)
      std::snprintf(text, text_bytes, "%zu bytes past the end of an allocation of %zu bytes",
                    static_cast<std::size_t>(p - a.data) - a.bytes, a.bytes);
    else
      std::snprintf(text, text_bytes, "at byte %zu of an allocation of %zu bytes", static_cast<std::size_t>(p - a.data),
                    a.bytes);
    return true;
  }
  return false;
}

}  // namespace cuda_on_cpu
