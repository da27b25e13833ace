// What a compiler calls for each load and store of text that is compiled with -fsanitize=thread, where the program is
// linked without: the names are those of ThreadSanitizer's run time. A kernel's accesses go to the scheduler, which has
// them checked for races and lets other threads go on in between; the host's go nowhere.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "scheduler.h"

// The calls are the compiler's own, and it knows them without a declaration.
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wreserved-identifier"
#endif

using cuda_on_cpu::Scheduler;

namespace {

struct Kind {
  bool reads, writes, strong;
};
constexpr Kind kRead{true, false, false}, kWrite{false, true, false}, kVolatileRead{true, false, true},
    kVolatileWrite{false, true, true};

inline void note(const void* address, std::size_t bytes, Kind kind, const void* where) {
  const cuda_on_cpu::Watch& watch = cuda_on_cpu::watch;
  if (watch.scheduler == nullptr) return;
  if (static_cast<std::size_t>(static_cast<const char*>(address) - watch.stack) < watch.stack_bytes) return;
  watch.scheduler->access(address, bytes, kind.reads, kind.writes, kind.strong, where);
}

}  // namespace

#define HERE __builtin_return_address(0)
#define ACCESSES_OF(bytes)                                                                        \
  void __tsan_read##bytes(void* p) { note(p, bytes, kRead, HERE); }                               \
  void __tsan_write##bytes(void* p) { note(p, bytes, kWrite, HERE); }                             \
  void __tsan_read_write##bytes(void* p) { note(p, bytes, {true, true, false}, HERE); }           \
  void __tsan_unaligned_read##bytes(void* p) { note(p, bytes, kRead, HERE); }                     \
  void __tsan_unaligned_write##bytes(void* p) { note(p, bytes, kWrite, HERE); }                   \
  void __tsan_unaligned_read_write##bytes(void* p) { note(p, bytes, {true, true, false}, HERE); } \
  void __tsan_volatile_read##bytes(void* p) { note(p, bytes, kVolatileRead, HERE); }              \
  void __tsan_volatile_write##bytes(void* p) { note(p, bytes, kVolatileWrite, HERE); }            \
  void __tsan_unaligned_volatile_read##bytes(void* p) { note(p, bytes, kVolatileRead, HERE); }    \
  void __tsan_unaligned_volatile_write##bytes(void* p) { note(p, bytes, kVolatileWrite, HERE); }

#define ATOMICS_OF(bits)                                                                                            \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* p, int) {                      \
    note(const_cast<const std::uint##bits##_t*>(p), bits / 8, {true, false, true}, HERE);                           \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                    \
  }                                                                                                                 \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* p, std::uint##bits##_t value, int) {               \
    note(const_cast<const std::uint##bits##_t*>(p), bits / 8, {false, true, true}, HERE);                           \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                                   \
  }                                                                                                                 \
  std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile std::uint##bits##_t* p, std::uint##bits##_t value,    \
                                                     int) {                                                         \
    note(const_cast<const std::uint##bits##_t*>(p), bits / 8, {true, true, true}, HERE);                            \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                                         \
  }                                                                                                                 \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* p, std::uint##bits##_t* expected, \
                                                    std::uint##bits##_t value, int, int) {                          \
    note(const_cast<const std::uint##bits##_t*>(p), bits / 8, {true, true, true}, HERE);                            \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ? 1 : 0;      \
  }                                                                                                                 \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* p, std::uint##bits##_t* expected,   \
                                                  std::uint##bits##_t value, int, int) {                            \
    note(const_cast<const std::uint##bits##_t*>(p), bits / 8, {true, true, true}, HERE);                            \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ? 1 : 0;      \
  }                                                                                                                 \
  std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                                   \
      volatile std::uint##bits##_t* p, std::uint##bits##_t expected, std::uint##bits##_t value, int, int) {         \
    note(const_cast<const std::uint##bits##_t*>(p), bits / 8, {true, true, true}, HERE);                            \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                    \
    return expected;                                                                                                \
  }                                                                                                                 \
  FETCH(bits, add) FETCH(bits, sub) FETCH(bits, and) FETCH(bits, or) FETCH(bits, xor) FETCH(bits, nand)
#define FETCH(bits, operation)                                                                  \
  std::uint##bits##_t __tsan_atomic##bits##_fetch_##operation(volatile std::uint##bits##_t* p,  \
                                                              std::uint##bits##_t value, int) { \
    note(const_cast<const std::uint##bits##_t*>(p), bits / 8, {true, true, true}, HERE);        \
    return __atomic_fetch_##operation(p, value, __ATOMIC_SEQ_CST);                              \
  }

extern "C" {

void __tsan_init() { Scheduler::accesses_are_told(); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
ACCESSES_OF(1)
ACCESSES_OF(2)
ACCESSES_OF(4)
ACCESSES_OF(8)
ACCESSES_OF(16)
void __tsan_read_range(void* p, std::size_t bytes) { note(p, bytes, kRead, HERE); }
void __tsan_write_range(void* p, std::size_t bytes) { note(p, bytes, kWrite, HERE); }
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  note(from, bytes, kRead, HERE);
  note(to, bytes, kWrite, HERE);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  note(from, bytes, kRead, HERE);
  note(to, bytes, kWrite, HERE);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  note(to, bytes, kWrite, HERE);
  return std::memset(to, value, bytes);
}
ATOMICS_OF(8)
ATOMICS_OF(16)
ATOMICS_OF(32)
ATOMICS_OF(64)
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (cuda_on_cpu::watch.scheduler != nullptr) cuda_on_cpu::watch.scheduler->fence();
}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
