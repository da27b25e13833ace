// Counts what a program allocates while it calls an emitted model, which is nothing after the first calls. Compiled by
// tests/emit with PROJECT, the project's name, and TRAINING where it trains; linked with -Wl,--wrap=malloc and so on,
// which catches the project's own calls, and with these operators, which catch the standard library's.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "model.h"

static std::atomic<long> allocations{0};

extern "C" {
void* __real_malloc(std::size_t size);
void* __real_calloc(std::size_t count, std::size_t size);
void* __real_realloc(void* old, std::size_t size);
void* __real_aligned_alloc(std::size_t alignment, std::size_t size);
int __real_posix_memalign(void** result, std::size_t alignment, std::size_t size);
void* __real_mmap(void* at, std::size_t size, int protection, int flags, int file, std::int64_t offset);
void* __wrap_malloc(std::size_t size) { return ++allocations, __real_malloc(size); }
void* __wrap_calloc(std::size_t count, std::size_t size) { return ++allocations, __real_calloc(count, size); }
void* __wrap_realloc(void* old, std::size_t size) { return ++allocations, __real_realloc(old, size); }
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  return ++allocations, __real_aligned_alloc(alignment, size);
}
int __wrap_posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  return ++allocations, __real_posix_memalign(result, alignment, size);
}
void* __wrap_mmap(void* at, std::size_t size, int protection, int flags, int file, std::int64_t offset) {
  return ++allocations, __real_mmap(at, size, protection, flags, file, offset);
}
}
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = __real_malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto step = static_cast<std::size_t>(alignment);
  if (void* memory = __real_aligned_alloc(step, (size + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#define JOINED(a, b) a##_##b
#define NAMED(a, b) JOINED(a, b)
#define OF(name) NAMED(PROJECT, name)

int main() {
  std::vector<float> x(1 << 16, 0.5f), y(1 << 16);
  OF(model)* model = nullptr;
#ifdef TRAINING
  std::vector<std::int64_t> labels(64, 1);
  const double rates[1] = {0.01};
  double loss = 0;
  if (OF(create)(2, &model) != 0 || OF(load)(model, "weights.safetensors") != 0) return 2;
  const auto call = [&](std::int64_t step) {
    return OF(step)(model, x.data(), labels.data(), rates, step, &loss) == 0 &&
           OF(forward)(model, x.data(), labels.data(), &loss) == 0;
  };
#else
  OF(weights)* weights = nullptr;
  if (OF(load)("weights.safetensors", &weights) != 0 || OF(create)(weights, 2, &model) != 0) return 2;
  const auto call = [&](std::int64_t step) {
    return OF(forward)(model, x.data(), 1 + step % OF(maximum_batch)(), y.data()) == 0;
  };
#endif
  const long at_start = allocations;
  if (!call(1)) return 2;
  const long before = allocations;
  for (std::int64_t step = 2; step <= 9; ++step)
    if (!call(step)) return 2;
  const long after = allocations;
  std::printf("%s at the start, %ld in later calls\n", at_start > 0 ? "some" : "none", after - before);
  OF(destroy)(model);
}
