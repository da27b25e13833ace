#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define CUDA_ON_CPU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDA_ON_CPU_ASAN 1
#endif
#endif
#ifdef CUDA_ON_CPU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// void cuda_on_cpu_switch(void** save, void* load): the callee-saved registers go on the old stack, and come from the
// new one.
asm(R"(
.text
.p2align 4
.globl cuda_on_cpu_switch
.type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_on_cpu_switch, . - cuda_on_cpu_switch
)");
extern "C" void cuda_on_cpu_switch(void** save, void* load);
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.globl cuda_on_cpu_switch
.type cuda_on_cpu_switch, %function
cuda_on_cpu_switch:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x19, x20, [sp], #160
  ret
.size cuda_on_cpu_switch, . - cuda_on_cpu_switch
)");
extern "C" void cuda_on_cpu_switch(void** save, void* load);
#endif

namespace cuda_on_cpu {
namespace {

Fiber* running_fiber = nullptr;

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
// Wider than the frame of any sane kernel, which could step over a single page.
std::size_t guard_bytes() { return 16 * page_bytes(); }

}  // namespace

void fiber_main() {
  Fiber* self = running_fiber;
#ifdef CUDA_ON_CPU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_stack_bytes_);
#endif
  self->entry_(self->argument_);
  Fiber::leave();
}

Fiber::Fiber(std::size_t stack_bytes) {
  const std::size_t page = page_bytes();
  stack_bytes_ = (stack_bytes + page - 1) / page * page;
  void* mapping = mmap(nullptr, stack_bytes_ + guard_bytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char*>(mapping);
  stack_ = mapping_ + guard_bytes();
  if (mprotect(mapping_, guard_bytes(), PROT_NONE) != 0) {
    munmap(mapping_, stack_bytes_ + guard_bytes());
    throw std::bad_alloc();
  }
}

Fiber::~Fiber() {
#ifdef CUDA_ON_CPU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(stack_, stack_bytes_);
#endif
  munmap(mapping_, stack_bytes_ + guard_bytes());
}

bool Fiber::guard_contains(const void* address) const {
  const auto* p = static_cast<const char*>(address);
  return p >= mapping_ && p < stack_;
}

Fiber* Fiber::running() { return running_fiber; }

void Fiber::start(void (*entry)(void*), void* argument) {
#ifdef CUDA_ON_CPU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(stack_, stack_bytes_);
#endif
  caller_stack_ = fake_stack_ = nullptr;
  caller_stack_bytes_ = 0;
  entry_ = entry;
  argument_ = argument;
  finished_ = false;
#if defined(__x86_64__)
  // Six registers, then where the first switch returns to, then the zero that stands for fiber_main's own return
  // address.
  auto** top = reinterpret_cast<void**>(stack_ + stack_bytes_);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&fiber_main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
#elif defined(__aarch64__)
  char* top = stack_ + stack_bytes_ - 160;
  std::memset(top, 0, 160);
  reinterpret_cast<void**>(top)[11] = reinterpret_cast<void*>(&fiber_main);  // x30
  stack_pointer_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = stack_bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, &fiber_main, 0);
#endif
}

void Fiber::switch_in() {
#if defined(__x86_64__) || defined(__aarch64__)
  cuda_on_cpu_switch(&caller_stack_pointer_, stack_pointer_);
#else
  swapcontext(&caller_context_, &context_);
#endif
}

void Fiber::switch_out([[maybe_unused]] bool for_good) {
#ifdef CUDA_ON_CPU_ASAN
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, caller_stack_, caller_stack_bytes_);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
  cuda_on_cpu_switch(&stack_pointer_, caller_stack_pointer_);
#else
  swapcontext(&context_, &caller_context_);
#endif
#ifdef CUDA_ON_CPU_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_stack_, &caller_stack_bytes_);
#endif
}

void Fiber::resume() {
  Fiber* before = running_fiber;
  running_fiber = this;
#ifdef CUDA_ON_CPU_ASAN
  void* own_fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&own_fake_stack, stack_, stack_bytes_);
#endif
  switch_in();
#ifdef CUDA_ON_CPU_ASAN
  __sanitizer_finish_switch_fiber(own_fake_stack, nullptr, nullptr);
#endif
  running_fiber = before;
}

void Fiber::yield() { running_fiber->switch_out(false); }

void Fiber::leave() {
  running_fiber->finished_ = true;
  running_fiber->switch_out(true);
  std::abort();  // nobody resumes a fiber that has finished
}

}  // namespace cuda_on_cpu
