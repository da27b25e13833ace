// How fast the kernels of fully connected networks are: GFLOP/s, and the fraction of what multiply-adds on registers
// alone reach on one thread times the threads ("of_peak"); for kernels bound by memory, GB/s.
//
//   bench_linear --benchmark_filter=Forward --benchmark_min_time=0.2
//       (optimised, with the flags that emitted projects use)
//
// The machine's other load is in the means: compare minima of repetitions (--benchmark_repetitions=9
// --benchmark_report_aggregates_only=true).
#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/scalar_math.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/strided_copy.h"
#include "kernels/cpu/update.h"
#include "tests/kernels/rules.h"

namespace {

using namespace graven::kernels;

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// GFLOP/s of independent chains of multiply-adds that touch no memory, the best of some runs.
double register_peak() {
  static const double peak = [] {
    double best = 0;
    for (int run = 0; run < 20; ++run) {
      constexpr int kChains = kVectorRegisters * 3 / 4;
      constexpr std::int64_t kSteps = 200000;
      vec sums[kChains] = {};
      vec a = broadcast(1.0f), b = broadcast(1e-9f);
      // The compiler must not know the numbers, or that chains are equal.
      asm volatile("" : "+m"(a), "+m"(b), "+m"(sums));
      const double start = thread_seconds();
      for (std::int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 32
        for (int c = 0; c < kChains; ++c) sums[c] = fma(sums[c], a, b);
      }
      const double seconds = thread_seconds() - start;
      vec all{};
#pragma GCC unroll 32
      for (int c = 0; c < kChains; ++c) all += sums[c];
      benchmark::DoNotOptimize(sum(all));
      best = std::max(best, 2.0 * kSteps * kChains * kLanes / seconds * 1e-9);
    }
    return best;
  }();
  return peak;
}

void report(benchmark::State& state, const Threads& threads, double flops, double bytes) {
  const double runs = static_cast<double>(state.iterations());
  if (flops > 0) {
    state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9 * runs, benchmark::Counter::kIsRate);
    state.counters["of_peak"] =
        benchmark::Counter(flops * 1e-9 * runs / (register_peak() * threads.count()), benchmark::Counter::kIsRate);
  }
  if (bytes > 0) state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9 * runs, benchmark::Counter::kIsRate);
}

/// Tensors begin at a cache line, as those of emitted programs do.
template <class T>
struct CacheLines {
  using value_type = T;
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const CacheLines&) const { return true; }
};
using Floats = std::vector<float, CacheLines<float>>;

Floats tensor(std::int64_t n) {
  Floats x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000) * 1e-3f;
  return x;
}

struct relu {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return x > 0 ? x : T(0);
  }
};
struct exponential {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return math::exp(x);
  }
};

linear_config shape(const benchmark::State& state) {
  return {.m = state.range(0), .n = state.range(1), .k = state.range(2)};
}
Threads& pool(const benchmark::State& state, int argument) {
  static Threads one(1), all;
  return state.range(static_cast<std::size_t>(argument)) == 1 ? one : all;
}

void Forward(benchmark::State& state) {
  Threads& threads = pool(state, 3);
  const linear_config c = shape(state);
  const auto x = tensor(c.m * c.k), w = tensor(c.n * c.k), bias = tensor(c.n);
  Floats packed(static_cast<std::size_t>(packed_linear_weight_size(c))), y(static_cast<std::size_t>(c.m * c.n));
  pack_linear_weight(threads, c, packed.data(), w.data());
  for (auto _ : state) linear<relu>(threads, c, y.data(), x.data(), packed.data(), bias.data());
  report(state, threads, 2.0 * static_cast<double>(c.m * c.n * c.k), 0);
}
void BackwardInput(benchmark::State& state) {
  Threads& threads = pool(state, 3);
  const linear_config c = shape(state);
  const auto dy = tensor(c.m * c.n), w = tensor(c.n * c.k);
  Floats packed(static_cast<std::size_t>(packed_linear_weight_transposed_size(c))),
      dx(static_cast<std::size_t>(c.m * c.k));
  pack_linear_weight_transposed(threads, c, packed.data(), w.data());
  for (auto _ : state) linear_backward_input(threads, c, dx.data(), dy.data(), packed.data());
  report(state, threads, 2.0 * static_cast<double>(c.m * c.n * c.k), 0);
}
void BackwardWeight(benchmark::State& state) {
  Threads& threads = pool(state, 3);
  const linear_config c = shape(state);
  const auto x = tensor(c.m * c.k), dy = tensor(c.m * c.n);
  Floats dw(static_cast<std::size_t>(c.n * c.k)), db(static_cast<std::size_t>(c.n));
  Floats workspace(static_cast<std::size_t>(linear_backward_weight_workspace(c) / 4));
  for (auto _ : state) linear_backward_weight(threads, c, dw.data(), db.data(), dy.data(), x.data(), workspace.data());
  report(state, threads, 2.0 * static_cast<double>(c.m * c.n * c.k), 0);
}
void PackWeight(benchmark::State& state) {
  Threads& threads = pool(state, 3);
  const linear_config c = shape(state);
  const auto w = tensor(c.n * c.k);
  Floats packed(static_cast<std::size_t>(packed_linear_weight_size(c)));
  for (auto _ : state) pack_linear_weight(threads, c, packed.data(), w.data());
  report(state, threads, 0, 8.0 * static_cast<double>(c.n * c.k));
}
void PackTransposed(benchmark::State& state) {
  Threads& threads = pool(state, 3);
  const linear_config c = shape(state);
  const auto w = tensor(c.n * c.k);
  Floats packed(static_cast<std::size_t>(packed_linear_weight_transposed_size(c)));
  for (auto _ : state) pack_linear_weight_transposed(threads, c, packed.data(), w.data());
  report(state, threads, 0, 8.0 * static_cast<double>(c.n * c.k));
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "n", "k", "threads"});
  for (const std::int64_t threads : {1, 0}) {
    b->Args({64, 256, 784, threads});  // MLP
    b->Args({64, 10, 256, threads});
    b->Args({64, 120, 400, threads});  // LeNet
    b->Args({64, 84, 120, threads});
    b->Args({64, 10, 84, threads});
    b->Args({2000, 1, 3, threads});   // polynomial fit
    b->Args({1, 256, 784, threads});  // inference of one image
    b->Args({1024, 1024, 1024, threads});
    b->Args({3136, 64, 576, threads});
    b->Args({256, 2304, 768, threads});  // GPT-2
    b->Args({256, 768, 3072, threads});
  }
}
BENCHMARK(Forward)->Apply(shapes)->UseRealTime();
BENCHMARK(BackwardInput)->Apply(shapes)->UseRealTime();
BENCHMARK(BackwardWeight)->Apply(shapes)->UseRealTime();
BENCHMARK(PackWeight)->Apply(shapes)->UseRealTime();
BENCHMARK(PackTransposed)->Apply(shapes)->UseRealTime();

void Matmul(benchmark::State& state) {
  Threads& threads = pool(state, 4);
  const matmul_config c{.batch = state.range(0),
                        .m = state.range(1),
                        .n = state.range(2),
                        .k = state.range(3),
                        .a_batch_stride = state.range(1) * state.range(3),
                        .b_batch_stride = state.range(2) * state.range(3),
                        .transpose_a = false,
                        .transpose_b = state.range(5) != 0};
  const auto a = tensor(c.batch * c.m * c.k), b = tensor(c.batch * c.n * c.k);
  Floats y(static_cast<std::size_t>(c.batch * c.m * c.n)), workspace(static_cast<std::size_t>(matmul_workspace(c) / 4));
  for (auto _ : state) matmul(threads, c, y.data(), a.data(), b.data(), nullptr, nullptr, workspace.data());
  report(state, threads, 2.0 * static_cast<double>(c.batch * c.m * c.n * c.k), 0);
}
BENCHMARK(Matmul)
    ->ArgNames({"batch", "m", "n", "k", "threads", "transposed"})
    ->Args({96, 128, 128, 64, 1, 1})
    ->Args({96, 128, 64, 128, 1, 0})
    ->Args({1, 1000, 1000, 1000, 1, 0})
    ->Args({1, 1000, 1000, 1000, 0, 0})
    ->UseRealTime();

void Relu(benchmark::State& state) {
  Threads& threads = pool(state, 1);
  const auto x = tensor(state.range(0));
  auto y = x;
  for (auto _ : state) elementwise<relu>(threads, {state.range(0)}, y.data(), x.data());
  report(state, threads, 0, 8.0 * static_cast<double>(state.range(0)));
}
void Exp(benchmark::State& state) {
  Threads& threads = pool(state, 1);
  const auto x = tensor(state.range(0));
  auto y = x;
  for (auto _ : state) elementwise<exponential>(threads, {state.range(0)}, y.data(), x.data());
  report(state, threads, 0, 8.0 * static_cast<double>(state.range(0)));
}
void Sum(benchmark::State& state) {
  Threads& threads = pool(state, 1);
  const auto x = tensor(state.range(0));
  float y;
  for (auto _ : state) reduce_sum(threads, {1, state.range(0), 1}, &y, x.data());
  report(state, threads, 0, 4.0 * static_cast<double>(state.range(0)));
}
void Transpose(benchmark::State& state) {
  Threads& threads = pool(state, 1);
  const std::int64_t n = state.range(0) / 256;
  const auto x = tensor(n * 256);
  auto y = x;
  for (auto _ : state)
    strided_copy(threads, {.rank = 2, .shape = {256, n}, .strides = {1, 256}, .offset = 0}, y.data(), x.data());
  report(state, threads, 0, 8.0 * static_cast<double>(n * 256));
}
void Sgd(benchmark::State& state) {
  Threads& threads = pool(state, 1);
  auto p = tensor(state.range(0)), b = p;
  const auto g = p;
  float *params[] = {p.data()}, *momentum[] = {b.data()};
  const float* grads[] = {g.data()};
  const std::int64_t size = state.range(0);
  for (auto _ : state)
    update_parameters<test::momentum_rule>(threads, test::momentum_config{.momentum = 0.9, .weight_decay = 0}, 1,
                                           params, grads, &size, 1e-9, 2, momentum);
  report(state, threads, 0, 20.0 * static_cast<double>(size));
}
void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"n", "threads"});
  for (const std::int64_t threads : {1, 0})
    for (const std::int64_t n : {2000, 16384, 200704, 4194304}) b->Args({n, threads});
}
BENCHMARK(Relu)->Apply(sizes)->UseRealTime();
BENCHMARK(Exp)->Apply(sizes)->UseRealTime();
BENCHMARK(Sum)->Apply(sizes)->UseRealTime();
BENCHMARK(Transpose)->Apply(sizes)->UseRealTime();
BENCHMARK(Sgd)->Apply(sizes)->UseRealTime();

void Loss(benchmark::State& state) {
  Threads& threads = pool(state, 2);
  const cross_entropy_config c{state.range(0), state.range(1), 1};
  const auto logits = tensor(c.rows * c.classes);
  auto p = logits;
  const std::vector<std::int64_t> labels(static_cast<std::size_t>(c.rows), 1);
  float loss, one = 1;
  for (auto _ : state) {
    cross_entropy(threads, c, &loss, p.data(), logits.data(), labels.data());
    cross_entropy_backward(threads, c, p.data(), &one, p.data(), labels.data());
  }
  report(state, threads, 0, 16.0 * static_cast<double>(c.rows * c.classes));
}
BENCHMARK(Loss)
    ->ArgNames({"rows", "classes", "threads"})
    ->Args({64, 10, 1})
    ->Args({64, 1000, 1})
    ->Args({256, 50257, 0})
    ->UseRealTime();

void EmptyRegion(benchmark::State& state) {
  Threads threads;
  for (auto _ : state) threads.run(threads.count(), [](std::int64_t) {});
}
BENCHMARK(EmptyRegion)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("multiply-adds on registers, one thread", std::to_string(register_peak()) + " GFLOP/s");
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
