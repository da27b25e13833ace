// Who listens to a program's calls: it is told where a phase begins, where each of the phase's calls does, and where
// the phase ends. Calls say nothing of it:
//
//   struct Step { EachCall<Threads> threads; ... };
//   const CallPhase phase(step.threads, "forward");
//   linear(threads, config::hidden, y, x, w);         // as the kernel is given its Threads, its call begins
//
// A listener is set in what kernels are called with, Threads or a CudaContext; where there is none, a call costs a look
// at a pointer. What happens where there is one is a few instructions that write nothing but a mark: a function that
// might write anywhere would have the compiler forget what it knows of the call's config, and compile all that the
// kernel could be.
#pragma once

#include <cstdint>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <time.h>
#endif

namespace graven::kernels {

struct CallListener {
  /// A struct of its own, which is nothing that a kernel's config might be.
  struct Mark {
    std::uint64_t ticks;
  };

  // Functions and not virtual ones, for it may be of another library than the calls.
  void* self = nullptr;
  void (*begin_phase)(void* self, const char* name) = nullptr;  ///< a name of the program's: "forward"
  void (*end_phase)(void* self) = nullptr;
  /// On a device: the call before it was given to it.
  void (*begin_call)(void* self) = nullptr;
  bool of_each_call = true;  ///< on a device: of each time that a call is made, so that none is recorded and replayed
  /// On the processor: where the next call leaves its mark, and where there is no more room.
  Mark *next = nullptr, *end = nullptr;
};

/// The processor's clock, of a rate that is constant and not known.
[[gnu::always_inline]] inline std::uint64_t read_ticks() {
#if defined(__x86_64__)
  unsigned low, high;  // the compilers' own function counts as one that might write anywhere
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return std::uint64_t{high} << 32 | low;
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000U + static_cast<std::uint64_t>(t.tv_nsec);
#endif
}

/// What calls name as their first argument. `Execution` has begin_call(). With GRAVEN_UNMEASURED defined calls have no
/// look at a listener, which takes a part of the time to compile, and of the time of the shortest calls.
template <class Execution>
class EachCall {
 public:
  [[gnu::always_inline]] EachCall(Execution& execution) : execution_(execution) {}
  [[gnu::always_inline]] operator Execution&() const {
    begin_call();
    return execution_;
  }
  /// For what takes no such argument.
  [[gnu::always_inline]] void begin_call() const {
#ifndef GRAVEN_UNMEASURED
    execution_.begin_call();
#endif
  }
  Execution& execution() const { return execution_; }

 private:
  Execution& execution_;
};

/// Calls between its beginning and its end are a phase's.
template <class Execution>
class CallPhase {
 public:
  [[gnu::always_inline]] CallPhase(const EachCall<Execution>& calls, const char* name) : execution_(calls.execution()) {
    if (CallListener* const listener = execution_.listener(); __builtin_expect(listener != nullptr, false))
      listener->begin_phase(listener->self, name);
  }
  [[gnu::always_inline]] ~CallPhase() {
    if (CallListener* const listener = execution_.listener(); __builtin_expect(listener != nullptr, false))
      listener->end_phase(listener->self);
  }
  CallPhase(const CallPhase&) = delete;
  CallPhase& operator=(const CallPhase&) = delete;

 private:
  Execution& execution_;
};

}  // namespace graven::kernels
