// What the benchmarks of CUDA kernels share: cases, what each must move, and the card's own limits.
//
//   int main(int argc, char** argv) {
//     return timing::run(argc, argv, [](timing::Table& table) {
//       table.add("softmax [8192,1024]", [](timing::Tensors& tensors) {
//         const float* x = tensors.in(8192 * 1024);   // counted as read once
//         float* y = tensors.out(8192 * 1024);        // and written once
//         return [=](CudaContext& context) { softmax(context, {.outer = 8192, .size = 1024}, y, x); };
//       });
//     });
//   }
//
// A program's options: --filter TEXT (cases whose names contain it), --json FILE (a line a case is appended),
// --check (one call a case, on small shapes, without timing: every element of the outputs must have been written, and
// not with NaN). --check runs on tests/cuda_on_cpu as well.
//
// First measured are what the others are compared with: how many bytes a second a large copy within the device reads
// and writes, how many operations a second a float product 4096 x 4096 x 4096 of cuBLASLt does, and what a kernel with
// next to nothing to do takes. Calls are recorded into a CUDA graph and timed by events around its launches, one graph
// after the other without a pause. The calls of a graph take turns with several sets of tensors, so that what a call
// reads has left the L2 cache since its last turn. The limit of a case is the longer of the times that its bytes and
// its floating-point operations take at the card's best; its share is that limit divided by its median time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/dtype.h"
#include "kernels/cuda/context.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/matmul.cuh"

namespace graven::kernels::timing {

/// y[i]: uniform in [low, low + range), a function of the seed and of i alone.
template <class T>
__global__ void random_numbers_kernel(std::int64_t n, std::uint64_t seed, compute_t<T> low, compute_t<T> range, T* y) {
  using C = compute_t<T>;
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    // splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)
    std::uint64_t bits = seed + (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    if constexpr (std::is_floating_point_v<C>)
      y[i] = static_cast<T>(low + range * (static_cast<C>(bits >> 40) * C(0x1p-24)));
    else
      y[i] = static_cast<T>(low + static_cast<T>((bits >> 32) * static_cast<std::uint64_t>(range) >> 32));
  }
}

using Call = std::function<void(CudaContext&)>;

/// The tensors of one call, and what it must move and compute: each input is read once, each output written once.
class Tensors {
 public:
  Tensors(CudaContext& context, std::uint64_t seed) : context_(context), seed_(seed << 32) {}

  /// Random numbers in [low, high), whole ones of integers.
  template <class T = float>
  const T* in(std::int64_t n, double low = -1, double high = 1) {
    return filled<T>(n, low, high, 1);
  }
  template <class T = float>
  T* out(std::int64_t n) {
    T* const data = allocated<T>(n, 1);
    note_output(data, n);
    GRAVEN_CUDA(cudaMemsetAsync(data, 0xff, static_cast<std::size_t>(n) * sizeof(T), context_.stream()));
    return data;
  }
  /// What is read and written.
  template <class T = float>
  T* inout(std::int64_t n, double low = -1, double high = 1) {
    T* const data = filled<T>(n, low, high, 2);
    note_output(data, n);
    return data;
  }
  /// Bytes of the inputs that the call need not read.
  void leave_out(std::int64_t bytes) { bytes_ -= bytes; }
  /// Floating-point operations of a product or a convolution.
  void computes(std::int64_t flops) { flops_ += flops; }

  std::int64_t bytes() const { return bytes_; }
  std::int64_t flops() const { return flops_; }

  /// The first output that has an element that is NaN or was not written, or "".
  std::string unwritten() const {
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      if (!outputs_[i]()) return "output " + std::to_string(i) + " has an element that is NaN or was not written";
    return "";
  }

 private:
  template <class T>
  T* allocated(std::int64_t n, int times) {
    memory_.emplace_back(static_cast<std::size_t>(n) * sizeof(T));
    bytes_ += times * n * static_cast<std::int64_t>(sizeof(T));
    return static_cast<T*>(memory_.back().data());
  }
  template <class T>
  T* filled(std::int64_t n, double low, double high, int times) {
    T* const data = allocated<T>(n, times);
    launch(context_, "random_numbers", &random_numbers_kernel<T>, launch_shape(n), n, seed_ + memory_.size(),
           static_cast<compute_t<T>>(low), static_cast<compute_t<T>>(high - low), data);
    return data;
  }
  template <class T>
  void note_output(const T* data, std::int64_t n) {
    outputs_.emplace_back([this, data, n] {
      std::vector<T> values(static_cast<std::size_t>(n));
      GRAVEN_CUDA(
          cudaMemcpyAsync(values.data(), data, values.size() * sizeof(T), cudaMemcpyDeviceToHost, context_.stream()));
      context_.synchronize();
      return std::all_of(values.begin(), values.end(), [](T value) {
        if constexpr (std::is_floating_point_v<compute_t<T>>)
          return !std::isnan(static_cast<compute_t<T>>(value));
        else
          return value != static_cast<T>(-1);
      });
    });
  }

  CudaContext& context_;
  std::uint64_t seed_;
  std::vector<DeviceBuffer> memory_;
  std::vector<std::function<bool()>> outputs_;
  std::int64_t bytes_ = 0, flops_ = 0;
};

#ifndef CUDA_ON_CPU

/// Calls recorded into a CUDA graph.
class Graph {
 public:
  Graph(CudaContext& context, const std::vector<Call>& calls, std::int64_t count) : context_(context) {
    GRAVEN_CUDA(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal));
    for (std::int64_t i = 0; i < count; ++i) calls[static_cast<std::size_t>(i) % calls.size()](context);
    cudaGraph_t graph = nullptr;
    GRAVEN_CUDA(cudaStreamEndCapture(context.stream(), &graph));
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    (void)cudaGraphDestroy(graph);
    GRAVEN_CUDA(made);
  }
  ~Graph() { (void)cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void start() const { GRAVEN_CUDA(cudaGraphLaunch(graph_, context_.stream())); }

 private:
  CudaContext& context_;
  cudaGraphExec_t graph_ = nullptr;
};

class Event {
 public:
  Event() { GRAVEN_CUDA(cudaEventCreate(&event_)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(const CudaContext& context) const { GRAVEN_CUDA(cudaEventRecord(event_, context.stream())); }
  /// From the event to a later one, which is waited for.
  double microseconds_to(const Event& later) const {
    GRAVEN_CUDA(cudaEventSynchronize(later.event_));
    float milliseconds = 0;
    GRAVEN_CUDA(cudaEventElapsedTime(&milliseconds, event_, later.event_));
    return 1000.0 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// The median time of a call, in microseconds: `calls` take turns.
inline double median_microseconds(CudaContext& context, const std::vector<Call>& calls) {
  for (const Call& call : calls) context.rehearse([&] { call(context); });  // so that recording allocates nothing
  calls[0](context);
  constexpr int tries = 5;
  const Event before, after;
  before.record(context);
  for (int i = 0; i < tries; ++i) calls[0](context);
  after.record(context);
  const double first = std::max(before.microseconds_to(after) / tries, 1.0);
  // A graph lasts a millisecond or so: the gap between two of them counts for little beside that.
  const auto turns = static_cast<std::int64_t>(calls.size());
  std::int64_t count =
      first > 4000 ? 4 : std::clamp(static_cast<std::int64_t>(1000 / first), INT64_C(20), INT64_C(400));
  count = (count + turns - 1) / turns * turns;
  const Graph graph(context, calls, count);
  graph.start();
  const double expected = first * static_cast<double>(count);
  const auto repeats = static_cast<std::size_t>(std::clamp(1e5 / expected, 5.0, 25.0));
  std::vector<std::unique_ptr<Event>> events;
  for (std::size_t i = 0; i <= repeats; ++i) events.push_back(std::make_unique<Event>());
  for (std::size_t i = 0; i < repeats; ++i) {
    events[i]->record(context);
    graph.start();
  }
  events[repeats]->record(context);
  std::vector<double> times;
  for (std::size_t i = 0; i < repeats; ++i)
    times.push_back(events[i]->microseconds_to(*events[i + 1]) / static_cast<double>(count));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

inline std::int64_t l2_cache_bytes(const CudaContext& context) {
  int bytes = 0;
  GRAVEN_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, context.device()));
  return bytes;
}

/// What the card does at its best.
struct Limits {
  double bytes_per_microsecond, flops_per_microsecond;
  double launch_microseconds;  ///< a kernel that has next to nothing to do
};

inline Limits measured_limits(CudaContext& context) {
  Limits limits{};
  {
    constexpr std::int64_t size = 4096;
    Tensors tensors(context, 1);
    const float *a = tensors.in(size * size), *b = tensors.in(size * size);
    float* c = tensors.out(size * size);
    double best = HUGE_VAL;
    for (const bool transpose_b : {false, true}) {
      const matmul_config config{.m = size, .n = size, .k = size, .transpose_b = transpose_b};
      best = std::min(
          best, median_microseconds(context, {[&](CudaContext& recording) { matmul(recording, config, c, a, b); }}));
    }
    limits.flops_per_microsecond = 2.0 * size * size * size / best;
  }
  {
    std::size_t free = 0, total = 0;
    GRAVEN_CUDA(cudaMemGetInfo(&free, &total));
    const auto bytes = static_cast<std::int64_t>(std::min(std::size_t{1} << 30, free / 4));
    Tensors tensors(context, 2);
    const float* from = tensors.in(bytes / 4);
    float* to = tensors.out(bytes / 4);
    const auto copy = [&](CudaContext& recording) {
      copy_on_device(recording, to, from, static_cast<std::size_t>(bytes / 4 * 4));
    };
    // The library's copy is not the fastest on every card.
    const auto by_kernel = [&](CudaContext& recording) {
      elementwise<identity>(recording, elementwise_config{.n = bytes / 4}, to, from);
    };
    limits.bytes_per_microsecond =
        static_cast<double>(tensors.bytes()) /
        std::min(median_microseconds(context, {copy}), median_microseconds(context, {by_kernel}));
  }
  Tensors tensors(context, 3);
  float* one = tensors.out(1);
  limits.launch_microseconds = median_microseconds(
      context, {[&](CudaContext& recording) { fill(recording, fill_config{.n = 1, .value = 0}, one); }});
  return limits;
}

#endif  // CUDA_ON_CPU

struct Case {
  std::string name;
  std::function<Call(Tensors&)> make;
};

/// The cases of a program.
class Table {
 public:
  explicit Table(bool check) : check_(check) {}
  /// The size of a case, or that for --check.
  std::int64_t size(std::int64_t full, std::int64_t small) const { return check_ ? small : full; }
  /// `make` makes the tensors of one call, and the call.
  void add(std::string name, std::function<Call(Tensors&)> make) {
    cases_.push_back({std::move(name), std::move(make)});
  }
  const std::vector<Case>& cases() const { return cases_; }

 private:
  bool check_;
  std::vector<Case> cases_;
};

/// "name [8192,1024]"
inline std::string named(const std::string& name, std::initializer_list<std::int64_t> shape) {
  std::string text = name + " [";
  for (const std::int64_t size : shape) {
    if (text.back() != '[') text += ',';
    text += std::to_string(size);
  }
  return text + "]";
}

struct Options {
  std::string filter, json;
  bool check = false;
};

inline Options parsed(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--check") {
      options.check = true;
    } else if ((option == "--filter" || option == "--json") && i + 1 < argc) {
      (option == "--filter" ? options.filter : options.json) = argv[++i];
    } else {
      throw std::invalid_argument("unknown option " + option + "; options: [--filter TEXT] [--json FILE] [--check]");
    }
  }
  return options;
}

/// One call of each case. How many left something unwritten.
inline int check(CudaContext& context, const std::vector<Case>& cases) {
  int failed = 0;
  for (const Case& each : cases) {
    Tensors tensors(context, 1);
    const Call call = each.make(tensors);
    context.rehearse([&] { call(context); });
    call(context);
    context.synchronize();
    if (const std::string found = tensors.unwritten(); !found.empty()) {
      std::printf("%s: %s\n", each.name.c_str(), found.c_str());
      ++failed;
    }
  }
  std::printf("%zu cases ran, %d failed\n", cases.size(), failed);
  return failed;
}

#ifndef CUDA_ON_CPU

inline void measure(CudaContext& context, const std::vector<Case>& cases, const std::string& json) {
  std::ofstream lines;
  if (!json.empty()) {
    lines.open(json, std::ios::app);
    if (!lines) throw std::runtime_error("cannot write " + json);
  }
  cudaDeviceProp properties{};
  GRAVEN_CUDA(cudaGetDeviceProperties(&properties, context.device()));
  const std::int64_t cache = l2_cache_bytes(context);
  const Limits limits = measured_limits(context);
  std::printf("%s: a copy moves %.4g GB/s, a product does %.4g GFLOP/s, a launch takes %.2f us; %.3g MB of L2 cache\n",
              properties.name, limits.bytes_per_microsecond * 1e-3, limits.flops_per_microsecond * 1e-3,
              limits.launch_microseconds, static_cast<double>(cache) * 1e-6);
  std::size_t width = 4;
  for (const Case& each : cases) width = std::max(width, each.name.size());
  const int column = static_cast<int>(width);
  std::printf("%-*s %10s %9s %10s %10s %8s\n", column, "case", "MB", "GFLOP", "us", "limit us", "share");
  double worst = HUGE_VAL;
  std::string worst_name;
  for (const Case& each : cases) {
    double bytes = 0, flops = 0, median = 0;
    try {
      std::vector<std::unique_ptr<Tensors>> sets;
      std::vector<Call> calls;
      const auto make = [&] {
        sets.push_back(std::make_unique<Tensors>(context, sets.size() + 1));
        calls.push_back(each.make(*sets.back()));
      };
      make();
      const std::int64_t size = std::max(sets[0]->bytes(), INT64_C(1));
      bytes = static_cast<double>(sets[0]->bytes());
      flops = static_cast<double>(sets[0]->flops());
      // Between two turns of a set, the others move four times what the cache holds, or are 63. A call that moves eight
      // times as much has driven its own first bytes out.
      if (size < 8 * cache)
        for (std::int64_t more = std::min(4 * cache / size + 1, INT64_C(63)); more > 0; --more) make();
      median = median_microseconds(context, calls);
    } catch (const CudaOutOfMemory&) {
      std::printf("%-*s left out: larger than the device's memory\n", column, each.name.c_str());
      continue;
    }
    const double by_bytes = bytes / limits.bytes_per_microsecond, by_flops = flops / limits.flops_per_microsecond;
    const double limit = std::max(by_bytes, by_flops), share = limit / median;
    const char* const of = by_flops > by_bytes ? "flops" : "bytes";
    std::printf("%-*s %10.2f %9.3f %10.2f %10.2f %6.1f %% of %s\n", column, each.name.c_str(), bytes * 1e-6,
                flops * 1e-9, median, limit, 100 * share, of);
    std::fflush(stdout);
    if (lines.is_open()) {
      char line[1024];
      std::snprintf(line, sizeof line,
                    "{\"device\": \"%s\", \"case\": \"%s\", \"bytes\": %.0f, \"flops\": %.0f, \"median_us\": %.4g, "
                    "\"limit_us\": %.4g, \"share\": %.4g, \"limited_by\": \"%s\", \"bytes_per_second\": %.5g, "
                    "\"flops_per_second\": %.5g, \"launch_us\": %.4g}\n",
                    properties.name, each.name.c_str(), bytes, flops, median, limit, share, of,
                    limits.bytes_per_microsecond * 1e6, limits.flops_per_microsecond * 1e6, limits.launch_microseconds);
      lines << line << std::flush;
    }
    if (share < worst) {
      worst = share;
      worst_name = each.name;
    }
  }
  if (!worst_name.empty()) std::printf("worst: %.1f %%, %s\n", 100 * worst, worst_name.c_str());
}

#endif  // CUDA_ON_CPU

/// The program: `add_cases` fills the table. Exit status 1 after an error, of CUDA or of the options.
inline int run(int argc, char** argv, const std::function<void(Table&)>& add_cases) {
  try {
    const Options options = parsed(argc, argv);
    Table table(options.check);
    add_cases(table);
    std::vector<Case> cases;
    for (const Case& each : table.cases())
      if (each.name.find(options.filter) != std::string::npos) cases.push_back(each);
    CudaContext context;
    if (options.check) return check(context, cases) == 0 ? 0 : 1;
#ifdef CUDA_ON_CPU
    throw std::invalid_argument("without a GPU there is --check alone");
#else
    measure(context, cases, options.json);
    return 0;
#endif
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace graven::kernels::timing
