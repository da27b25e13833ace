// The emulated device itself: what it must compute, and what it must refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cublasLt.h"
#include "cuda_runtime.h"

namespace {

using cuda_on_cpu::Failure;
using cuda_on_cpu::Order;

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = grid;
  config.blockDim = block;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Device memory that holds a copy of, or is as large as, a host vector.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t n) : n_(n) { EXPECT_EQ(cudaMalloc(&data_, n * sizeof(T)), cudaSuccess); }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~OnDevice() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* get() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> result(n_);
    EXPECT_EQ(cudaMemcpy(result.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return result;
  }

 private:
  T* data_ = nullptr;
  std::size_t n_;
};

class CudaOnCpu : public testing::Test {
 protected:
  void SetUp() override { cuda_on_cpu::find_races(false); }  // some are made here, to be seen in what they do
  void TearDown() override {
    cuda_on_cpu::set_order({});
    cuda_on_cpu::find_races(true);
  }
  template <class F>
  static void in_every_order(F&& f) {
    for (const Order& order : cuda_on_cpu::orders()) {
      SCOPED_TRACE(cuda_on_cpu::to_string(order));
      cuda_on_cpu::set_order(order);
      f();
    }
  }
  /// Runs `f`, synchronises, and gives the message of the failure ("" without one).
  template <class F>
  static std::string failure(F&& f) {
    try {
      f();
      cudaDeviceSynchronize();
    } catch (const Failure& e) {
      return e.what();
    }
    return "";
  }
};

#define EXPECT_MENTIONS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << "got: " << (text)

// ---- indices, streams -----------------------------------------------------------------------------------------------

__global__ void write_indices(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
  out[i] = static_cast<int>(i);
}

TEST_F(CudaOnCpu, EveryThreadOfEveryBlockRunsOnce) {
  in_every_order([] {
    OnDevice<int> out(2 * 3 * 2 * 4 * 5 * 2);
    EXPECT_EQ(launch(write_indices, dim3(2, 3, 2), dim3(4, 5, 2), out.get()), cudaSuccess);
    std::vector<int> expected(2 * 3 * 2 * 4 * 5 * 2);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(out.host(), expected);
  });
}

__global__ void append_order(int* count, int* order) {
  order[(*count)++] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

TEST_F(CudaOnCpu, OrdersDiffer) {
  std::set<std::vector<int>> seen;
  in_every_order([&] {
    OnDevice<int> count(std::vector<int>{0}), order(64);
    launch(append_order, 4, 16, count.get(), order.get());
    seen.insert(order.host());
  });
  EXPECT_EQ(seen.size(), cuda_on_cpu::orders().size());
}

TEST_F(CudaOnCpu, AStreamRunsWhenTheHostSynchronises) {
  OnDevice<int> out(1);
  int host = -7;
  EXPECT_EQ(cudaMemsetAsync(out.get(), 0, sizeof(int)), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(&host, out.get(), sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(host, -7) << "a copy that nobody waited for has arrived";
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(host, 0);
}

/// 64 numbers on the device, set to `value` by a kernel on the stream.
__global__ void set_all(int* data, int value) { data[threadIdx.x] = value; }
cudaError_t set_on(cudaStream_t stream, int* data, int value) {
  cudaLaunchConfig_t config;
  config.gridDim = 1;
  config.blockDim = 64;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, set_all, data, value);
}

/// Work that nothing orders is as late as it may be, whichever of the calls of the runtime gave it to the default
/// stream.
TEST_F(CudaOnCpu, TheDefaultStreamIsNotOrderedWithNonBlockingOnes) {
  using Give = cudaError_t (*)(int* to, const int* from, const int* host);
  static constexpr std::size_t kBytes = 64 * sizeof(int);
  const std::pair<const char*, Give> calls[] = {
      {"cudaMemset", [](int* to, const int*, const int*) { return cudaMemset(to, 0, kBytes); }},
      {"cudaMemsetAsync", [](int* to, const int*, const int*) { return cudaMemsetAsync(to, 0, kBytes, nullptr); }},
      {"cudaMemcpy from pageable memory",
       [](int* to, const int*, const int* host) { return cudaMemcpy(to, host, kBytes, cudaMemcpyHostToDevice); }},
      {"cudaMemcpy within the device",
       [](int* to, const int* from, const int*) { return cudaMemcpy(to, from, kBytes, cudaMemcpyDeviceToDevice); }},
      {"cudaMemcpyAsync",
       [](int* to, const int*, const int* host) {
         return cudaMemcpyAsync(to, host, kBytes, cudaMemcpyHostToDevice, nullptr);
       }},
      {"a kernel", [](int* to, const int*, const int*) { return set_on(nullptr, to, 0); }},
  };
  const std::vector<int> zeros(64, 0);
  for (const auto& [name, give] : calls)
    for (const unsigned flags : {cudaStreamNonBlocking, cudaStreamDefault}) {
      OnDevice<int> to(64), from(zeros);
      cudaDeviceSynchronize();
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
      ASSERT_EQ(give(to.get(), from.get(), zeros.data()), cudaSuccess);
      ASSERT_EQ(set_on(stream, to.get(), 7), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      // The default stream comes first for a blocking stream, and after a non-blocking one, for which it need not have
      // run.
      EXPECT_EQ(to.host()[5], flags == cudaStreamNonBlocking ? 0 : 7) << name;
      ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
}

TEST_F(CudaOnCpu, ACopyToTheHostDoesNotWaitForANonBlockingStream) {
  for (const unsigned flags : {cudaStreamNonBlocking, cudaStreamDefault}) {
    OnDevice<int> data(std::vector<int>(64, 1));
    cudaDeviceSynchronize();
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
    ASSERT_EQ(set_on(stream, data.get(), 7), cudaSuccess);
    EXPECT_EQ(data.host()[5], flags == cudaStreamNonBlocking ? 1 : 7);
    cudaDeviceSynchronize();
    EXPECT_EQ(data.host()[5], 7);
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
}

TEST_F(CudaOnCpu, StreamsThatNothingOrdersDifferWithTheOrder) {
  std::set<int> seen;
  in_every_order([&] {
    OnDevice<int> data(64);
    cudaStream_t streams[2];
    for (cudaStream_t& stream : streams)
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(set_on(streams[i], data.get(), i), cudaSuccess);
    cudaDeviceSynchronize();
    seen.insert(data.host()[0]);
    for (cudaStream_t stream : streams) ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  });
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(CudaOnCpu, EventsOrderStreams) {
  // 7 behind the other stream's 5 where the stream waits for it; else they come in either order.
  for (const bool waits : {true, false})
    for (const bool waits_for_stream : {true, false}) {
      OnDevice<int> data(64);
      cudaStream_t first = nullptr, second = nullptr;
      cudaEvent_t event = nullptr;
      for (cudaStream_t* stream : {&first, &second})
        ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
      ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
      ASSERT_EQ(set_on(first, data.get(), 5), cudaSuccess);
      ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
      OnDevice<int> later(64);
      ASSERT_EQ(set_on(first, later.get(), 9), cudaSuccess);  // behind the event: nobody waits for it
      if (waits) {
        ASSERT_EQ(cudaStreamWaitEvent(second, event), cudaSuccess);
      }
      ASSERT_EQ(set_on(second, data.get(), 7), cudaSuccess);
      ASSERT_EQ(waits_for_stream ? cudaStreamSynchronize(second) : cudaDeviceSynchronize(), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(first), cudaSuccess);
      EXPECT_EQ(data.host()[0], waits ? 7 : 5);
      EXPECT_EQ(later.host()[0], 9);
      ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
      for (cudaStream_t stream : {first, second}) ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
}

TEST_F(CudaOnCpu, AnEventIsWaitedForAndNothingBehindIt) {
  OnDevice<int> data(64);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  int* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, sizeof(int)), cudaSuccess);
  for (const int value : {5, 7}) {
    ASSERT_EQ(set_on(stream, data.get(), value), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(host, data.get(), sizeof(int), cudaMemcpyDeviceToHost, stream), cudaSuccess);
    if (value == 5) {
      ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    }
  }
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(*host, 5);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*host, 7);
  ASSERT_EQ(cudaFreeHost(host), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CudaOnCpu, StreamsAndEventsThatAreNotThereAreReported) {
  OnDevice<int> data(64);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_MENTIONS(failure([&] { set_on(stream, data.get(), 1); }), "a stream is used that was destroyed");
  EXPECT_MENTIONS(failure([&] { cudaMemsetAsync(data.get(), 0, 4, stream); }), "a stream is used that was destroyed");
  EXPECT_MENTIONS(failure([&] { cudaStreamSynchronize(stream); }), "a stream is used that was destroyed");
  cudaEvent_t event = nullptr, other = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&other), cudaSuccess);
  EXPECT_MENTIONS(failure([&] { cudaEventSynchronize(event); }), "the event was never recorded");
  ASSERT_EQ(cudaEventRecord(event), cudaSuccess);
  float milliseconds = 0;
  EXPECT_MENTIONS(failure([&] { cudaEventElapsedTime(&milliseconds, event, other); }), "the event was never recorded");
  ASSERT_EQ(cudaEventRecord(other), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event, other), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(other), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event, other), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(other), cudaSuccess);
}

TEST_F(CudaOnCpu, AnErrorThatNobodyLooksAtIsReported) {
  OnDevice<int> data(64);
  EXPECT_EQ(launch(set_all, 0, 64, data.get(), 1), cudaErrorInvalidConfiguration);
  EXPECT_MENTIONS(failure([] { cudaDeviceSynchronize(); }),
                  "cudaLaunchKernelEx returned cudaErrorInvalidConfiguration, which nobody looked at");
  EXPECT_EQ(failure([] { cudaDeviceSynchronize(); }), "");
  EXPECT_EQ(launch(set_all, 0, 64, data.get(), 1), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(failure([] { cudaDeviceSynchronize(); }), "");
}

TEST_F(CudaOnCpu, WhatIsCopiedStaysAsItIsUntilTheStreamHasCome) {
  OnDevice<int> data(64);
  std::vector<int> host(64, 1);
  const auto copy = [&] {
    return cudaMemcpyAsync(data.get(), host.data(), 64 * sizeof(int), cudaMemcpyHostToDevice, nullptr);
  };
  EXPECT_EQ(failure([&] { EXPECT_EQ(copy(), cudaSuccess); }), "");
  EXPECT_MENTIONS(failure([&] {
                    EXPECT_EQ(copy(), cudaSuccess);
                    host[63] = 2;
                  }),
                  "the host changed what it copies before the stream had come to it");
}

// ---- products: what cuBLASLt is given -------------------------------------------------------------------------------

/// d [2, 3] = a [2, 4] b [4, 3], column-major, of floats; each part can be spoilt.
class CudaOnCpuProducts : public CudaOnCpu {
 protected:
  void SetUp() override {
    CudaOnCpu::SetUp();
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    a_ = layout(2, 4, 2), b_ = layout(4, 3, 4), d_ = layout(2, 3, 2);
    cublasLtMatmulPreference_t preference = nullptr;
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    const std::size_t bytes = 1 << 20;
    ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                   sizeof bytes),
              CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, product_, a_, b_, d_, d_, preference, 1, &result, &found),
              CUBLAS_STATUS_SUCCESS);
    algorithm_ = result.algo;
    workspace_bytes_ = result.workspaceSize;
    ASSERT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
  }
  static cublasLtMatrixLayout_t layout(std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, CUDA_R_32F, rows, columns, leading), CUBLAS_STATUS_SUCCESS);
    return made;
  }
  cublasStatus_t multiply(float* d, cublasLtMatrixLayout_t layout_of_c, std::size_t into_workspace = 0) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle_, product_, &one, from_.get(), a_, from_.get() + 64, b_, &zero, d, layout_of_c, d, d_,
                          &algorithm_, workspace_.get() + into_workspace, workspace_bytes_, nullptr);
  }
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
  OnDevice<float> from_{std::vector<float>(128, 2)}, to_{64};
  OnDevice<char> workspace_{8192};
};

TEST_F(CudaOnCpuProducts, AreComputedWhereAllIsAsItShouldBe) {
  EXPECT_EQ(failure([&] { EXPECT_EQ(multiply(to_.get(), d_), CUBLAS_STATUS_SUCCESS); }), "");
  EXPECT_EQ(to_.host()[5], 16.0f);
}

TEST_F(CudaOnCpuProducts, AreRefusedAsTheLibraryRefusesThem) {
  EXPECT_EQ(multiply(to_.get(), d_, 16), CUBLAS_STATUS_INVALID_VALUE) << "a workspace that is not aligned";
  EXPECT_EQ(multiply(to_.get(), layout(2, 3, 8)), CUBLAS_STATUS_INVALID_VALUE) << "one matrix in two layouts";
  EXPECT_EQ(multiply(nullptr, d_), CUBLAS_STATUS_INVALID_VALUE);
  const std::size_t enough = std::exchange(workspace_bytes_, 1024);
  EXPECT_EQ(multiply(to_.get(), d_), CUBLAS_STATUS_INVALID_VALUE) << "less than the algorithm takes";
  workspace_bytes_ = enough;
  const auto recommended = std::exchange(algorithm_, {});
  EXPECT_EQ(multiply(to_.get(), d_), CUBLAS_STATUS_INVALID_VALUE) << "an algorithm of nobody's";
  algorithm_ = recommended;
  const cublasLtEpilogue_t relu = CUBLASLT_EPILOGUE_RELU;
  ASSERT_EQ(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_EPILOGUE, &relu, sizeof relu),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(to_.get(), d_), CUBLAS_STATUS_NOT_SUPPORTED) << "an algorithm of another product";
  const std::int64_t narrow = CUBLAS_OP_T;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &narrow, sizeof narrow),
            CUBLAS_STATUS_INVALID_VALUE)
      << "of another size";
  EXPECT_EQ(cublasLtDestroy(nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST_F(CudaOnCpuProducts, WithMemoryThatIsNotTheirsAreReported) {
  EXPECT_MENTIONS(failure([&] { (void)multiply(from_.get() + 64, d_); }), "D lies upon B");
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_MENTIONS(failure([&] { (void)multiply(to_.get(), d_); }), "the handle is another device's");
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cublasLtMatrixLayoutDestroy(a_), CUBLAS_STATUS_SUCCESS);
  EXPECT_MENTIONS(failure([&] { (void)multiply(to_.get(), d_); }), "a layout is used that was destroyed");
  ASSERT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
  EXPECT_MENTIONS(failure([&] { (void)multiply(to_.get(), d_); }), "a handle is used that was destroyed");
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

/// A stream that orders itself with no other, and what is recorded on it.
class CudaOnCpuGraphs : public CudaOnCpu {
 protected:
  void SetUp() override {
    CudaOnCpu::SetUp();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    CudaOnCpu::TearDown();
  }
  /// The graph of what `calls` gives the stream.
  template <class Calls>
  cudaGraphExec_t recorded(const Calls& calls) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    calls();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess) << "the executable is one of its own";
    return executable;
  }
  void add_on(const cudaStream_t stream, int* data, const int* by);
  cudaStream_t stream_ = nullptr;
};

__global__ void add_all(int* data, const int* by) { data[threadIdx.x] += *by; }
void CudaOnCpuGraphs::add_on(const cudaStream_t stream, int* data, const int* by) {
  cudaLaunchConfig_t config;
  config.gridDim = 1;
  config.blockDim = 64;
  config.stream = stream;
  EXPECT_EQ(cudaLaunchKernelEx(&config, add_all, data, by), cudaSuccess);
}

TEST_F(CudaOnCpuGraphs, DoTheirWorkEachTimeTheyAreLaunched) {
  OnDevice<int> data(std::vector<int>(64, 1)), by(1);
  int *next = nullptr, *seen = nullptr;
  ASSERT_EQ(cudaMallocHost(&next, sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&seen, sizeof(int)), cudaSuccess);
  cudaDeviceSynchronize();
  const cudaGraphExec_t graph = recorded([&] {
    EXPECT_EQ(cudaMemcpyAsync(by.get(), next, sizeof(int), cudaMemcpyHostToDevice, stream_), cudaSuccess);
    add_on(stream_, data.get(), by.get());
    EXPECT_EQ(cudaMemcpyAsync(seen, data.get(), sizeof(int), cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  });
  *seen = 0;
  cudaDeviceSynchronize();
  EXPECT_EQ(*seen, 0) << "recording does nothing";
  EXPECT_EQ(data.host()[63], 1);
  cuda_on_cpu::reset_statistics();
  *next = 10;
  ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  EXPECT_EQ(*seen, 0) << "nobody has waited";
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*seen, 11);
  *next = 100;  // what is copied is what the memory holds when the stream comes to it
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*seen, 211);
  EXPECT_EQ(data.host(), std::vector<int>(64, 211));
  const auto s = cuda_on_cpu::statistics();
  EXPECT_EQ(s.graph_launches, 3);
  EXPECT_EQ(s.launches, 3);
  EXPECT_EQ(s.allocations + s.descriptors, 0);
  ASSERT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(next), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(seen), cudaSuccess);
}

TEST_F(CudaOnCpuGraphs, WhatWasLaunchedComesEvenWhereTheExecutableIsGone) {
  OnDevice<int> data(std::vector<int>(64, 0)), one(std::vector<int>{1});
  cudaDeviceSynchronize();
  const cudaGraphExec_t graph = recorded([&] { add_on(stream_, data.get(), one.get()); });
  ASSERT_EQ(set_on(stream_, data.get(), 5), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(one.get(), 0, sizeof(int), stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(data.host(), std::vector<int>(64, 6)) << "between what came before and what came after";
}

TEST_F(CudaOnCpuGraphs, RunInEveryStreamOfTheirDevice) {
  OnDevice<int> data(std::vector<int>(64, 0)), one(std::vector<int>{1});
  cudaDeviceSynchronize();
  const cudaGraphExec_t graph = recorded([&] { add_on(stream_, data.get(), one.get()); });
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(graph, other), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(data.host()[0], 0) << "another stream was waited for";
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(data.host()[0], 1);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_MENTIONS(failure([&] { cudaGraphLaunch(graph, other); }), "a stream is used that was destroyed");
  ASSERT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
}

/// What a thread may not do while it records, whichever stream it asks.
TEST_F(CudaOnCpuGraphs, RefuseWhatIsNoWorkOnAStream) {
  OnDevice<int> data(64);
  std::vector<int> pageable(64);
  void *memory = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 256), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 256), cudaSuccess);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaMalloc",
       [] {
         void* p;
         return cudaMalloc(&p, 256);
       }},
      {"cudaFree", [&] { return cudaFree(memory); }},
      {"cudaMallocHost",
       [] {
         void* p;
         return cudaMallocHost(&p, 256);
       }},
      {"cudaFreeHost", [&] { return cudaFreeHost(pinned); }},
      {"a wait for the device", [] { return cudaDeviceSynchronize(); }},
      {"a wait for a stream", [&] { return cudaStreamSynchronize(stream_); }},
      {"a wait for a stream", [&] { return cudaStreamSynchronize(other); }},
      {"cudaMemcpy", [&] { return cudaMemcpy(data.get(), memory, 256, cudaMemcpyDeviceToDevice); }},
      {"a copy of pageable memory",
       [&] { return cudaMemcpyAsync(data.get(), pageable.data(), 256, cudaMemcpyHostToDevice, stream_); }},
      {"a copy of pageable memory",
       [&] { return cudaMemcpyAsync(pageable.data(), data.get(), 256, cudaMemcpyDeviceToHost, stream_); }},
  };
  for (const auto& [name, call] : calls) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(set_on(stream_, data.get(), 1), cudaSuccess);
    try {
      call();
      ADD_FAILURE() << name << " succeeded";
    } catch (const Failure& e) {
      EXPECT_EQ(e.what(), std::string(name) + " while this thread records a graph");
    }
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated) << name;
    EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  }
  // Other threads go on.
  const cudaGraphExec_t graph = recorded([&] {
    std::thread([&] {
      void* p = nullptr;
      EXPECT_EQ(cudaMalloc(&p, 256), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
      EXPECT_EQ(cudaFree(p), cudaSuccess);
    }).join();
  });
  ASSERT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  EXPECT_MENTIONS(failure([&] { cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal); }),
                  "other threads are to go on");
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

/// A second stream that forks from the first and joins it, as messages between devices do.
TEST_F(CudaOnCpuGraphs, MayHaveStreamsThatForkAndJoin) {
  cudaStream_t beside = nullptr;
  cudaEvent_t forks = nullptr, joins = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&forks, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&joins, cudaEventDisableTiming), cudaSuccess);
  OnDevice<int> data(std::vector<int>(64, 1)), other(std::vector<int>(64, 5));
  cudaDeviceSynchronize();
  // data += other, beside: other += data, data += other
  const auto calls = [&](bool is_joined) {
    add_on(stream_, data.get(), other.get());
    EXPECT_EQ(cudaEventRecord(forks, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(beside, forks), cudaSuccess);
    add_on(beside, other.get(), data.get());
    EXPECT_EQ(cudaEventRecord(joins, beside), cudaSuccess);
    if (!is_joined) return;
    EXPECT_EQ(cudaStreamWaitEvent(stream_, joins), cudaSuccess);
    add_on(stream_, data.get(), other.get());
  };
  const cudaGraphExec_t graph = recorded([&] { calls(true); });
  EXPECT_EQ(data.host()[63], 1) << "recording does nothing";
  for (const auto& order : cuda_on_cpu::orders()) {
    cuda_on_cpu::set_order(order);
    int x = 1, y = 5;
    ASSERT_EQ(cudaMemcpy(data.get(), std::vector<int>(64, x).data(), 64 * sizeof(int), cudaMemcpyHostToDevice),
              cudaSuccess);
    ASSERT_EQ(cudaMemcpy(other.get(), std::vector<int>(64, y).data(), 64 * sizeof(int), cudaMemcpyHostToDevice),
              cudaSuccess);
    cudaDeviceSynchronize();
    for (int launch = 0; launch < 3; ++launch) {
      ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
      x += y, y += x, x += y;
    }
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(data.host()[63], x);
    EXPECT_EQ(other.host()[63], y);
  }
  cuda_on_cpu::set_order({});
  // A fork that never comes back; and events that are no part of the recording, or are part of one that is over.
  const auto expect_error = [](cudaError_t got, cudaError_t expected) {
    EXPECT_EQ(got, expected);
    EXPECT_EQ(cudaGetLastError(), expected);
  };
  cudaGraph_t none = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  calls(false);
  expect_error(cudaStreamEndCapture(stream_, &none), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(none, nullptr);
  EXPECT_MENTIONS(failure([&] { cudaStreamWaitEvent(stream_, joins); }),
                  "the event is part of a graph that has been recorded");
  ASSERT_EQ(cudaEventRecord(forks, beside), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  expect_error(cudaStreamWaitEvent(stream_, forks), cudaErrorStreamCaptureIsolation);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &none), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(none), cudaSuccess);
  cudaDeviceSynchronize();
  ASSERT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(forks), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(joins), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(beside), cudaSuccess);
}

/// Work that waits for another process is tried again; whoever only looks goes on meanwhile.
TEST_F(CudaOnCpuGraphs, StreamsAndEventsSayWhetherTheyHaveCome) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  const auto expect_not_ready = [](cudaError_t got) {
    EXPECT_EQ(got, cudaErrorNotReady);
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  };
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess) << "it was given nothing";
  EXPECT_MENTIONS(failure([&] { (void)cudaEventQuery(event); }), "the event was never recorded");
  int tries = 0;
  OnDevice<int> data(std::vector<int>(64, 1)), by(std::vector<int>(64, 2));
  cudaDeviceSynchronize();
  cuda_on_cpu::enqueue_attempt("wait", [&] { return ++tries >= 3; }, stream_);
  add_on(stream_, data.get(), by.get());
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  expect_not_ready(cudaStreamQuery(stream_));
  expect_not_ready(cudaEventQuery(event));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(data.host()[63], 3);
  tries = -5;
  cuda_on_cpu::enqueue_attempt("wait", [&] { return ++tries >= 3; }, stream_);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(tries, 3);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(CudaOnCpuGraphs, WhatIsWrongIsReported) {
  const auto expect_error = [](cudaError_t got, cudaError_t expected) {
    EXPECT_EQ(got, expected);
    EXPECT_EQ(cudaGetLastError(), expected);
  };
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  expect_error(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), cudaErrorInvalidValue);
  expect_error(cudaStreamEndCapture(stream_, &graph), cudaErrorInvalidValue);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  expect_error(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaErrorInvalidValue);
  expect_error(cudaStreamEndCapture(stream_, nullptr), cudaErrorInvalidValue);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  expect_error(cudaGraphInstantiate(nullptr, graph, 0), cudaErrorInvalidValue);
  expect_error(cudaGraphInstantiate(&executable, nullptr, 0), cudaErrorInvalidValue);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  expect_error(cudaGraphLaunch(nullptr, stream_), cudaErrorInvalidValue);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t elsewhere = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking), cudaSuccess);
  expect_error(cudaGraphLaunch(executable, elsewhere), cudaErrorInvalidResourceHandle);
  expect_error(cudaGraphLaunch(executable, stream_), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaStreamDestroy(elsewhere), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess) << "one without work";
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  for (const auto& use : std::initializer_list<std::function<void()>>{
           [&] { cudaGraphInstantiate(&executable, graph, 0); }, [&] { cudaGraphDestroy(graph); },
           [&] { cudaGraphLaunch(executable, stream_); }, [&] { cudaGraphExecDestroy(executable); }})
    EXPECT_MENTIONS(failure(use), "a graph is used that was destroyed");
}

// ---- devices --------------------------------------------------------------------------------------------------------

TEST_F(CudaOnCpu, MemoryAndStreamsAreOneDevices) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_EQ(count, 2);
  OnDevice<int> on_first(64);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_MENTIONS(failure([&] { launch(set_all, 1, 64, on_first.get(), 1); }),
                  "is memory of device 0, and device 1 is the current one");
  EXPECT_EQ(set_on(stream, on_first.get(), 1), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  OnDevice<int> on_second(64);
  EXPECT_EQ(launch(set_all, 1, 64, on_second.get(), 3), cudaSuccess);
  EXPECT_EQ(on_second.host()[63], 3);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// ---- barriers -------------------------------------------------------------------------------------------------------

template <bool Barrier>
__global__ void reverse_block(int* data) {
  __shared__ int tile[64];
  tile[threadIdx.x] = data[threadIdx.x];
  if (Barrier) __syncthreads();
  data[threadIdx.x] = tile[63 - threadIdx.x];
}

TEST_F(CudaOnCpu, BarrierSeparatesWritesFromReads) {
  std::vector<int> input(64), expected(64);
  std::iota(input.begin(), input.end(), 0);
  for (int i = 0; i < 64; ++i) expected[static_cast<std::size_t>(i)] = 63 - i;
  in_every_order([&] {
    OnDevice<int> data(input);
    launch(reverse_block<true>, 1, 64, data.get());
    EXPECT_EQ(data.host(), expected);
  });
}

TEST_F(CudaOnCpu, AMissingBarrierShowsInSomeOrder) {
  std::vector<int> input(64);
  std::iota(input.begin(), input.end(), 0);
  std::set<std::vector<int>> seen;
  in_every_order([&] {
    OnDevice<int> data(input);
    launch(reverse_block<false>, 1, 64, data.get());
    seen.insert(data.host());
  });
  EXPECT_GT(seen.size(), 1u);
}

__global__ void race_between_blocks(int* last) {
  if (threadIdx.x == 0) *last = static_cast<int>(blockIdx.x);
}

TEST_F(CudaOnCpu, ARaceBetweenBlocksShowsInSomeOrder) {
  std::set<std::vector<int>> seen;
  in_every_order([&] {
    OnDevice<int> last(1);
    launch(race_between_blocks, 8, 32, last.get());
    seen.insert(last.host());
  });
  EXPECT_GT(seen.size(), 1u);
}

__global__ void count_votes(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  const int count = __syncthreads_count(i % 3 == 0);
  const int all = __syncthreads_and(i < 100), any = __syncthreads_or(i == 99);
  if (i == 0) out[0] = count, out[1] = all, out[2] = any;
}

TEST_F(CudaOnCpu, BlockVotes) {
  in_every_order([] {
    OnDevice<int> out(3);
    launch(count_votes, 1, 96, out.get());
    EXPECT_EQ(out.host(), (std::vector<int>{32, 1, 0}));
  });
}

__global__ void divergent_return(int* out) {
  if (threadIdx.x < 3) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void divergent_sites(int* out) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

TEST_F(CudaOnCpu, DivergentBarriersAreReported) {
  in_every_order([] {
    OnDevice<int> out(64);
    const std::string returned = failure([&] { launch(divergent_return, 1, 64, out.get()); });
    EXPECT_MENTIONS(returned, "divergent barrier");
    EXPECT_MENTIONS(returned, "has returned");
    EXPECT_MENTIONS(returned, "divergent_return(int*)");
    EXPECT_MENTIONS(returned, "emulator_test.cpp:");
    EXPECT_MENTIONS(failure([&] { launch(divergent_sites, 1, 64, out.get()); }), "divergent barrier");
    // The device goes on after a fault.
    launch(write_indices, 1, 64, out.get());
    EXPECT_EQ(out.host()[63], 63);
  });
}

// ---- warps ----------------------------------------------------------------------------------------------------------

template <class T>
__global__ void warp_sum(T* out, const T* in) {
  T value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int delta = 16; delta > 0; delta /= 2)
    value += __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(delta));
  if (threadIdx.x % 32 == 0) out[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = value;
}

template <class T>
void expect_warp_sums() {
  std::vector<T> input(256), expected;
  std::iota(input.begin(), input.end(), T(1));
  for (std::size_t w = 0; w < 8; ++w)
    expected.push_back(std::accumulate(input.begin() + static_cast<long>(w) * 32,
                                       input.begin() + static_cast<long>(w + 1) * 32, T(0)));
  OnDevice<T> in(input), out(8);
  launch(warp_sum<T>, 2, 128, out.get(), static_cast<const T*>(in.get()));
  EXPECT_EQ(out.host(), expected);
}

TEST_F(CudaOnCpu, ShuffleReductions) {
  in_every_order([] {
    expect_warp_sums<float>();
    expect_warp_sums<double>();
    expect_warp_sums<int>();
    expect_warp_sums<long long>();
  });
}

__global__ void shuffles(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = __shfl_sync(0xffffffffu, i, 5);
  out[32 + i] = __shfl_up_sync(0xffffffffu, i, 3);
  out[64 + i] = __shfl_xor_sync(0xffffffffu, i, 1);
  out[96 + i] = __shfl_sync(0xffffffffu, i, 1, 8);
  out[128 + i] = __shfl_down_sync(0xffffffffu, i, 4, 8);
  out[160 + i] = static_cast<int>(__ballot_sync(0xffffffffu, i % 4 == 0) & 0xff);
  out[192 + i] = __any_sync(0xffffffffu, i == 31) + 2 * __all_sync(0xffffffffu, i < 31);
}

TEST_F(CudaOnCpu, EveryShuffleAndVote) {
  in_every_order([] {
    OnDevice<int> out(224);
    launch(shuffles, 1, 32, out.get());
    const std::vector<int> got = out.host();
    for (int i = 0; i < 32; ++i) {
      const auto at = [&](int part) { return got[static_cast<std::size_t>(part * 32 + i)]; };
      EXPECT_EQ(at(0), 5);
      EXPECT_EQ(at(1), i < 3 ? i : i - 3);
      EXPECT_EQ(at(2), i ^ 1);
      EXPECT_EQ(at(3), i / 8 * 8 + 1);
      EXPECT_EQ(at(4), i % 8 < 4 ? i + 4 : i);
      EXPECT_EQ(at(5), 0x11);
      EXPECT_EQ(at(6), 1);
    }
  });
}

__global__ void half_warp(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0x0000ffffu, static_cast<float>(threadIdx.x), 8);
}
__global__ void mask_without_self(int* out) { out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1, 0); }
__global__ void lane_that_left(int* out) {
  if (threadIdx.x == 7) return;
  out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
}
__global__ void lanes_that_wait_apart(int* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  else
    __syncthreads();
}
__global__ void lanes_that_do_not_exist(int* out) { out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0); }

TEST_F(CudaOnCpu, WarpMasks) {
  in_every_order([] {
    OnDevice<float> half(16);
    launch(half_warp, 1, 32, half.get());
    const std::vector<float> got = half.host();
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(got[i], static_cast<float>(i + 8));
    for (std::size_t i = 8; i < 16; ++i)
      EXPECT_TRUE(std::isnan(got[i])) << "a lane outside the mask has no defined value";
    OnDevice<int> out(64);
    EXPECT_MENTIONS(failure([&] { launch(mask_without_self, 1, 32, out.get()); }), "leaves out its own lane");
    EXPECT_MENTIONS(failure([&] { launch(lane_that_left, 1, 32, out.get()); }),
                    "does not come: thread (7,0,0) has returned");
    EXPECT_MENTIONS(failure([&] { launch(lanes_that_wait_apart, 1, 32, out.get()); }), "wait for each other for ever");
    EXPECT_MENTIONS(failure([&] { launch(lanes_that_do_not_exist, 1, 48, out.get()); }),
                    "lanes that the block does not have");
  });
}

// ---- memory ---------------------------------------------------------------------------------------------------------

TEST_F(CudaOnCpu, FreshDeviceMemoryIsNaN) {
  OnDevice<float> f(33);
  for (float x : f.host()) EXPECT_TRUE(std::isnan(x));
  OnDevice<double> d(9);
  for (double x : d.host()) EXPECT_TRUE(std::isnan(x));
}

template <class T>
__global__ void read_unwritten_shared(T* out) {
  __shared__ T tile[32];
  if (threadIdx.x == 0) tile[3] = T(1);
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
  __syncthreads();
  tile[threadIdx.x] = T(2);  // what a block leaves behind is not there for the next
}

TEST_F(CudaOnCpu, SharedMemoryIsNaNWhenABlockStarts) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "under AddressSanitizer shared memory is checked for its bounds instead";
#endif
  in_every_order([] {
    OnDevice<float> out(64);
    launch(read_unwritten_shared<float>, 2, 32, out.get());
    const std::vector<float> got = out.host();
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(got[i]), i % 32 != 3) << i;
  });
}

__global__ void copy_vectors(float* out, const float* in, int offset) {
  const float4 v = *reinterpret_cast<const float4*>(in + offset);
  *reinterpret_cast<float4*>(out) = v;
}
__global__ void store_vector(float* out, int offset) { *reinterpret_cast<float2*>(out + offset) = make_float2(1, 2); }

TEST_F(CudaOnCpu, MisalignedVectorsAreReported) {
  OnDevice<float> in(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}), out(4);
  const float* from = in.get();
  EXPECT_EQ(failure([&] { launch(copy_vectors, 1, 1, out.get(), from, 4); }), "");
  EXPECT_EQ(out.host(), (std::vector<float>{4, 5, 6, 7}));
  for (int offset : {1, 2, 3}) {
    const std::string message = failure([&] { launch(copy_vectors, 1, 1, out.get(), from, offset); });
    EXPECT_MENTIONS(message, "misaligned address");
    EXPECT_MENTIONS(message, "copy_vectors");
  }
  EXPECT_EQ(failure([&] { launch(store_vector, 1, 1, out.get(), 2); }), "");
  EXPECT_MENTIONS(failure([&] { launch(store_vector, 1, 1, out.get(), 1); }), "misaligned address");
}

__global__ void write_at(float* out, long index) { out[index] = 1; }
__global__ void recurse_for_ever(float* out, long depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  if (depth >= 0) recurse_for_ever(out, depth + frame[0] % 1 + 1);
  out[0] = frame[0];
}

TEST_F(CudaOnCpu, AccessesOutsideAnAllocationAreReported) {
  OnDevice<float> out(64);
  const std::string past = failure([&] { launch(write_at, 1, 1, out.get(), 64L); });
  EXPECT_MENTIONS(past, "0 bytes past the end of an allocation of 256 bytes");
  EXPECT_MENTIONS(past, "write_at(float*, long), block (0,0,0), thread (0,0,0)");
  EXPECT_MENTIONS(failure([&] { launch(write_at, 1, 1, out.get(), 1L << 40); }), "illegal address");
  launch(write_at, 1, 1, out.get(), 0L);
  EXPECT_EQ(out.host()[0], 1.0f) << "the device goes on after a fault";
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_F(CudaOnCpu, AStackOverflowIsReported) {
  OnDevice<float> out(64);
  EXPECT_MENTIONS(failure([&] { launch(recurse_for_ever, 1, 1, out.get(), 0L); }), "stack overflow in a kernel");
}
#endif

TEST_F(CudaOnCpu, WritesShortOfTheGuardPageAreFound) {
  float* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 10 * sizeof(float)), cudaSuccess);
  EXPECT_MENTIONS(failure([&] { launch(write_at, 1, 1, data, 11L); }),
                  "overwritten 4 bytes past the end of an allocation of 40 bytes");
  EXPECT_THROW(cudaFree(data), Failure);
}

TEST_F(CudaOnCpu, UseAfterFreeIsReported) {
  float* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 256), cudaSuccess);
  launch(write_at, 1, 1, data, 0L);  // runs before the memory goes
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_MENTIONS(failure([&] { launch(write_at, 1, 1, data, 0L); }), "is not device memory");
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST_F(CudaOnCpu, HostPointersAreRefused) {
  float host = 0;
  OnDevice<float> device(1);
  EXPECT_MENTIONS(failure([&] { launch(write_at, 1, 1, &host, 0L); }),
                  "pointer argument 0 (of the pointers alone, from 0) of kernel");
  EXPECT_MENTIONS(failure([&] { cudaMemcpy(&host, device.get(), 4, cudaMemcpyHostToDevice); }),
                  "cudaMemcpy, destination");
  EXPECT_MENTIONS(failure([&] { cudaMemcpy(&host, device.get(), 4, cudaMemcpyHostToHost); }),
                  "the source is said to be the host's");
  EXPECT_MENTIONS(failure([&] { cudaMemcpy(&host, device.get(), 8, cudaMemcpyDeviceToHost); }),
                  "8 bytes of device memory expected");
  EXPECT_MENTIONS(failure([] { __syncthreads(); }), "called by the host");
}

/// As optimizers have them: pointers within what is passed by value.
struct Lists {
  int* data[2][3];
};
struct Strided {
  const int* data;
  long stride;
};
__global__ void first_of_lists(int* out, Lists lists, Strided strided) { *out = *lists.data[1][2] + *strided.data; }

TEST_F(CudaOnCpu, HostPointersWithinStructsAreRefused) {
  OnDevice<int> out(1), one(std::vector<int>{1}), two(std::vector<int>{2});
  Lists lists{};
  lists.data[1][2] = one.get();
  int host = 0;
  EXPECT_EQ(failure([&] { launch(first_of_lists, 1, 1, out.get(), lists, Strided{two.get(), 1}); }), "");
  EXPECT_EQ(out.host()[0], 3);
  EXPECT_MENTIONS(failure([&] { launch(first_of_lists, 1, 1, out.get(), lists, Strided{&host, 1}); }),
                  "is not device memory");
  lists.data[0][1] = &host;
  EXPECT_MENTIONS(failure([&] { launch(first_of_lists, 1, 1, out.get(), lists, Strided{two.get(), 1}); }),
                  "is not device memory");
}

TEST_F(CudaOnCpu, TheHostCannotTouchDeviceMemory) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        float* data = nullptr;
        cudaMalloc(&data, 64);
        *static_cast<volatile float*>(data) = 1;
      },
      testing::ExitedWithCode(139), "the host used device memory: at byte 0 of an allocation of 64 bytes");
}

TEST_F(CudaOnCpu, ErrorsThatADeviceReturns) {
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, std::size_t{1} << 40), cudaErrorMemoryAllocation);
  EXPECT_EQ(data, nullptr);
  OnDevice<float> out(1);
  EXPECT_EQ(launch(write_at, 1, 1025, out.get(), 0L), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(write_at, 0, 1, out.get(), 0L), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(write_at, dim3(1, 65536), 1, out.get(), 0L), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidConfiguration), "cudaErrorInvalidConfiguration");
}

TEST_F(CudaOnCpu, StatisticsCount) {
  cuda_on_cpu::reset_statistics();
  OnDevice<int> out(std::vector<int>(64));
  launch(reverse_block<true>, 1, 64, out.get());
  cudaDeviceSynchronize();
  const auto s = cuda_on_cpu::statistics();
  EXPECT_EQ(s.launches, 1);
  EXPECT_EQ(s.blocks, 1);
  EXPECT_EQ(s.threads, 64);
  EXPECT_EQ(s.barriers, 1);
}

}  // namespace
