// Convolutions of LeNet, MobileNetV2 and ResNet: GFLOP/s and the fraction of what the processor's multiply-adds could
// do, one thread. Winograd's form is credited with the operations of the direct one. Blocks of MobileNetV2: as three
// convolutions, and in one pass.
//
//   bench_conv2d --benchmark_filter=lenet --benchmark_repetitions=10 --benchmark_report_aggregates_only=true
//
// Other load on the machine can only make figures lower: read the best of several repetitions.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/conv2d.h"
#include "kernels/cpu/conv2d_winograd.h"
#include "kernels/cpu/inverted_residual.h"

namespace graven::kernels {
namespace {

struct relu {
  static constexpr int inputs = 1;
  static constexpr float limits[] = {0, __builtin_inff()};
  template <class T>
  static T apply(T x) {
    return x > 0 ? x : T(0);
  }
};

struct Shape {
  const char* name;
  std::int64_t batch, size, in, out, kernel, stride, padding, groups;

  conv2d_config config() const {
    const std::int64_t result = conv2d_out_size(size, kernel, stride, padding, 1);
    return {.batch = batch,
            .in_height = size,
            .in_width = size,
            .in_channels = in,
            .out_height = result,
            .out_width = result,
            .out_channels = out,
            .kernel_height = kernel,
            .kernel_width = kernel,
            .stride_height = stride,
            .stride_width = stride,
            .padding_height = padding,
            .padding_width = padding,
            .groups = groups};
  }
};

constexpr Shape kShapes[] = {
    // name                         n   size   in   out  k  s  p  groups
    {"lenet_first", 64, 28, 1, 6, 5, 1, 2, 1},
    {"lenet_second", 64, 14, 6, 16, 5, 1, 0, 1},
    {"resnet_first_7x7/2", 1, 224, 3, 64, 7, 2, 3, 1},
    {"resnet_3x3_56", 1, 56, 64, 64, 3, 1, 1, 1},
    {"resnet_3x3_28", 1, 28, 128, 128, 3, 1, 1, 1},
    {"resnet_3x3_14", 1, 14, 256, 256, 3, 1, 1, 1},
    {"resnet_3x3_7", 1, 7, 512, 512, 3, 1, 1, 1},
    {"resnet_3x3/2_56", 1, 56, 128, 128, 3, 2, 1, 1},
    {"resnet_3x3/2_14", 1, 14, 512, 512, 3, 2, 1, 1},
    {"resnet_1x1_56", 1, 56, 64, 256, 1, 1, 0, 1},
    {"resnet_1x1_14", 1, 14, 1024, 256, 1, 1, 0, 1},
    {"resnet_1x1_7", 1, 7, 512, 2048, 1, 1, 0, 1},
    {"resnet_1x1/2_56", 1, 56, 256, 512, 1, 2, 0, 1},
    {"mobilenet_first_3x3/2", 1, 224, 3, 32, 3, 2, 1, 1},
    {"mobilenet_1x1_112_expand", 1, 112, 16, 96, 1, 1, 0, 1},
    {"mobilenet_1x1_56_project", 1, 56, 96, 24, 1, 1, 0, 1},
    {"mobilenet_1x1_56_expand", 1, 56, 24, 144, 1, 1, 0, 1},
    {"mobilenet_1x1_14_expand", 1, 14, 64, 384, 1, 1, 0, 1},
    {"mobilenet_1x1_7_expand", 1, 7, 160, 960, 1, 1, 0, 1},
    {"mobilenet_1x1_7_last", 1, 7, 320, 1280, 1, 1, 0, 1},
    {"mobilenet_depthwise_112", 1, 112, 32, 32, 3, 1, 1, 32},
    {"mobilenet_depthwise/2_112", 1, 112, 96, 96, 3, 2, 1, 96},
    {"mobilenet_depthwise_56", 1, 56, 144, 144, 3, 1, 1, 144},
    {"mobilenet_depthwise_14", 1, 14, 384, 384, 3, 1, 1, 384},
    {"mobilenet_depthwise_7", 1, 7, 960, 960, 3, 1, 1, 960},
    {"cifar_3x3_32_batch64", 64, 32, 64, 64, 3, 1, 1, 1},
    {"cifar_depthwise_32_batch64", 64, 32, 96, 96, 3, 1, 1, 96},
};

/// GFLOP/s of multiply-adds that never leave the registers: the best of some milliseconds.
double peak_gflops() {
  constexpr int kSums = 12;  // latency times throughput is at most 10 on today's processors
  double best = 0;
  for (int round = 0; round < 20; ++round) {
    vec sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = broadcast(static_cast<float>(i));
    vec a = broadcast(0.9f), b = broadcast(0.1f);
    asm volatile("" : "+m"(a), "+m"(b));  // unknown to the compiler
    const vec factor = a, term = b;
    constexpr int kSteps = 100000;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
      for (int s = 0; s < kSums; ++s) sums[s] = fma(sums[s], factor, term);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    vec total{};
    for (const vec& s : sums) total += s;
    benchmark::DoNotOptimize(sum(total));
    const double gflops = 2.0 * kSums * kLanes * kSteps / seconds * 1e-9;
    best = gflops > best ? gflops : best;
  }
  return best;
}

enum class Kernel : std::uint8_t { forward, winograd, backward_input, backward_weight, pack, pack_backward };

void run(benchmark::State& state, const Shape& shape, Kernel kernel, double peak) {
  const conv2d_config s = shape.config();
  Threads threads(1);
  const auto floats = [](std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n), 0.01f); };
  std::vector<float> x = floats(s.batch * s.in_height * s.in_width * s.in_channels), dx = x;
  std::vector<float> y = floats(s.batch * s.out_height * s.out_width * s.out_channels);
  std::vector<float> w = floats(s.out_channels * (s.in_channels / s.groups) * s.kernel_height * s.kernel_width), dw = w;
  std::vector<float> bias = floats(s.out_channels), db = bias, packed = floats(conv2d_packed_elements(s)),
                     packed_backward = floats(conv2d_packed_backward_elements(s)),
                     workspace = floats(conv2d_backward_weight_workspace_bytes(s) / 4);
  pack_conv2d_weight(threads, s, packed.data(), w.data());
  pack_conv2d_weight_backward(threads, s, packed_backward.data(), w.data());
  const conv2d_winograd_config tiles{.batch = s.batch,
                                     .in_height = s.in_height,
                                     .in_width = s.in_width,
                                     .in_channels = s.in_channels,
                                     .out_height = s.out_height,
                                     .out_width = s.out_width,
                                     .out_channels = s.out_channels,
                                     .padding_height = s.padding_height,
                                     .padding_width = s.padding_width,
                                     .tile = conv2d_winograd_tile(s)};
  if (kernel == Kernel::winograd) {
    packed = floats(conv2d_winograd_packed_elements(tiles)),
    workspace = floats(conv2d_winograd_workspace_bytes(tiles) / 4);
    pack_conv2d_winograd_weight(threads, tiles, packed.data(), w.data());
  }
  for (auto _ : state) {
    switch (kernel) {
      case Kernel::forward:
        conv2d<relu>(threads, s, y.data(), x.data(), packed.data(), bias.data());
        break;
      case Kernel::winograd:
        conv2d_winograd<relu>(threads, tiles, y.data(), x.data(), packed.data(), bias.data(), nullptr,
                              workspace.data());
        break;
      case Kernel::backward_input:
        conv2d_backward_input(threads, s, dx.data(), y.data(), packed_backward.data());
        break;
      case Kernel::backward_weight:
        conv2d_backward_weight(threads, s, dw.data(), db.data(), y.data(), x.data(), workspace.data());
        break;
      case Kernel::pack:
        pack_conv2d_weight(threads, s, packed.data(), w.data());
        break;
      case Kernel::pack_backward:
        pack_conv2d_weight_backward(threads, s, packed_backward.data(), w.data());
        break;
    }
    benchmark::ClobberMemory();
  }
  if (kernel == Kernel::pack || kernel == Kernel::pack_backward)
    return state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(w.size()) * 8);
  const double flops = 2.0 * static_cast<double>(s.out_height * s.out_width * s.batch) * static_cast<double>(w.size());
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(flops * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] = Counter(flops * 1e-9 / peak, Counter::kIsIterationInvariantRate);
}

struct Block {
  const char* name;
  std::int64_t size, in, wide, out, stride;

  inverted_residual_config config() const {
    const std::int64_t result = conv2d_out_size(size, 3, stride, 1, 1);
    return {.batch = 1,
            .in_height = size,
            .in_width = size,
            .in_channels = in,
            .wide_channels = wide,
            .out_height = result,
            .out_width = result,
            .out_channels = out,
            .kernel_height = 3,
            .kernel_width = 3,
            .stride_height = stride,
            .stride_width = stride,
            .padding_height = 1,
            .padding_width = 1};
  }
};

constexpr Block kBlocks[] = {
    // name   size  in  wide  out  s
    {"112/2", 112, 16, 96, 24, 2}, {"56", 56, 24, 144, 24, 1},   {"56/2", 56, 24, 144, 32, 2},
    {"28", 28, 32, 192, 32, 1},    {"28/2", 28, 32, 192, 64, 2}, {"14", 14, 64, 384, 64, 1},
};

void run_block(benchmark::State& state, const Block& block, bool in_one, double peak) {
  const inverted_residual_config s = block.config();
  const conv2d_config expand = inverted_residual_expand(s), depthwise = inverted_residual_depthwise(s),
                      project = inverted_residual_project(s);
  Threads threads(1);
  const auto floats = [](std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n), 0.01f); };
  const std::vector<float> x = floats(s.in_height * s.in_width * s.in_channels), bias = floats(s.wide_channels);
  const std::vector<float> first = floats(conv2d_packed_elements(expand)),
                           second = floats(conv2d_packed_elements(depthwise)),
                           third = floats(conv2d_packed_elements(project));
  std::vector<float> wide = floats(s.in_height * s.in_width * s.wide_channels),
                     deep = floats(s.out_height * s.out_width * s.wide_channels),
                     y = floats(s.out_height * s.out_width * s.out_channels);
  for (auto _ : state) {
    if (in_one) {
      inverted_residual<relu, relu>(threads, s, y.data(), x.data(), first.data(), bias.data(), second.data(),
                                    bias.data(), third.data(), bias.data());
    } else {
      conv2d<relu>(threads, expand, wide.data(), x.data(), first.data(), bias.data());
      conv2d<relu>(threads, depthwise, deep.data(), wide.data(), second.data(), bias.data());
      conv2d(threads, project, y.data(), deep.data(), third.data(), bias.data());
    }
    benchmark::ClobberMemory();
  }
  const double flops =
      2.0 * static_cast<double>(s.wide_channels) *
      static_cast<double>(s.in_height * s.in_width * s.in_channels + s.out_height * s.out_width * (9 + s.out_channels));
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(flops * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] = Counter(flops * 1e-9 / peak, Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace graven::kernels

int main(int argc, char** argv) {
  using namespace graven::kernels;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  const double peak = peak_gflops();
  benchmark::AddCustomContext("peak_gflops_one_thread", std::to_string(peak));
  constexpr struct {
    const char* name;
    Kernel kernel;
  } kKernels[] = {{"forward", Kernel::forward},
                  {"winograd", Kernel::winograd},
                  {"backward_input", Kernel::backward_input},
                  {"backward_weight", Kernel::backward_weight},
                  {"pack", Kernel::pack},
                  {"pack_backward", Kernel::pack_backward}};
  for (const auto& kernel : kKernels)
    for (const Shape& shape : kShapes) {
      if (kernel.kernel == Kernel::winograd && conv2d_winograd_tile(shape.config()) == 0) continue;
      benchmark::RegisterBenchmark((std::string(kernel.name) + "/" + shape.name).c_str(), [&shape, k = kernel.kernel,
                                                                                           peak](
                                                                                              benchmark::State& state) {
        run(state, shape, k, peak);
      })->Unit(benchmark::kMicrosecond);
    }
  for (const Block& block : kBlocks)
    for (const bool in_one : {false, true})
      benchmark::RegisterBenchmark(
          (std::string(in_one ? "block_in_one/" : "block_in_three/") + block.name).c_str(),
          [&block, in_one, peak](benchmark::State& state) { run_block(state, block, in_one, peak); })
          ->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
