// cuda_on_cpu: a CUDA device made of the processor at hand, strict where a real one is silent. It runs CUDA C++ text, whole projects
// included, as ordinary C++: this folder's cuda_runtime.h, cublasLt.h and cudnn.h stand in for the toolkit's.
//
//   g++ -std=c++20 -Itests/cuda_on_cpu/include -x c++ model.cu ... libcuda_on_cpu.a
//
// What runs: one fiber a CUDA thread, blocks one after the other; __syncthreads, shuffles, votes and __syncwarp give way to a scheduler.
// Work on a stream waits until the host synchronises, as it may on a device, and then runs in the order in which it was enqueued.
//
// What it reports, naming kernel, block, thread and line, as an exception `cuda_on_cpu::Failure` from the synchronising call:
//   - a barrier or warp operation that some threads reach and others don't, or reach at another line;
//   - a vector (float4, ...) read or written at an address that is not a multiple of its size;
//   - an access outside device memory, or device memory used by the host (such memory is unreadable while the host runs);
//   - writes past the end of an allocation that fall short of its guard page, found when it is freed or when the device synchronises;
//   - a host pointer given to a kernel, a copy or a library call that wants device memory.
// Fresh device memory and, at the start of each block, shared memory are filled with NaN (0xff bytes), so that what nobody wrote is seen.
// A race changes its result with the order in which threads and blocks run: run under several orders and compare,
//
//   for (const auto& order : cuda_on_cpu::orders()) { cuda_on_cpu::set_order(order); run(); }
//
// or set CUDA_ON_CPU_ORDER=forward, reverse or random:SEED in the environment of a whole program.
//
// Limits. One device; kernels are launched with cudaLaunchKernelEx (a `<<<>>>` is no C++). Shared memory is `static thread_local` inside the
// kernel (plain `static` under AddressSanitizer, which then checks its bounds, but it is not filled with NaN): the emulated program keeps no
// function-local thread_local variables of its own, and is not stripped. No dynamic shared memory, no atomics on floats, no textures, no
// cooperative launches. What is not emulated does not compile, or fails by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cuda_on_cpu {

/// A fault of the emulated program.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The order in which threads of a block, and blocks of a grid, get their turns.
struct Order {
  enum class Kind { forward, reverse, random } kind = Kind::forward;
  std::uint64_t seed = 0;
};
/// Forward, reverse and three random ones.
std::vector<Order> orders();
std::string to_string(const Order& order);
void set_order(const Order& order);

/// What has run since the last call of reset_statistics().
struct Statistics {
  std::int64_t launches = 0, blocks = 0, threads = 0, barriers = 0, warp_operations = 0, library_calls = 0;
  std::int64_t bytes_allocated = 0;  ///< on the device, now
};
Statistics statistics();
void reset_statistics();

// ---- what the stand-in headers need ------------------------------------------------------------------------------------------------------

struct Index {
  unsigned x, y, z;
};

/// Where in the source an operation stands. (std::source_location is missing from clang++ 14.)
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

enum class BlockVote { none, count, all, any };
int block_barrier(BlockVote vote, int predicate, const char* name, const Site& where);

enum class WarpOperation { sync, shuffle, ballot };
/// Waits for the lanes in `mask`; gives the value of lane `source` of those, or the ballot of their `value`s.
std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value, int source, const char* name, const Site& where);
/// This thread's place in its warp.
unsigned lane();

/// Failure when `address` is no multiple of `alignment`. Vector types call it when they are copied.
void check_alignment(const void* address, std::size_t alignment, const char* type);

struct Launch {
  const void* kernel;  ///< the function, for its name
  Index grid, block;
  std::function<void()> body;  ///< calls the kernel; runs once a thread
  std::vector<const void*> pointer_arguments;
};
void enqueue_launch(Launch launch);
/// Any other work on the stream; `name` for diagnostics.
void enqueue(const char* name, std::function<void()> work);
/// Runs all that was enqueued.
void synchronize();

/// Nullptr when `bytes` are more than the emulated device has.
void* allocate(std::size_t bytes);
bool release(void* address);
/// Failure when [address, address + bytes) is not all inside one device allocation.
void require_device(const void* address, std::size_t bytes, const std::string& what);
bool is_device(const void* address);

void count_library_call();

}  // namespace cuda_on_cpu
