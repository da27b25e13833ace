// Finds races of a kernel: two threads, one address, at least one write, and nothing that orders them. What tells of
// every load and store is kernel text that was compiled with -fsanitize=thread; accesses.cpp is what the compiler's
// calls then come to.
//
// The order is CUDA's. A block's barrier orders what its threads did before it with what they do after it; __syncwarp
// does so for the lanes of its mask; shuffles and votes order nothing. Blocks of a launch have no order. Atomics and
// volatile accesses do not race with each other, and order what lies before one thread's fence with what lies after
// another's, or after a barrier of the block of the other, where the other has read what the first wrote in between.
// Launches of an emulated device come one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cuda_on_cpu {

class DeviceMemory;

class Races {
 public:
  using Range = std::pair<const char*, const char*>;  // from, and where it ends
  /// Another thread's access, and the one that came to it.
  struct Race {
    std::size_t block = 0, thread = 0;                ///< of the earlier access, flattened
    const void *earlier = nullptr, *later = nullptr;  ///< where, in the program
    bool earlier_writes = false, later_writes = false, is_shared = false;
    const char* address = nullptr;
    std::size_t bytes = 0;
  };

  /// `shared`: where the `__shared__` variables lie.
  void begin_launch(const DeviceMemory& memory, std::vector<Range> shared);
  void begin_block(std::size_t block, std::size_t threads);
  void block_barrier();
  /// Of the lanes `mask` of the warp whose first thread is `first`.
  void warp_barrier(std::size_t first, unsigned mask);

  /// The race that an access of `thread` makes. `strong`: it is atomic or volatile.
  std::optional<Race> access(std::size_t thread, const void* address, std::size_t bytes, bool writes, bool strong,
                             const void* where);
  /// What an atomic or volatile access, made now, passes on and takes over.
  void pass_on(std::size_t thread, const void* address, bool reads, bool writes);
  void fence(std::size_t thread);
  /// Whether the address is one of the device's memory or of shared memory.
  bool covers(const void* address) {
    const auto number = reinterpret_cast<std::uintptr_t>(address) / kPage;
    const Recent& recent = recent_[number % kRecent];
    return (recent.number == number ? recent.page : page_of(address)) != nullptr;
  }
  /// Of this launch, until now.
  std::int64_t accesses() const { return accesses_; }

 private:
  static constexpr std::size_t kPage = 4096, kRecent = 1024;
  /// One that was made, as it is kept for the next that comes to the address.
  struct Access {
    const void* where = nullptr;
    std::uint32_t block = 0;  // blocks are numbered over all launches, from 1; 0: none
    std::uint32_t epoch = 0;  // barriers of the block before it
    std::uint32_t clock = 0;  // of its thread
    std::uint16_t thread = 0;
    bool strong = false;
  };
  /// The last write, and two reads after it: two that nothing orders stand for all.
  struct Cell {
    Access write, reads[2];
  };
  /// Of 4 bytes each; of one byte each, once a smaller access was seen.
  struct Page {
    std::vector<Cell> cells;
    bool by_bytes = false, is_shared = false;
  };
  /// What a thread knows of other blocks, and of other warps beyond its block's barriers.
  struct Known {
    std::uint32_t epoch = 0;  // what the block's threads did before it
    std::map<std::uint16_t, std::uint32_t> clocks;
  };
  using Knowledge = std::map<std::uint32_t, Known>;  // by block
  using Shared = std::shared_ptr<const Knowledge>;
  struct Thread {
    std::uint32_t clock = 1;
    std::array<std::uint32_t, 32> lanes{};  // what it knows of its warp
    Shared known, read, fenced;  // and what strong accesses read since its last fence; what it knew at that fence
  };

  static Shared joined(const Shared& a, const Shared& b);
  /// Whether it comes before what `thread` does now. Each block has its own shared memory.
  bool ordered(const Access& earlier, std::size_t thread, bool is_shared) const;
  Page* page_of(const void* address);
  static void keep_read(Cell& cell, const Access& read, const bool (&ordered)[2]);

  const DeviceMemory* memory_ = nullptr;
  std::vector<Range> shared_;
  std::uint32_t first_block_ = 1, block_ = 0, next_block_ = 1, epoch_ = 0;
  std::vector<std::size_t> block_indices_;  // of this launch's blocks, in the order in which they ran
  std::vector<Thread> threads_;
  std::unordered_map<const void*, Shared> passed_on_;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  struct Recent {
    std::uintptr_t number = 0;
    Page* page = nullptr;
  };
  std::array<Recent, kRecent> recent_;
  std::int64_t accesses_ = 0;
};

}  // namespace cuda_on_cpu
