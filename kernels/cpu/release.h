// release: memory that is not read again goes back to the system.
//
//   // the weight is read in its packed form from here on
//   pack_linear_weight(threads, config, prepared.weight_packed, param.weight);
//   release(param.weight, 4096 * 1024);
//
// Whole pages only: what shares a page with other data stays as it is. The memory remains mapped, its contents are
// lost. A wish: nothing depends on it. For memory from mmap(), private and of no file: runtime/arena.h.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "level.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void release(T* data, std::int64_t count) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(data + count) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
