// What the tests of CUDA kernels share. The same text runs on the emulated device, under every order of threads and
// blocks, and, compiled by nvcc, on a real one:
//
//   const auto y = everywhere<float>([&](CudaContext& context, Outputs& out) {
//     relu(context, ..., out.make<float>(n), in(x));
//   });
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/context.cuh"
#include "tests/call.h"

namespace graven::kernels::testing_on_device {

/// Device memory with a copy of a host vector, `offset` elements into its allocation so that alignment can be spoilt.
template <class T>
class OnDevice {
 public:
  OnDevice(std::size_t n, std::size_t offset = 0) : n_(n), offset_(offset) {
    if (n > 0) GRAVEN_CUDA(cudaMalloc(&base_, (n + offset) * sizeof(T)));
  }
  explicit OnDevice(const std::vector<T>& values, std::size_t offset = 0) : OnDevice(values.size(), offset) {
    const std::vector<char> bytes = pack(values);
    if (n_ > 0) GRAVEN_CUDA(cudaMemcpy(get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    GRAVEN_CUDA(cudaDeviceSynchronize());  // no context's stream waits for the default one
  }
  ~OnDevice() {
    if (base_ != nullptr) (void)cudaFree(base_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* get() const { return base_ + offset_; }
  std::vector<T> host() const {
    std::vector<char> bytes(n_ * sizeof(T));
    GRAVEN_CUDA(cudaDeviceSynchronize());
    if (n_ > 0) GRAVEN_CUDA(cudaMemcpy(bytes.data(), get(), bytes.size(), cudaMemcpyDeviceToHost));
    std::vector<T> values(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = value;
    }
    return values;
  }

 private:
  static std::vector<char> pack(const std::vector<T>& values) {  // std::vector<bool> has no array to copy from
    std::vector<char> bytes(values.size() * sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = values[i];
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
    return bytes;
  }
  T* base_ = nullptr;
  std::size_t n_, offset_;
};

/// The memory of one run: inputs are copied in, outputs made, both kept until the end.
class Memory {
 public:
  template <class T>
  const T* in(const std::vector<T>& values, std::size_t offset = 0) {
    return inout(values, offset);
  }
  template <class T>
  T* inout(const std::vector<T>& values, std::size_t offset = 0) {
    auto memory = std::make_shared<OnDevice<T>>(values, offset);
    kept_.push_back(memory);
    return memory->get();
  }
  template <class T>
  T* out(std::int64_t n, std::size_t offset = 0) {
    auto memory = std::make_shared<OnDevice<T>>(static_cast<std::size_t>(n), offset);
    kept_.push_back(memory);
    return memory->get();
  }
  /// What lies at `data` on the device now, as doubles.
  template <class T>
  void result(const T* data, std::int64_t n) {
    std::vector<char> bytes(static_cast<std::size_t>(n) * sizeof(T));
    GRAVEN_CUDA(cudaDeviceSynchronize());
    if (n > 0) GRAVEN_CUDA(cudaMemcpy(bytes.data(), data, bytes.size(), cudaMemcpyDeviceToHost));
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i) {
      T value;
      std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
      values.push_back(static_cast<double>(value));
    }
    results.push_back(std::move(values));
    raw.push_back(std::move(bytes));
  }

  std::vector<std::vector<double>> results;
  std::vector<std::vector<char>> raw;

 private:
  std::vector<std::shared_ptr<void>> kept_;
};

/// Runs `f(context, memory)`, which ends with memory.result(...) for each output. On the emulated device it runs in the
/// orders of threads below, and the bits must be the same each time; on a real one twice. `is_large`: in two of them.
inline std::vector<std::vector<double>> everywhere(const graven::test::Call<void(CudaContext&, Memory&)>& f,
                                                   [[maybe_unused]] bool is_large = false) {
  std::vector<std::vector<char>> first;
  std::vector<std::vector<double>> results;
  const auto run = [&](const std::string& name) {
    CudaContext context;
    Memory memory;
    f(context, memory);
    context.synchronize();
    if (results.empty()) {
      first = memory.raw;
      results = memory.results;
    } else {
      EXPECT_EQ(memory.raw, first) << "other bits in the order " << name;
    }
  };
#ifdef CUDA_ON_CPU
  using cuda_on_cpu::Order;
  for (const Order& order : {Order{.kind = Order::Kind::forward}, Order{.kind = Order::Kind::reverse},
                             Order{.kind = Order::Kind::random, .seed = 1},
                             Order{.kind = Order::Kind::random, .seed = 2, .at_accesses = true}}) {
    cuda_on_cpu::set_order(order);
    if (is_large && order.kind != Order::Kind::forward && !order.at_accesses) continue;
    // A race is one in every order; one of them tells of it, with both places.
    cuda_on_cpu::find_races(order.kind == Order::Kind::forward);
    run(cuda_on_cpu::to_string(order));
  }
  cuda_on_cpu::set_order({});
  cuda_on_cpu::find_races(true);
#else
  run("first");
  run("second");
#endif
  return results;
}

/// Numbers in [low, high), the same on every machine.
template <class T>
std::vector<T> numbers(std::int64_t n, std::uint64_t seed, double low = -1, double high = 1) {
  std::mt19937_64 random(seed);
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
    values.push_back(static_cast<T>(std::is_floating_point_v<T> ? value : std::floor(value)));
  }
  return values;
}

template <class T>
std::vector<double> wide(const std::vector<T>& values) {
  return std::vector<double>(values.begin(), values.end());
}

/// |got - expected| <= tolerance * max(1, |expected|), and NaN exactly where expected.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    if (got[i] == expected[i]) continue;
    ASSERT_LE(std::abs(got[i] - expected[i]), tolerance * std::max(1.0, std::abs(expected[i])))
        << what << ", element " << i << ": got " << got[i] << ", expected " << expected[i];
  }
}

}  // namespace graven::kernels::testing_on_device
