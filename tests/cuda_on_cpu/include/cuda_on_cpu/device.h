// cuda_on_cpu: a CUDA device made of the processor at hand, strict where a real one is silent. It runs CUDA C++ text,
// whole projects included, as ordinary C++: this folder's cuda_runtime.h and cublasLt.h stand in for the
// toolkit's.
//
//   g++ -std=c++20 -Itests/cuda_on_cpu/include -x c++ model.cu ... -x none libcuda_on_cpu.a
//
// What runs: one fiber a CUDA thread, blocks one after the other; __syncthreads, shuffles, votes and __syncwarp give
// way to a scheduler. Work on a stream is as late as it may legally be: it waits until the host synchronises that
// stream, or something that the stream orders. The default (NULL) stream orders itself with blocking streams alone:
// what it was given does not run when a stream made with cudaStreamNonBlocking is waited for, nor the other way round.
// An event orders what a stream was given behind cudaStreamWaitEvent, and nothing else.
// cudaMemset, and cudaMemcpy from pageable memory or within the device, return before they have happened.
//
// What it reports, naming kernel, block, thread and line, as an exception `cuda_on_cpu::Failure` from the synchronising
// call:
//   - a barrier or warp operation that some threads reach and others don't, or reach at another line;
//   - a vector (float4, ...) read or written at an address that is not a multiple of its size;
//   - an access outside device memory, or device memory used by the host (such memory is unreadable while the host
//   runs);
//   - writes past the end of an allocation that fall short of its guard page, found when it is freed or when the device
//   synchronises;
//   - a host pointer given to a kernel, a copy or a library call that wants device memory, also within a struct's
//   member `data`;
//   - memory or a stream of another device than the current one in a kernel or a library call;
//   - a stream or a graph that was destroyed, and an event that is waited for and was never recorded;
//   - an error that a call returned and nobody acknowledged with cudaGetLastError() before the next synchronisation;
//   - work on the default stream, where CUDA_ON_CPU_DEFAULT_STREAM=refuse is in the environment;
//   - memory taken or given back, a wait, or a copy from or to pageable memory while the thread records a graph;
//   - a stream that waits for an event of a recording that it is no part of, or has joined one and never comes back;
//   - arguments of cuBLASLt that the library refuses (by its status; stderr says why), or with which it would do what
//   is not seen: what is destroyed, another device's handle, results upon operands, a workspace that is too small;
//   - the same of cuDNN, whose stand-in (cudnn/cudnn.cpp) is a library for the program to open;
//   - what cudaMemcpyAsync copies from the host, and the host has changed before the stream had come to it;
//   - a race: two threads, one address of device or shared memory, at least one write, and nothing that orders them, be
//   it a barrier, __syncwarp of both lanes, or fences around atomic or volatile accesses; with both lines. For that the
//   kernels' text is compiled with -fsanitize=thread, and linked without.
// Fresh device memory and, at the start of each block, shared memory are filled with NaN (0xff bytes), so that what
// nobody wrote is seen. A race changes its result with the order in which threads and blocks run: run under several
// orders and compare,
//
//   for (const auto& order : cuda_on_cpu::orders()) { cuda_on_cpu::set_order(order); run(); }
//
// or set CUDA_ON_CPU_ORDER=forward, reverse or random:SEED in the environment of a whole program. With ",accesses"
// behind it, threads also change between barriers, every few accesses to memory, where races can be found.
//
// Limits. Two devices, alike; kernels are launched with cudaLaunchKernelEx (a `<<<>>>` is no C++). Shared memory is
// `static thread_local` inside the kernel (plain `static` under AddressSanitizer, which then checks its bounds, but it
// is not filled with NaN): the emulated program keeps no function-local thread_local variables of its own, and is not
// stripped. No dynamic shared memory, no atomics on floats, no textures, no cooperative launches. What is not emulated
// does not compile, or fails by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct CUstream_st;

namespace cuda_on_cpu {

/// Work, which is tried again while it says that it is not done: what it waits for is no work of this process.
using Attempt = std::function<bool()>;

/// What a stream was given while it recorded, with its name for diagnostics.
struct RecordedWork {
  const char* name;
  Attempt run;
  std::size_t stream;     ///< its place among those that record
  std::size_t after = 0;  ///< the work of another stream that it waits for, by its place from 1; 0: none
};

/// A graph that is being recorded: by the stream that began it, and those that have come to wait for it since.
struct Recording {
  std::vector<CUstream_st*> streams;
  std::vector<RecordedWork> work;
  bool ended = false;
};

}  // namespace cuda_on_cpu

/// A stream. Those that were destroyed stay, so that their use is seen.
struct CUstream_st {
  int device = 0;
  bool blocking = true;  ///< waits for the default stream of its device, which waits for it
  bool is_default = false, destroyed = false;
  std::shared_ptr<cuda_on_cpu::Recording> recording = nullptr;  ///< where work goes while a graph is recorded
};

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
  /// Threads also change at accesses to memory, every few of them, in text that tells of these.
  bool at_accesses = false;
};
/// Forward, reverse and three random ones.
std::vector<Order> orders();
std::string to_string(const Order& order);
void set_order(const Order& order);
/// Whether races are looked for in text that tells of its accesses; they are, unless this says otherwise, or
/// CUDA_ON_CPU_RACES=ignore in the environment of a whole program.
void find_races(bool are_found);

/// The __syncthreads() or __syncwarp() at this line does nothing, as if it were not there: a fault for tests to plant.
/// Line 0: all are there. CUDA_ON_CPU_LEAVE_OUT=rows.cuh:48 in the environment of a whole program.
void leave_out(const std::string& file, int line);

/// Kernels whose name has this part get `most` blocks at the most in the last dimension of several, as those that
/// stride over their items can do with. 0: all that were asked for. CUDA_ON_CPU_FOLD=add_kernel:2 in the environment of
/// a whole program.
void fold_blocks(const std::string& kernel, unsigned most);

/// What has run since the last call of reset_statistics().
struct Statistics {
  std::int64_t launches = 0, blocks = 0, threads = 0, barriers = 0, warp_operations = 0, library_calls = 0;
  std::int64_t accesses = 0;         ///< to device and shared memory, that were checked for races
  std::int64_t allocations = 0;      ///< of device memory and of page-locked memory
  std::int64_t descriptors = 0;      ///< handles, descriptors, streams, events and graphs that were made
  std::int64_t graph_launches = 0;   ///< of recorded graphs
  std::int64_t bytes_to_host = 0;    ///< copied from the device
  std::int64_t bytes_allocated = 0;  ///< on the device, now
  std::int64_t bytes_pinned = 0;     ///< page-locked memory of the host, now
  std::int64_t last_algorithm = -1;  ///< that a library was given: its place among those that were recommended
  std::int64_t convolutions = 0;     ///< that cuDNN has computed
};
Statistics statistics();
void reset_statistics();
/// Products, and convolutions by cuDNN, take so much longer by each algorithm that the library recommends, in its
/// order; it has as many as there are numbers here, and one, which takes no longer, where there is none. A negative
/// number: an algorithm that is recommended and fails.
void set_algorithms(std::vector<double> milliseconds);
const std::vector<double>& algorithms();
/// What the algorithms with such times have taken, which events measure then.
void pass_time(double milliseconds);
double passed_time();

// ---- what the stand-in headers need ---------------------------------------------------------------------------------

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
std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value, int source, const char* name,
                             const Site& where);
/// __threadfence()
void fence();
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
void enqueue_launch(Launch launch, CUstream_st* stream);
/// Kernels stand in a library that the process has opened, for good, and no longer in the program itself
/// (tests/cuda_jit). `touch`: a function of it that uses a thread_local variable.
void add_kernel_library(const std::string& path, void (*touch)());
/// Any other work on a stream, nullptr being the current device's default one; `name` for diagnostics. It waits for the
/// work that has the number `after`, of whatever stream. Returns its own number, from 1.
/// While the stream records both are places in the recording, from 1.
std::uint64_t enqueue(const char* name, std::function<void()> work, CUstream_st* stream, std::uint64_t after = 0);
std::uint64_t enqueue_attempt(const char* name, Attempt work, CUstream_st* stream, std::uint64_t after = 0);
/// Failure, while this thread records a graph: what `call` does is no work on a stream. What it records is spoilt.
void refuse_while_recording(const char* call);
void begin_recording();
/// Whether what was recorded is spoilt.
bool end_recording();
void count_graph_launch();
/// Runs all that was enqueued: first of streams that nothing orders is the one that was given work last.
void synchronize();
/// Runs what a stream was given, and what had to come before it.
void synchronize(CUstream_st* stream);
/// Runs the work that has this number, and what had to come before it.
void synchronize_to(std::uint64_t work);
/// The same as far as it can be done now; whether that is all.
bool advance(CUstream_st* stream);
bool advance_to(std::uint64_t work);
/// The stream, or the current device's default one for nullptr. Failure when it was destroyed.
CUstream_st* existing(CUstream_st* stream);

inline constexpr int kDevices = 2;
/// The host thread's.
int current_device();
void set_current_device(int device);

/// Nullptr when `bytes` are more than the emulated device has.
void* allocate(std::size_t bytes);
bool release(void* address);
/// Failure when [address, address + bytes) is not all inside one device allocation.
void require_device(const void* address, std::size_t bytes, const std::string& what);
/// The same, for what a library computes with: of the current device.
void require_current_device(const void* address, std::size_t bytes, const std::string& what);
bool is_device(const void* address);
/// The device that it is memory of, or -1.
int device_of(const void* address);

/// Page-locked memory of the host.
void* allocate_pinned(std::size_t bytes);
bool release_pinned(void* address);
bool is_pinned(const void* address);

void count_library_call();
void count_algorithm(std::int64_t algorithm);
void count_convolution();
void count_descriptor();
void count_bytes_to_host(std::size_t bytes);

}  // namespace cuda_on_cpu
