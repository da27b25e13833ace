// Runs one grid: blocks one after the other, each CUDA thread on a fiber of its own, in the order asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cuda_on_cpu/device.h"
#include "fiber.h"
#include "memory.h"
#include "races.h"
#include "shared_memory.h"

namespace cuda_on_cpu {

struct ThreadContext {
  Index thread, block, block_size, grid_size;
};

class Scheduler;

/// Where the calling thread's accesses to memory go, but for those to a CUDA thread's own variables: nowhere, where it
/// runs no kernel or nobody wants to know.
struct Watch {
  Scheduler* scheduler = nullptr;
  const char* stack = nullptr;
  std::size_t stack_bytes = 0;
};
extern constinit thread_local Watch watch;

class Scheduler {
 public:
  /// Failure when the kernel faults; the scheduler can be used again after it. Shared memory is filled with NaN before
  /// each block. `races`: they are looked for, in text that tells of its accesses.
  void run(const Launch& launch, const std::string& kernel_name, const Order& order, bool races,
           const DeviceMemory& memory, const Symbols& symbols, Statistics& statistics);

  bool running() const { return running_ != nullptr; }
  int block_barrier(BlockVote vote, int predicate, const char* name, const Site& where);
  std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                               const char* name, const Site& where);
  /// The program has text that tells of its accesses.
  static void accesses_are_told();
  /// Of the running thread, which is about to make it; another thread may go on first. `strong`: atomic or volatile.
  void access(const void* address, std::size_t bytes, bool reads, bool writes, bool strong, const void* where);
  void fence();
  /// "kernel k<float>(...), block (0,0,0), thread (3,0,0)"
  std::string place() const;
  /// From the signal handler: the running thread failed; its stack is not to be trusted.
  [[noreturn]] void leave_failed(const char* message);

 private:
  enum class State : std::uint8_t { ready, at_block_barrier, at_warp_operation, returned };

  struct Thread {
    ThreadContext context;
    State state = State::ready;
    const char* operation_name = "";
    Site site;
    int predicate = 0;
    BlockVote vote = BlockVote::none;
    WarpOperation operation = WarpOperation::sync;
    unsigned mask = 0;
    std::uint64_t value = 0, result = 0;
    int source = 0;
    Scheduler* scheduler = nullptr;
    const Launch* launch = nullptr;
  };

  void run_block(const Order& order, Statistics& statistics);
  bool release_warps(bool at_random, Statistics& statistics);
  bool release_block(Statistics& statistics);
  std::string describe(const Thread& thread) const;
  std::string describe(const Races::Race& race) const;
  [[noreturn]] void fail(const std::string& message);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Thread> threads_;
  Thread* running_ = nullptr;
  std::string kernel_name_, failure_;
  std::mt19937_64 random_;
  Races races_;
  bool find_races_ = false, change_at_accesses_ = false;
  std::uint64_t accesses_left_ = 0;  // before another thread goes on
  std::optional<Races::Race> race_;
  const DeviceMemory* memory_ = nullptr;
  const Symbols* symbols_ = nullptr;
};

}  // namespace cuda_on_cpu
