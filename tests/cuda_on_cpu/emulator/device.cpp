// The device: its memory, its one queue of work, the faults it reports.
#include "cuda_on_cpu/device.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>

#include "memory.h"
#include "scheduler.h"
#include "shared_memory.h"

extern cuda_on_cpu::Index threadIdx, blockDim;

namespace cuda_on_cpu {
namespace {

struct Work {
  const char* name;
  std::function<void()> run;
};

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
  Statistics statistics;
  std::deque<Work> queue;
  std::recursive_mutex mutex;
  char fault_message[256] = {};
  struct sigaction previous_segv{};

  void run_queue();

 private:
  Device();
};

#if defined(__x86_64__) || defined(__aarch64__)
[[noreturn]] void land_after_fault() {
  Device& device = Device::instance();
  device.scheduler.leave_failed(device.fault_message);
}
#endif

/// A segmentation fault in a kernel fails the launch; one by the host in device memory is named before the program dies.
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
      std::snprintf(device.fault_message, sizeof device.fault_message, "illegal address %p: not device memory", info->si_addr);
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
  const int length =
      known ? std::snprintf(line, sizeof line, "cuda_on_cpu: the host used device memory: %s\n", where)
            : std::snprintf(line, sizeof line, "cuda_on_cpu: %s\n", device.fault_message[0] != 0 ? device.fault_message : "segmentation fault");
  if (length > 0 && write(STDERR_FILENO, line, static_cast<std::size_t>(length)) < 0) {
  }
  if (known) _exit(139);
  sigaction(signal, &device.previous_segv, nullptr);  // not ours: the fault comes again, and is handled as it would have been
}

Device::Device() {
  if (const char* text = std::getenv("CUDA_ON_CPU_ORDER"); text != nullptr) {
    const std::string name = text;
    if (name == "reverse")
      order.kind = Order::Kind::reverse;
    else if (name.starts_with("random:"))
      order = {Order::Kind::random, std::strtoull(name.c_str() + 7, nullptr, 10)};
    else if (name != "forward")
      throw Failure("CUDA_ON_CPU_ORDER is '" + name + "'; it can be forward, reverse or random:SEED");
  }
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

void Device::run_queue() {
  if (queue.empty()) return;
  memory.open();
  try {
    while (!queue.empty()) {
      Work work = std::move(queue.front());
      queue.pop_front();
      work.run();
    }
  } catch (...) {
    queue.clear();  // after a fault nothing more runs
    try {
      memory.close();
    } catch (const Failure&) {  // the first fault is the one to report
    }
    throw;
  }
  memory.close();
}

void require_kernel(const char* name) {
  if (!Device::instance().scheduler.running()) throw Failure(std::string(name) + " was called by the host");
}

}  // namespace

std::vector<Order> orders() {
  return {{Order::Kind::forward, 0}, {Order::Kind::reverse, 0}, {Order::Kind::random, 1}, {Order::Kind::random, 2}, {Order::Kind::random, 3}};
}

std::string to_string(const Order& order) {
  if (order.kind == Order::Kind::forward) return "forward";
  return order.kind == Order::Kind::reverse ? "reverse" : "random:" + std::to_string(order.seed);
}

void set_order(const Order& order) { Device::instance().order = order; }

Statistics statistics() {
  Statistics result = Device::instance().statistics;
  result.bytes_allocated = static_cast<std::int64_t>(Device::instance().memory.allocated());
  return result;
}

void reset_statistics() { Device::instance().statistics = {}; }

int block_barrier(BlockVote vote, int predicate, const char* name, const Site& where) {
  require_kernel(name);
  return Device::instance().scheduler.block_barrier(vote, predicate, name, where);
}

std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value, int source, const char* name, const Site& where) {
  require_kernel(name);
  return Device::instance().scheduler.warp_operation(operation, mask, value, source, name, where);
}

unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

void check_alignment(const void* address, std::size_t alignment, const char* type) {
  auto value = reinterpret_cast<std::uintptr_t>(address);
  asm("" : "+r"(value));  // a compiler may take a pointer's type for a promise of its alignment
  if (value % alignment == 0) return;
  Device& device = Device::instance();
  char text[160];
  std::snprintf(text, sizeof text, "misaligned address: a %s at %zu bytes past a multiple of %zu", type, static_cast<std::size_t>(value % alignment),
                alignment);
  throw Failure(text + (device.scheduler.running() ? "\n  in " + device.scheduler.place() : std::string()));
}

void enqueue_launch(Launch launch) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  if (device.scheduler.running()) throw Failure("a kernel launches a kernel: that is not emulated");
  if (!device.symbols) device.symbols.emplace();
  const std::string name = device.symbols->function_name(launch.kernel);
  for (std::size_t i = 0; i < launch.pointer_arguments.size(); ++i)
    if (launch.pointer_arguments[i] != nullptr && !device.memory.contains(launch.pointer_arguments[i], 0))
      throw Failure("pointer argument " + std::to_string(i) + " (of the pointers alone, from 0) of kernel " + name + " is not device memory");
  enqueue("kernel", [&device, name, launch = std::move(launch)] {
    device.scheduler.run(launch, name, device.order, [&device] { device.symbols->poison_shared(); }, device.statistics);
  });
}

void enqueue(const char* name, std::function<void()> work) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  device.queue.push_back({name, std::move(work)});
}

void synchronize() {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  device.run_queue();
}

void* allocate(std::size_t bytes) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  return device.memory.allocate(bytes);
}

bool release(void* address) {
  Device& device = Device::instance();
  const std::lock_guard lock(device.mutex);
  device.run_queue();  // cudaFree waits
  return device.memory.release(address);
}

void require_device(const void* address, std::size_t bytes, const std::string& what) {
  Device& device = Device::instance();
  if (device.memory.contains(address, bytes)) return;
  char where[160] = "not device memory";
  device.memory.describe(address, where, sizeof where);
  throw Failure(what + ": " + std::to_string(bytes) + " bytes of device memory expected, got an address that is " + where);
}

bool is_device(const void* address) { return Device::instance().memory.contains(address, 0); }

void count_library_call() { ++Device::instance().statistics.library_calls; }

}  // namespace cuda_on_cpu
