// The devices: their memory, their work, the faults they report.
#include "cuda_on_cpu/device.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "memory.h"
#include "scheduler.h"
#include "shared_memory.h"

extern cuda_on_cpu::Index threadIdx, blockDim;

namespace cuda_on_cpu {
namespace {

struct Work {
  const char* name;
  Attempt run;
  const CUstream_st* stream;
  std::uint64_t number = 0;  ///< from 1, in the order in which it was given
  std::uint64_t after = 0;   ///< the work of another stream that it waits for; 0: none
};

/// Whether what one stream was given earlier comes before what the other was given later.
bool orders(const CUstream_st& earlier, const CUstream_st& later) {
  if (&earlier == &later) return true;
  return earlier.device == later.device && (earlier.is_default ? later.blocking : later.is_default && earlier.blocking);
}

class Device {
 public:
  /// One device, as a process has one GPU; the fault handler, which gets no arguments, must find it.
  static Device& instance() {
    static Device device;
    return device;
  }

  DeviceMemory memory;
  Scheduler scheduler;
  std::optional<Symbols> symbols;
  Order order;
  bool find_races = true;
  std::string left_out_file;  // the barrier that does nothing
  int left_out_line = 0;
  std::string folded_kernel;
  unsigned most_blocks = 0;  // 0: those of no kernel are folded
  Statistics statistics;
  std::deque<Work> queue;  // in the order in which it was given, whatever the stream
  CUstream_st default_streams[kDevices];
  bool default_stream_is_refused = false;
  std::map<const char*, std::size_t> pinned;
  std::recursive_mutex mutex;
  char fault_message[256] = {};
  struct sigaction previous_segv{};

  /// Runs what a stream was given, or one piece of work, and what had to come before it; nothing else. Whether it is
  /// done, which it may not be where nobody waits.
  bool run(const CUstream_st& stream, bool waits) { return run(&stream, 0, waits); }
  bool run_to(std::uint64_t number, bool waits) { return run(nullptr, number, waits); }
  void run_all();
  std::uint64_t given = 0;  ///< pieces of work so far

 private:
  bool run(const CUstream_st* stream, std::uint64_t number, bool waits);
  bool run_due(const CUstream_st* stream, std::uint64_t number);
  bool run_all_streams();
  bool run(std::vector<Work> work);
  bool run_one(Work& work);
  void go_on();
  void close_behind_a_fault();
  std::mt19937_64 random_{1};
  std::uint64_t blocked_ = 0;  ///< the work that what was asked for last waits for
  Device();
};

#if defined(__x86_64__) || defined(__aarch64__)
[[noreturn]] void land_after_fault() {
  Device& device = Device::instance();
  device.scheduler.leave_failed(device.fault_message);
}
#endif

/// A segmentation fault in a kernel fails the launch; one by the host in device memory is named before the program
/// dies.
void on_fault(int signal, siginfo_t* info, void* raw_context) {
  Device& device = Device::instance();
  if (device.memory.admit(info->si_addr)) return;
  Fiber* fiber = Fiber::running();
  char where[160] = "";
  const bool known = device.memory.describe(info->si_addr, where, sizeof where);
  if (fiber != nullptr && device.scheduler.running()) {
    if (fiber->guard_contains(info->si_addr))
      std::snprintf(device.fault_message, sizeof device.fault_message, "stack overflow in a kernel");
    else if (known)
      std::snprintf(device.fault_message, sizeof device.fault_message, "illegal address: %s", where);
    else
      std::snprintf(device.fault_message, sizeof device.fault_message, "illegal address %p: not device memory",
                    info->si_addr);
#if defined(__x86_64__) || defined(__aarch64__)
    // Go on in land_after_fault, on a clean stack.
    auto* context = static_cast<ucontext_t*>(raw_context);
    const auto top = reinterpret_cast<std::uintptr_t>(fiber->stack_top());
#if defined(__x86_64__)
    context->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(top - 24);  // as after a call: 8 modulo 16
    context->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(&land_after_fault));
#else
    context->uc_mcontext.sp = top - 16;
    context->uc_mcontext.pc = reinterpret_cast<std::uintptr_t>(&land_after_fault);
#endif
    return;
#else
    (void)raw_context;
#endif
  }
  char line[320];
  const int length = known ? std::snprintf(line, sizeof line, "cuda_on_cpu: the host used device memory: %s\n", where)
                           : std::snprintf(line, sizeof line, "cuda_on_cpu: %s\n",
                                           device.fault_message[0] != 0 ? device.fault_message : "segmentation fault");
  if (length > 0 && write(STDERR_FILENO, line, static_cast<std::size_t>(length)) < 0) {
  }
  if (known) _exit(139);
  sigaction(signal, &device.previous_segv,
            nullptr);  // not ours: the fault comes again, and is handled as it would have been
}

Device::Device() {
  for (int device = 0; device < kDevices; ++device) {
    default_streams[device].device = device;
    default_streams[device].is_default = true;
  }
  if (const char* text = std::getenv("CUDA_ON_CPU_DEFAULT_STREAM"); text != nullptr) {
    if (std::string(text) != "refuse")
      throw Failure(std::string("CUDA_ON_CPU_DEFAULT_STREAM is '") + text + "'; it can be refuse");
    default_stream_is_refused = true;
  }
  if (const char* text = std::getenv("CUDA_ON_CPU_ORDER"); text != nullptr) {
    std::string name = text;
    constexpr std::string_view kAtAccesses = ",accesses";
    order.at_accesses = name.ends_with(kAtAccesses);
    if (order.at_accesses) name.resize(name.size() - kAtAccesses.size());
    if (name == "reverse") {
      order.kind = Order::Kind::reverse;
    } else if (name.starts_with("random:")) {
      order.kind = Order::Kind::random;
      order.seed = std::strtoull(name.c_str() + 7, nullptr, 10);
    } else if (name != "forward") {
      throw Failure(std::string("CUDA_ON_CPU_ORDER is '") + text +
                    "'; it can be forward, reverse or random:SEED, with ',accesses' behind it");
    }
  }
  if (const char* text = std::getenv("CUDA_ON_CPU_RACES"); text != nullptr) {
    if (std::string_view(text) != "ignore")
      throw Failure(std::string("CUDA_ON_CPU_RACES is '") + text + "'; it can be ignore");
    find_races = false;
  }
  // NAME:NUMBER
  const auto read = [](const char* variable, std::string& name, auto& number) {
    const char* text = std::getenv(variable);
    if (text == nullptr) return;
    const std::string both = text;
    const std::size_t colon = both.rfind(':');
    const int value = colon == std::string::npos ? 0 : std::atoi(both.c_str() + colon + 1);
    if (value < 1) throw Failure(std::string(variable) + " is '" + both + "'; it can be NAME:NUMBER");
    name = both.substr(0, colon);
    number = static_cast<std::remove_reference_t<decltype(number)>>(value);
  };
  read("CUDA_ON_CPU_LEAVE_OUT", left_out_file, left_out_line);
  read("CUDA_ON_CPU_FOLD", folded_kernel, most_blocks);
  // Faults are handled on a stack of their own: the fiber's may be full. Not freed, since a fault may come at any time.
  constexpr std::size_t kBytes = 64 << 10;
  void* stack = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack != MAP_FAILED) {
    stack_t alternate{};
    alternate.ss_sp = stack;
    alternate.ss_size = kBytes;
    sigaltstack(&alternate, nullptr);
  }
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous_segv);
}

bool Device::run(const CUstream_st* stream, std::uint64_t number, bool waits) {
  while (!run_due(stream, number)) {
    go_on();
    if (!waits) return false;
    usleep(50);
  }
  return true;
}

/// As far as it can be done now; whether that is all.
bool Device::run_due(const CUstream_st* stream, std::uint64_t number) {
  // Backwards: due is what was asked for, and what comes before something that is due.
  std::vector<const CUstream_st*> later;
  std::set<std::uint64_t> awaited = {number};
  std::vector<Work> due;
  std::deque<Work> left;
  while (!queue.empty()) {
    Work work = std::move(queue.back());
    queue.pop_back();
    const bool needed =
        work.stream == stream || awaited.count(work.number) > 0 ||
        std::any_of(later.begin(), later.end(), [&](const CUstream_st* l) { return orders(*work.stream, *l); });
    if (!needed) {
      left.push_front(std::move(work));
      continue;
    }
    if (std::find(later.begin(), later.end(), work.stream) == later.end()) later.push_back(work.stream);
    awaited.insert(work.after);
    due.push_back(std::move(work));
  }
  queue = std::move(left);
  std::reverse(due.begin(), due.end());
  return run(std::move(due));
}

/// What is asked for waits for another process, which may wait for what other streams have: they go on, each as far as
/// it can.
void Device::go_on() {
  std::vector<Work> left;
  std::deque<Work> all = std::move(queue);
  queue.clear();
  while (!all.empty()) {
    Work work = std::move(all.front());
    all.pop_front();
    const bool is_free = std::none_of(left.begin(), left.end(), [&](const Work& l) {
      return l.stream == work.stream || l.number == work.after || orders(*l.stream, *work.stream);
    });
    // What fails is the first that is reported, and nothing more runs.
    if (!is_free || work.number == blocked_ || !run_one(work)) left.push_back(std::move(work));
  }
  queue.assign(std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
}

bool Device::run_one(Work& work) {
  memory.open();
  bool is_done = false;
  try {
    is_done = work.run();
  } catch (...) {
    close_behind_a_fault();
    throw;
  }
  memory.close();
  return is_done;
}

void Device::close_behind_a_fault() {
  queue.clear();  // nothing more runs
  try {
    memory.close();
  } catch (const Failure&) {  // the first fault is the one to report
  }
}

void Device::run_all() {
  for (; !run_all_streams(); usleep(50)) go_on();
}

/// As far as it can be done now; whether that is all.
bool Device::run_all_streams() {
  // Streams that nothing orders can run one after the other, in any order. What a program wrongly takes for done is
  // done last if the stream that was given work first is the last to run.
  std::vector<const CUstream_st*> groups;
  const auto group_of = [this](const Work& work) {
    return work.stream->blocking ? &default_streams[work.stream->device] : work.stream;
  };
  for (const Work& work : queue)
    if (std::find(groups.begin(), groups.end(), group_of(work)) == groups.end()) groups.push_back(group_of(work));
  if (order.kind == Order::Kind::forward) std::reverse(groups.begin(), groups.end());
  if (order.kind == Order::Kind::random) std::shuffle(groups.begin(), groups.end(), random_);
  std::map<const CUstream_st*, std::deque<Work>> left;
  std::set<std::uint64_t> waiting;
  for (Work& each : queue) {
    waiting.insert(each.number);
    left[group_of(each)].push_back(std::move(each));
  }
  queue.clear();
  // The next is of the first group whose next one waits for nothing.
  std::vector<Work> work;
  while (!waiting.empty())
    for (const CUstream_st* group : groups) {
      std::deque<Work>& own = left[group];
      if (own.empty() || waiting.count(own.front().after) > 0) continue;
      waiting.erase(own.front().number);
      work.push_back(std::move(own.front()));
      own.pop_front();
      break;
    }
  return run(std::move(work));
}

/// In this order, as far as it can be done now; whether that is all.
bool Device::run(std::vector<Work> work) {
  if (work.empty()) return true;
  memory.open();
  try {
    for (std::size_t w = 0; w < work.size(); ++w) {
      if (work[w].run()) continue;
      blocked_ = work[w].number;
      queue.insert(queue.end(), std::make_move_iterator(work.begin() + static_cast<std::ptrdiff_t>(w)),
                   std::make_move_iterator(work.end()));
      std::sort(queue.begin(), queue.end(), [](const Work& a, const Work& b) { return a.number < b.number; });
      memory.close();
      return false;
    }
  } catch (...) {
    close_behind_a_fault();
    throw;
  }
  memory.close();
  return true;
}

thread_local int current = 0;
thread_local int recordings = 0;  // of graphs, by this thread
thread_local bool recordings_are_spoilt = false;

void require_kernel(const char* name) {
  if (!Device::instance().scheduler.running()) throw Failure(std::string(name) + " was called by the host");
}

bool is_left_out(const Site& where) {
  const Device& device = Device::instance();
  return where.line == device.left_out_line && std::string_view(where.file).ends_with("/" + device.left_out_file);
}

}  // namespace

std::vector<Order> orders() {
  return {{Order::Kind::forward, 0},
          {Order::Kind::reverse, 0},
          {Order::Kind::random, 1},
          {Order::Kind::random, 2},
          {Order::Kind::random, 3}};
}

std::string to_string(const Order& order) {
  const std::string at = order.at_accesses ? ",accesses" : "";
  if (order.kind == Order::Kind::forward) return "forward" + at;
  return (order.kind == Order::Kind::reverse ? "reverse" : "random:" + std::to_string(order.seed)) + at;
}

void set_order(const Order& order) { Device::instance().order = order; }
void find_races(bool are_found) { Device::instance().find_races = are_found; }

Statistics statistics() {
  Statistics result = Device::instance().statistics;
  result.bytes_allocated = static_cast<std::int64_t>(Device::instance().memory.allocated());
  for (const auto& [address, bytes] : Device::instance().pinned)
    result.bytes_pinned += static_cast<std::int64_t>(bytes);
  return result;
}

void reset_statistics() { Device::instance().statistics = {}; }

void leave_out(const std::string& file, int line) {
  Device::instance().left_out_file = file;
  Device::instance().left_out_line = line;
}

void fold_blocks(const std::string& kernel, unsigned most) {
  Device::instance().folded_kernel = kernel;
  Device::instance().most_blocks = most;
}

int block_barrier(BlockVote vote, int predicate, const char* name, const Site& where) {
  require_kernel(name);
  if (vote == BlockVote::none && is_left_out(where)) return 0;
  return Device::instance().scheduler.block_barrier(vote, predicate, name, where);
}

std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value, int source, const char* name,
                             const Site& where) {
  require_kernel(name);
  if (operation == WarpOperation::sync && is_left_out(where)) return 0;
  return Device::instance().scheduler.warp_operation(operation, mask, value, source, name, where);
}

void fence() {
  if (watch.scheduler != nullptr) watch.scheduler->fence();
}

unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

void check_alignment(const void* address, std::size_t alignment, const char* type) {
  auto value = reinterpret_cast<std::uintptr_t>(address);
  asm("" : "+r"(value));  // a compiler may take a pointer's type for a promise of its alignment
  if (value % alignment == 0) return;
  Device& device = Device::instance();
  char text[160];
  std::snprintf(text, sizeof text, "misaligned address: a %s at %zu bytes past a multiple of %zu", type,
                static_cast<std::size_t>(value % alignment), alignment);
  throw Failure(text + (device.scheduler.running() ? "\n  in " + device.scheduler.place() : std::string()));
}

int current_device() { return current; }
void set_current_device(int device) { current = device; }

CUstream_st* existing(CUstream_st* stream) {
  if (stream == nullptr) return &Device::instance().default_streams[current];
  if (stream->destroyed) throw Failure("a stream is used that was destroyed");
  return stream;
}

void add_kernel_library(const std::string& path, void (*touch)()) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  Symbols own(path, touch);
  if (device.symbols)
    device.symbols->add(std::move(own));
  else
    device.symbols = std::move(own);
}

void enqueue_launch(Launch launch, CUstream_st* stream) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  if (device.scheduler.running()) throw Failure("a kernel launches a kernel: that is not emulated");
  if (!device.symbols) device.symbols.emplace();
  const std::string name = device.symbols->function_name(launch.kernel);
  for (std::size_t i = 0; i < launch.pointer_arguments.size(); ++i) {
    const void* pointer = launch.pointer_arguments[i];
    if (pointer == nullptr) continue;
    const std::string which =
        "pointer argument " + std::to_string(i) + " (of the pointers alone, from 0) of kernel " + name + " is ";
    if (!device.memory.contains(pointer, 0)) throw Failure(which + "not device memory");
    if (const int other = device.memory.device_of(pointer); other != current)
      throw Failure(which + "memory of device " + std::to_string(other) + ", and device " + std::to_string(current) +
                    " is the current one");
  }
  if (device.most_blocks > 0 && name.find(device.folded_kernel) != std::string::npos) {
    unsigned& blocks = launch.grid.z > 1 ? launch.grid.z : launch.grid.y > 1 ? launch.grid.y : launch.grid.x;
    blocks = std::min(blocks, device.most_blocks);
  }
  enqueue(
      "kernel",
      [&device, name, launch = std::move(launch)] {
        device.scheduler.run(launch, name, device.order, device.find_races, device.memory, *device.symbols,
                             device.statistics);
      },
      stream);
}

std::uint64_t enqueue(const char* name, std::function<void()> work, CUstream_st* stream, std::uint64_t after) {
  const auto once = [work = std::move(work)] {
    work();
    return true;
  };
  return enqueue_attempt(name, once, stream, after);
}

std::uint64_t enqueue_attempt(const char* name, Attempt work, CUstream_st* stream, std::uint64_t after) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  const CUstream_st* target = existing(stream);
  if (target->is_default && device.default_stream_is_refused)
    throw Failure(std::string(name) + ": work on the default stream, which waits for no stream that is non-blocking");
  if (Recording* const recording = target->recording.get(); recording != nullptr) {
    const auto own = std::find(recording->streams.begin(), recording->streams.end(), target);
    recording->work.push_back(
        {name, std::move(work), static_cast<std::size_t>(own - recording->streams.begin()), after});
    return recording->work.size();
  }
  device.queue.push_back({name, std::move(work), target, ++device.given, after});
  return device.given;
}

void refuse_while_recording(const char* call) {
  if (recordings == 0) return;
  recordings_are_spoilt = true;
  throw Failure(std::string(call) + " while this thread records a graph");
}
void begin_recording() { ++recordings; }
bool end_recording() {
  const bool spoilt = recordings_are_spoilt;
  if (--recordings == 0) recordings_are_spoilt = false;
  return spoilt;
}
void count_graph_launch() { ++Device::instance().statistics.graph_launches; }

void synchronize() {
  refuse_while_recording("a wait for the device");
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  device.run_all();
}

void synchronize(CUstream_st* stream) {
  refuse_while_recording("a wait for a stream");
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  device.run(*existing(stream), true);
}

void synchronize_to(std::uint64_t work) {
  refuse_while_recording("a wait for an event");
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  device.run_to(work, true);
}

bool advance(CUstream_st* stream) {
  refuse_while_recording("a look at a stream");
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  return device.run(*existing(stream), false);
}

bool advance_to(std::uint64_t work) {
  refuse_while_recording("a look at an event");
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  return device.run_to(work, false);
}

void* allocate(std::size_t bytes) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  ++device.statistics.allocations;
  return device.memory.allocate(bytes, current);
}

bool release(void* address) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  device.run_all();  // cudaFree waits
  return device.memory.release(address);
}

int device_of(const void* address) { return Device::instance().memory.device_of(address); }

void require_current_device(const void* address, std::size_t bytes, const std::string& what) {
  require_device(address, bytes, what);
  if (const int other = Device::instance().memory.device_of(address); other != current)
    throw Failure(what + ": memory of device " + std::to_string(other) + ", and device " + std::to_string(current) +
                  " is the current one");
}

void require_device(const void* address, std::size_t bytes, const std::string& what) {
  Device& device = Device::instance();
  if (device.memory.contains(address, bytes)) return;
  char where[160] = "not device memory";
  device.memory.describe(address, where, sizeof where);
  throw Failure(what + ": " + std::to_string(bytes) + " bytes of device memory expected, got an address that is " +
                where);
}

bool is_device(const void* address) { return Device::instance().memory.contains(address, 0); }

void* allocate_pinned(std::size_t bytes) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  ++device.statistics.allocations;
  void* address = ::operator new(bytes, std::align_val_t{256}, std::nothrow);
  if (address != nullptr) device.pinned[static_cast<const char*>(address)] = bytes;
  return address;
}

bool release_pinned(void* address) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  if (device.pinned.erase(static_cast<const char*>(address)) == 0) return false;
  device.run_all();  // cudaFreeHost waits
  ::operator delete(address, std::align_val_t{256});
  return true;
}

bool is_pinned(const void* address) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  const auto* p = static_cast<const char*>(address);
  const auto after = device.pinned.upper_bound(p);
  return after != device.pinned.begin() && p < std::prev(after)->first + std::prev(after)->second;
}

void count_library_call() { ++Device::instance().statistics.library_calls; }
void count_algorithm(std::int64_t algorithm) { Device::instance().statistics.last_algorithm = algorithm; }
void count_convolution() { ++Device::instance().statistics.convolutions; }
static std::vector<double> delays;
void set_algorithms(std::vector<double> milliseconds) { delays = std::move(milliseconds); }
const std::vector<double>& algorithms() { return delays; }
static std::atomic<double> passed{0};
void pass_time(double milliseconds) { passed = passed + milliseconds; }
double passed_time() { return passed; }
void count_descriptor() { ++Device::instance().statistics.descriptors; }
void count_bytes_to_host(std::size_t bytes) {
  Device::instance().statistics.bytes_to_host += static_cast<std::int64_t>(bytes);
}

}  // namespace cuda_on_cpu
