// Races of a kernel, which the emulated device finds in text that tells of its accesses: what orders two of them, and
// what does not.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace {

using cuda_on_cpu::Order;

constexpr int kCount = 1024;

class CudaRaces : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudaMalloc(&data_, kCount * sizeof(int)), cudaSuccess); }
  void TearDown() override {
    cuda_on_cpu::set_order({});
    EXPECT_EQ(cudaFree(data_), cudaSuccess);
  }
  /// On zeros. What a failed launch left behind, a lock that is taken, say, is not there for the next.
  std::string run(void (*kernel)(int*), dim3 grid, dim3 block) {
    EXPECT_EQ(cudaMemset(data_, 0, kCount * sizeof(int)), cudaSuccess);
    cudaLaunchConfig_t config;
    config.gridDim = grid;
    config.blockDim = block;
    EXPECT_EQ(cudaLaunchKernelEx(&config, kernel, data_), cudaSuccess);
    try {
      cudaDeviceSynchronize();
    } catch (const cuda_on_cpu::Failure& failure) {
      return failure.what();
    }
    return "";
  }
  /// In several orders, also where threads change at accesses: the report has all of `parts`, or there is none without
  /// them.
  void expect_report(void (*kernel)(int*), dim3 grid, dim3 block, const std::vector<std::string>& parts) {
    for (const Order& order :
         {Order{.kind = Order::Kind::forward}, Order{.kind = Order::Kind::reverse, .at_accesses = true},
          Order{.kind = Order::Kind::random, .seed = 1, .at_accesses = true}}) {
      SCOPED_TRACE(cuda_on_cpu::to_string(order));
      cuda_on_cpu::set_order(order);
      const std::string report = run(kernel, grid, block);
      EXPECT_EQ(report.empty(), parts.empty()) << report;
      for (const std::string& part : parts)
        EXPECT_NE(report.find(part), std::string::npos) << part << ", got: " << report;
    }
  }
  int* data_ = nullptr;
};

/// "races_test.cpp:81", `before` lines before the one that asks.
std::string line(int before, int here = __builtin_LINE()) { return "races_test.cpp:" + std::to_string(here - before); }

// ---- what is reported -----------------------------------------------------------------------------------------------

template <bool Barrier>
__global__ void turn_block(int* data) {
  __shared__ int tile[64];
  tile[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (Barrier) __syncthreads();
  data[threadIdx.x] = tile[63 - threadIdx.x];
}
TEST_F(CudaRaces, WithoutABarrier) {
  expect_report(turn_block<true>, 1, 64, {});
  expect_report(turn_block<false>, 1, 64,
                {"a race on shared memory 'tile': this thread ", line(7), line(5), "no __syncthreads lies between",
                 "in kernel ", "turn_block<false>(int*), block (0,0,0), thread ("});
}

template <int Kind>  // 0: nothing, 1: __syncwarp, 2: a shuffle, 3: a vote, 4: __syncwarp of the halves
__global__ void turn_warp(int* data) {
  __shared__ int tile[32];
  const unsigned lane = threadIdx.x;
  tile[lane] = static_cast<int>(lane);
  int more = 0;
  if (Kind == 1) __syncwarp();
  if (Kind == 2) more = __shfl_sync(0xffffffffu, 0, 0);
  if (Kind == 3) more = __any_sync(0xffffffffu, 0);
  if (Kind == 4) __syncwarp(lane < 16 ? 0xffffu : 0xffff0000u);
  data[lane] = tile[31 - lane] + more;
}
TEST_F(CudaRaces, WithoutASyncwarpWhateverElseTheWarpDoes) {
  expect_report(turn_warp<1>, 1, 32, {});
  for (const auto kernel : {turn_warp<0>, turn_warp<2>, turn_warp<3>, turn_warp<4>})
    expect_report(kernel, 1, 32, {"'tile'", "no __syncwarp or __syncthreads lies between"});
}

/// Each half of a warp turns its own numbers.
__global__ void turn_half_warps(int* data) {
  __shared__ int tile[32];
  const unsigned lane = threadIdx.x;
  tile[lane] = static_cast<int>(lane);
  __syncwarp(lane < 16 ? 0xffffu : 0xffff0000u);
  data[lane] = tile[lane ^ 15];
}
TEST_F(CudaRaces, HalvesOfAWarpAreOrderedByTheirOwnMasks) { expect_report(turn_half_warps, 1, 32, {}); }

/// A warp's barrier orders nothing with another warp.
__global__ void turn_two_warps(int* data) {
  __shared__ int tile[64];
  tile[threadIdx.x] = 1;
  __syncwarp();
  data[threadIdx.x] = tile[threadIdx.x ^ 32];
}
TEST_F(CudaRaces, ASyncwarpIsNoBarrierOfTheBlock) {
  expect_report(turn_two_warps, 1, 64, {"'tile'", "; no __syncthreads lies between"});
}

/// Read by all and then written: the second barrier is missing, as between two rounds of a loop.
__global__ void rounds_without_second_barrier(int* data) {
  __shared__ int sum;
  for (int round = 0; round < 2; ++round) {
    if (threadIdx.x == 0) sum = round;
    __syncthreads();
    data[threadIdx.x] += sum;
  }
}
TEST_F(CudaRaces, AWriteAfterReads) { expect_report(rounds_without_second_barrier, 1, 96, {"'sum'", "no __sync"}); }

__global__ void blocks_write_one_place(int* data) {
  if (threadIdx.x == 0) data[7] = 1;
}
__global__ void blocks_read_what_another_writes(int* data) {
  if (threadIdx.x == 0) data[100 + blockIdx.x] = data[99 + blockIdx.x];
}
TEST_F(CudaRaces, BetweenBlocks) {
  expect_report(blocks_write_one_place, 3, 32,
                {"a race on device memory, at byte 28 of an allocation of 4096 bytes: this thread writes",
                 " of block (", "blocks of a launch have no order"});
  expect_report(blocks_read_what_another_writes, 3, 32, {"blocks of a launch have no order"});
  expect_report(blocks_write_one_place, 1, 32, {});
}

/// The same bytes through values of other sizes; those beside them are another's.
template <int Apart>
__global__ void bytes(int* data) {
  auto* each = reinterpret_cast<unsigned char*>(data);
  if (threadIdx.x < 4) each[threadIdx.x] = 1;
  if (threadIdx.x == 4) data[Apart] = 5;
}
TEST_F(CudaRaces, OfBytes) {
  expect_report(bytes<1>, 1, 32, {});
  expect_report(bytes<0>, 1, 32, {"at byte ", "no __syncwarp or __syncthreads"});
}

// ---- atomics, fences ------------------------------------------------------------------------------------------------

__global__ void count_all(int* data) {
  atomicAdd(data, 1);
  atomicMax(data + 1, static_cast<int>(threadIdx.x));
}
__global__ void count_and_read(int* data) {
  atomicAdd(data, 1);
  data[1 + blockIdx.x * blockDim.x + threadIdx.x] = data[0];
}
TEST_F(CudaRaces, AtomicsRaceWithOthersAlone) {
  expect_report(count_all, 3, 64, {});
  expect_report(count_and_read, 1, 64, {"at byte 0", "no __sync"});
}

/// The last block adds up what all blocks have written.
template <bool Fence, bool Barrier>
__global__ void last_block_adds(int* data) {
  __shared__ bool is_last;
  data[10 + 64 * blockIdx.x + threadIdx.x] = 1;
  if (Barrier) __syncthreads();
  if (threadIdx.x == 0) {
    if (Fence) __threadfence();
    is_last = atomicAdd(data, 1) == static_cast<int>(gridDim.x) - 1;
    if (Fence) __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  int sum = 0;
  for (unsigned i = threadIdx.x; i < 64 * gridDim.x; i += blockDim.x) sum += data[10 + i];
  atomicAdd(data + 1, sum);
}
TEST_F(CudaRaces, FencesAroundAnAtomicOrderBlocks) {
  expect_report(last_block_adds<true, true>, 4, 64, {});
  int sum = 0;
  ASSERT_EQ(cudaMemcpy(&sum, data_ + 1, sizeof sum, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(sum, 4 * 64);
  for (const auto kernel : {last_block_adds<false, true>, last_block_adds<true, false>}) {
    const std::string report = run(kernel, 4, 64);
    EXPECT_NE(report.find("blocks of a launch have no order"), std::string::npos) << report;
  }
}

/// A lock that is taken and given back, in which numbers are changed that no other orders.
template <bool Fences>
__global__ void add_under_lock(int* data) {
  for (bool done = false; !done;) {
    if (atomicCAS(data, 0, 1) != 0) continue;
    if (Fences) __threadfence();
    data[1] += 1;
    if (Fences) __threadfence();
    atomicExch(data, 0);
    done = true;
  }
}
/// One thread tells all others by a flag; `Tells`: what it wrote before is behind a fence.
template <bool Tells>
__global__ void tell_by_flag(int* data) {
  volatile int* const flag = data;
  if (threadIdx.x == 0) {
    data[1] = 5;
    if (Tells) __threadfence();
    *flag = 1;
  } else if (*flag != 0) {
    __threadfence();
    data[1 + threadIdx.x] = data[1];
  }
}
TEST_F(CudaRaces, LocksAndFlagsOrderWhatIsBehindFences) {
  expect_report(add_under_lock<true>, 2, 64, {});
  expect_report(add_under_lock<false>, 2, 64, {"at byte 4 of"});
  expect_report(tell_by_flag<true>, 1, 64, {});
  const std::string report = run(tell_by_flag<false>, 1, 64);  // in the order in which the first thread tells
  EXPECT_NE(report.find("at byte 4 of"), std::string::npos) << report;
}

// ---- the device -----------------------------------------------------------------------------------------------------

TEST_F(CudaRaces, LaunchesOfAStreamAreOrdered) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(turn_block<true>, 1, 64), "");
}

TEST_F(CudaRaces, AreLookedForUnlessTheTestSaysOtherwise) {
  cuda_on_cpu::reset_statistics();
  EXPECT_EQ(run(turn_block<true>, 1, 64), "");
  EXPECT_EQ(cuda_on_cpu::statistics().accesses, 3 * 64) << "of each thread two to shared memory, one to the device's";
  cuda_on_cpu::find_races(false);
  EXPECT_EQ(run(turn_block<false>, 1, 64), "");
  cuda_on_cpu::find_races(true);
  EXPECT_NE(run(turn_block<false>, 1, 64), "");
}

__global__ void append_in_turns(int* data) {
  for (int i = 0; i < 4; ++i) data[1 + atomicAdd(data, 1)] = static_cast<int>(threadIdx.x);
}
/// Between two barriers, threads run turn by turn: one that has begun is not done before another begins.
TEST_F(CudaRaces, ThreadsChangeAtAccesses) {
  std::set<std::vector<int>> seen;
  bool is_interrupted = false;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    cuda_on_cpu::set_order({.kind = Order::Kind::random, .seed = seed, .at_accesses = true});
    EXPECT_EQ(run(append_in_turns, 1, 64), "");
    std::vector<int> order(257);
    ASSERT_EQ(cudaMemcpy(order.data(), data_, 257 * sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
    seen.insert(order);
    for (std::size_t i = 1; i + 4 < order.size(); i += 4) is_interrupted = is_interrupted || order[i] != order[i + 3];
  }
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_TRUE(is_interrupted);
}

__global__ void turn_with_barrier(int* data) {
  __shared__ int tile[64];
  tile[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  data[threadIdx.x] = tile[63 - threadIdx.x];
}
TEST_F(CudaRaces, ABarrierThatATestLeavesOutIsNotThere) {
  const int barrier = __LINE__ - 4;
  EXPECT_EQ(run(turn_with_barrier, 1, 64), "");
  cuda_on_cpu::leave_out("races_test.cpp", barrier);
  EXPECT_NE(run(turn_with_barrier, 1, 64), "");
  cuda_on_cpu::leave_out("", 0);
  EXPECT_EQ(run(turn_with_barrier, 1, 64), "");
}

__global__ void every_other(int* data) {
  for (unsigned i = blockIdx.x; i < 8; i += gridDim.x) data[i] = static_cast<int>(gridDim.x);
}
TEST_F(CudaRaces, BlocksAreFoldedWhereATestWantsIt) {
  for (const unsigned most : {0u, 3u}) {
    cuda_on_cpu::fold_blocks("every_other", most);
    EXPECT_EQ(run(every_other, 8, 1), "");
    int blocks = 0;
    ASSERT_EQ(cudaMemcpy(&blocks, data_ + 5, sizeof blocks, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(blocks, most == 0 ? 8 : 3);
  }
  cuda_on_cpu::fold_blocks("", 0);
}

}  // namespace
