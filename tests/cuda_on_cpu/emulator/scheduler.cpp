#include "scheduler.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>
#include <utility>

// What kernels see, as cuda_runtime.h declares it.
extern cuda_on_cpu::Index threadIdx, blockIdx, blockDim, gridDim;
cuda_on_cpu::Index threadIdx{~0u, ~0u, ~0u}, blockIdx{~0u, ~0u, ~0u}, blockDim{~0u, ~0u, ~0u}, gridDim{~0u, ~0u, ~0u};

namespace cuda_on_cpu {
namespace {

constexpr ThreadContext kHost{{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};

void set_indices(const ThreadContext& context) {
  threadIdx = context.thread;
  blockIdx = context.block;
  blockDim = context.block_size;
  gridDim = context.grid_size;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 512 << 10;
#else
constexpr std::size_t kStackBytes = 128 << 10;
#endif
constexpr int kWarp = 32;
constexpr std::uint64_t kMostAccesses = 32;  // that a thread makes before another may go on

bool told = false;

std::string to_text(const Index& i) {
  char text[48];
  std::snprintf(text, sizeof text, "(%u,%u,%u)", i.x, i.y, i.z);
  return text;
}

std::string to_text(const Site& site) {
  const std::string file = site.file;
  return file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(site.line);
}

bool same(const Site& a, const Site& b) { return a.line == b.line && std::string_view(a.file) == b.file; }

Index unflatten(std::size_t i, const Index& size) {
  return {static_cast<unsigned>(i % size.x), static_cast<unsigned>(i / size.x % size.y),
          static_cast<unsigned>(i / size.x / size.y)};
}

template <class T>
void put_in_order(std::vector<T>& sequence, const Order& order, std::mt19937_64& random) {
  std::iota(sequence.begin(), sequence.end(), T(0));
  if (order.kind == Order::Kind::reverse) std::reverse(sequence.begin(), sequence.end());
  if (order.kind == Order::Kind::random) {
    for (std::size_t i = sequence.size(); i > 1; --i) std::swap(sequence[i - 1], sequence[random() % i]);
  }
}

}  // namespace

constinit thread_local Watch watch;

std::string Scheduler::describe(const Thread& thread) const {
  const std::string name = "thread " + to_text(thread.context.thread);
  switch (thread.state) {
    case State::ready:
      return name + " runs";
    case State::returned:
      return name + " has returned";
    case State::at_block_barrier:
      return name + " waits in " + thread.operation_name + " at " + to_text(thread.site);
    case State::at_warp_operation: {
      char mask[16];
      std::snprintf(mask, sizeof mask, "0x%08x", thread.mask);
      return name + " waits in " + thread.operation_name + " with mask " + mask + " at " + to_text(thread.site);
    }
  }
  return name;
}

void Scheduler::fail(const std::string& message) { throw Failure(message + "\n  in " + place()); }

std::string Scheduler::place() const {
  if (running_ != nullptr)
    return "kernel " + kernel_name_ + ", block " + to_text(running_->context.block) + ", thread " +
           to_text(running_->context.thread);
  return "kernel " + kernel_name_ + (threads_.empty() ? "" : ", block " + to_text(threads_[0].context.block));
}

void Scheduler::leave_failed(const char* message) {
  failure_ = message + ("\n  in " + place());
  running_->state = State::returned;
  Fiber::leave();
}

void Scheduler::accesses_are_told() { told = true; }

void Scheduler::access(const void* address, std::size_t bytes, bool reads, bool writes, bool strong,
                       const void* where) {
  if (!races_.covers(address)) return;  // what the host gave the kernel, and constants
  if (change_at_accesses_ && accesses_left_-- == 0) {
    accesses_left_ = random_() % kMostAccesses;
    Fiber::yield();
  }
  if (!find_races_) return;
  const auto thread = static_cast<std::size_t>(running_ - threads_.data());
  race_ = races_.access(thread, address, bytes, writes, strong, where);
  if (race_) leave_failed("a race");  // told in full by the host, whose stack has room for it
  if (strong) races_.pass_on(thread, address, reads, writes);
}

void Scheduler::fence() {
  if (find_races_) races_.fence(static_cast<std::size_t>(running_ - threads_.data()));
}

std::string Scheduler::describe(const Races::Race& race) const {
  const auto own = static_cast<std::size_t>(running_ - threads_.data());
  const ThreadContext& context = threads_[own].context;
  const Index block = unflatten(race.block, context.grid_size), thread = unflatten(race.thread, context.block_size);
  const bool same_block = to_text(block) == to_text(context.block);
  std::string text = "a race on ";
  if (race.is_shared) {
    text += "shared memory '" + symbols_->shared_name(race.address) + "'";
  } else {
    char where[160] = "";
    memory_->describe(race.address, where, sizeof where);
    text += std::string("device memory, ") + where;
  }
  text += ": this thread " + std::string(race.later_writes ? "writes" : "reads") + " at " + source_lines(race.later) +
          " what thread " + to_text(thread) + (same_block ? "" : " of block " + to_text(block)) +
          (race.earlier_writes ? " wrote" : " read") + " at " + source_lines(race.earlier);
  if (!same_block) return text + "; blocks of a launch have no order";
  return text + (race.thread / kWarp == own / kWarp ? "; no __syncwarp or __syncthreads lies between"
                                                    : "; no __syncthreads lies between");
}

void Scheduler::run(const Launch& launch, const std::string& kernel_name, const Order& order, bool races,
                    const DeviceMemory& memory, const Symbols& symbols, Statistics& statistics) {
  kernel_name_ = kernel_name;
  failure_.clear();
  random_.seed(order.seed);
  memory_ = &memory;
  symbols_ = &symbols;
  find_races_ = told && races;
  change_at_accesses_ = told && order.at_accesses;
  if (find_races_ || change_at_accesses_) {
    races_.begin_launch(memory, symbols.shared_ranges());
    accesses_left_ = random_() % kMostAccesses;
  }
  const std::size_t thread_count = std::size_t{launch.block.x} * launch.block.y * launch.block.z;
  std::vector<std::size_t> blocks(std::size_t{launch.grid.x} * launch.grid.y * launch.grid.z);
  put_in_order(blocks, order, random_);
  while (fibers_.size() < thread_count) fibers_.push_back(std::make_unique<Fiber>(kStackBytes));
  ++statistics.launches;
  for (std::size_t block : blocks) {
    threads_.assign(thread_count, Thread{});
    for (std::size_t t = 0; t < thread_count; ++t) {
      threads_[t].context = {unflatten(t, launch.block), unflatten(block, launch.grid), launch.block, launch.grid};
      threads_[t].scheduler = this;
      threads_[t].launch = &launch;
    }
    symbols.poison_shared();
    if (find_races_) races_.begin_block(block, thread_count);
    ++statistics.blocks;
    statistics.threads += static_cast<std::int64_t>(thread_count);
    try {
      run_block(order, statistics);
    } catch (...) {
      running_ = nullptr;
      fibers_.clear();  // the other threads of the block are left in the middle of their work
      threads_.clear();
      throw;
    }
  }
  threads_.clear();
  if (find_races_) statistics.accesses += races_.accesses();
}

void Scheduler::run_block(const Order& order, Statistics& statistics) {
  const auto entry = [](void* argument) {
    auto& thread = *static_cast<Thread*>(argument);
    Scheduler& scheduler = *thread.scheduler;
    try {
      thread.launch->body();
    } catch (const Failure& failure) {
      scheduler.failure_ = failure.what();
    } catch (const std::exception& error) {
      scheduler.failure_ = std::string("an exception left the kernel: ") + error.what() + "\n  in " + scheduler.place();
    } catch (...) {
      scheduler.failure_ = "an exception left the kernel\n  in " + scheduler.place();
    }
    thread.state = State::returned;
  };
  for (std::size_t t = 0; t < threads_.size(); ++t) fibers_[t]->start(entry, &threads_[t]);

  std::vector<unsigned> sequence(threads_.size());
  put_in_order(sequence, order, random_);
  for (;;) {
    bool any_ran = false, all_returned = true;
    for (unsigned t : sequence) {
      Thread& thread = threads_[t];
      if (thread.state != State::ready) continue;
      running_ = &thread;
      set_indices(thread.context);
      if (find_races_ || change_at_accesses_) watch = {this, fibers_[t]->stack(), fibers_[t]->stack_bytes()};
      fibers_[t]->resume();
      watch = {};
      set_indices(kHost);
      if (race_) failure_ = describe(*std::exchange(race_, std::nullopt)) + "\n  in " + place();
      running_ = nullptr;
      any_ran = true;
      if (!failure_.empty()) throw Failure(failure_);
    }
    for (const Thread& thread : threads_) all_returned = all_returned && thread.state == State::returned;
    if (all_returned) return;
    const bool random_order = order.kind == Order::Kind::random;
    if (release_warps(random_order && any_ran, statistics)) {
    } else if (release_block(statistics)) {
    } else if (!any_ran) {
      std::string message = "threads wait for each other for ever";
      const Thread* last = nullptr;
      int listed = 0;
      for (const Thread& thread : threads_) {
        if (last != nullptr && thread.state == last->state && same(thread.site, last->site)) continue;
        last = &thread;
        if (++listed <= 6) message += "\n  " + describe(thread);
      }
      fail(message);
    }
    if (random_order) put_in_order(sequence, order, random_);
  }
}

bool Scheduler::release_warps(bool at_random, Statistics& statistics) {
  bool released = false;
  const int count = static_cast<int>(threads_.size());
  for (int begin = 0; begin < count; begin += kWarp) {
    const int lanes = std::min(kWarp, count - begin);
    if (at_random && random_() % 2 == 0) continue;  // let this warp fall behind
    unsigned done = 0;
    for (int l = 0; l < lanes; ++l) {
      const Thread& first = threads_[static_cast<std::size_t>(begin + l)];
      if (first.state != State::at_warp_operation || (done >> l & 1) != 0) continue;
      const unsigned mask = first.mask;
      if ((mask >> l & 1) == 0) fail("the mask of " + describe(first) + " leaves out its own lane");
      if (lanes < kWarp && (mask >> lanes) != 0)
        fail("the mask of " + describe(first) + " names lanes that the block does not have");
      bool complete = true;
      for (int other = 0; other < lanes; ++other) {
        if ((mask >> other & 1) == 0) continue;
        const Thread& thread = threads_[static_cast<std::size_t>(begin + other)];
        if (thread.state == State::returned)
          fail(describe(first) + ", but a lane of its mask does not come: " + describe(thread));
        complete = complete && thread.state == State::at_warp_operation && thread.mask == mask &&
                   thread.operation == first.operation && same(thread.site, first.site);
      }
      if (!complete) continue;
      unsigned ballot = 0;
      for (int other = 0; other < lanes; ++other)
        if ((mask >> other & 1) != 0 && threads_[static_cast<std::size_t>(begin + other)].value != 0)
          ballot |= 1u << other;
      for (int other = 0; other < lanes; ++other) {
        if ((mask >> other & 1) == 0) continue;
        Thread& thread = threads_[static_cast<std::size_t>(begin + other)];
        if (thread.operation == WarpOperation::ballot) {
          thread.result = ballot;
        } else if (thread.operation == WarpOperation::shuffle) {
          const bool defined = thread.source >= 0 && thread.source < lanes && (mask >> thread.source & 1) != 0;
          thread.result = defined ? threads_[static_cast<std::size_t>(begin + thread.source)].value
                                  : ~std::uint64_t{0};  // undefined on a device: NaN
        }
        done |= 1u << other;
      }
      for (int other = 0; other < lanes; ++other)
        if ((mask >> other & 1) != 0) threads_[static_cast<std::size_t>(begin + other)].state = State::ready;
      ++statistics.warp_operations;
      if (find_races_ && first.operation == WarpOperation::sync)
        races_.warp_barrier(static_cast<std::size_t>(begin), mask);
      released = true;
    }
  }
  return released;
}

bool Scheduler::release_block(Statistics& statistics) {
  const Thread* first = nullptr;
  for (const Thread& thread : threads_)
    if (thread.state == State::at_block_barrier && first == nullptr) first = &thread;
  if (first == nullptr) return false;
  int count = 0;
  bool all = true;
  for (const Thread& thread : threads_) {
    if (thread.state == State::at_warp_operation || thread.state == State::ready) return false;
    if (thread.state == State::returned) fail("divergent barrier: " + describe(*first) + ", but " + describe(thread));
    if (thread.vote != first->vote || !same(thread.site, first->site))
      fail("divergent barrier: " + describe(*first) + ", but " + describe(thread));
    if (thread.predicate != 0) ++count;
    all = all && thread.predicate != 0;
  }
  const int result = first->vote == BlockVote::count ? count
                     : first->vote == BlockVote::all ? int{all}
                                                     : int{count > 0};
  for (Thread& thread : threads_) {
    thread.result = static_cast<std::uint64_t>(result);
    thread.state = State::ready;
  }
  ++statistics.barriers;
  if (find_races_) races_.block_barrier();
  return true;
}

int Scheduler::block_barrier(BlockVote vote, int predicate, const char* name, const Site& where) {
  Thread& self = *running_;
  self.state = State::at_block_barrier;
  self.vote = vote;
  self.predicate = predicate;
  self.operation_name = name;
  self.site = where;
  Fiber::yield();
  return static_cast<int>(self.result);
}

std::uint64_t Scheduler::warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                                        const char* name, const Site& where) {
  Thread& self = *running_;
  self.state = State::at_warp_operation;
  self.operation = operation;
  self.mask = mask;
  self.value = value;
  self.source = source;
  self.operation_name = name;
  self.site = where;
  Fiber::yield();
  return self.result;
}

}  // namespace cuda_on_cpu
