// A fiber: a function with its own stack that gives way and is resumed where it left. A switch is a dozen instructions
// on x86-64 and AArch64 and ucontext elsewhere.
//
//   Fiber fiber(64 << 10);
//   fiber.start([](void*) { work(); Fiber::yield(); more(); }, nullptr);
//   fiber.resume();  // runs work()
//   fiber.resume();  // runs more(); fiber.finished() is now true
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

class Fiber {
 public:
  /// A guard lies below the stack. Throws std::bad_alloc.
  explicit Fiber(std::size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the fiber ready to run entry(argument), which must not throw. What it ran before is forgotten.
  void start(void (*entry)(void*), void* argument);
  /// Runs until the fiber yields or its entry returns.
  void resume();
  bool finished() const { return finished_; }
  /// Back to who resumed the fiber that is running.
  static void yield();
  /// The fiber that is running, or nullptr.
  static Fiber* running();
  /// Leaves the running fiber for good, as if its entry had returned.
  [[noreturn]] static void leave();

  /// For a signal handler: the highest address of the stack, aligned to 16.
  void* stack_top() const { return stack_ + stack_bytes_; }
  const char* stack() const { return stack_; }
  std::size_t stack_bytes() const { return stack_bytes_; }
  bool guard_contains(const void* address) const;

 private:
  friend void fiber_main();
  void switch_in();
  void switch_out(bool for_good);

  char* mapping_ = nullptr;
  char* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool finished_ = true;
  void* stack_pointer_ = nullptr;
  void* caller_stack_pointer_ = nullptr;
  const void* caller_stack_ = nullptr;  // these three for AddressSanitizer
  std::size_t caller_stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
#if !defined(__x86_64__) && !defined(__aarch64__)
  ucontext_t context_, caller_context_;
#endif
};

}  // namespace cuda_on_cpu
