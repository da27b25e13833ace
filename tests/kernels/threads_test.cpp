#include "kernels/cpu/threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <vector>

namespace graven::kernels::test {
namespace {

TEST(Threads, EveryPieceRunsOnce) {
  for (const int count : {1, 2, 3, 7})
    for (const int spin : {0, 50, 2000}) {
      Threads threads(count, spin);
      EXPECT_EQ(threads.count(), count);
      for (std::int64_t pieces : {0, 1, 2, 3, 10, 1000, 65535, 65536, 200000}) {
        std::vector<unsigned char> runs(static_cast<std::size_t>(pieces));
        threads.run(pieces, [&](std::int64_t piece) { ++runs[static_cast<std::size_t>(piece)]; });
        for (const auto r : runs) ASSERT_EQ(r, 1);
      }
    }
}

TEST(Threads, ManyShortRegionsWithPauses) {
  for (const int count : {2, 3}) {
    Threads threads(count, 100);
    std::vector<std::int64_t> sums(64);
    for (int region = 0; region < 3000; ++region) {
      threads.run(region % 64, [&](std::int64_t piece) { sums[static_cast<std::size_t>(piece)] += region; });
      if (region % 500 == 0) usleep(2000);  // the workers fall asleep
    }
    std::int64_t total = 0, expected = 0;
    for (const auto s : sums) total += s;
    for (std::int64_t region = 0; region < 3000; ++region) expected += region * (region % 64);
    EXPECT_EQ(total, expected);
  }
}

TEST(Threads, WhatOneRegionWritesTheNextReads) {
  Threads threads(3);
  std::vector<int> a(1000, 0), b(1000, 0);
  for (int round = 1; round <= 200; ++round) {
    threads.run(1000, [&](std::int64_t i) { a[static_cast<std::size_t>(i)] = round; });
    threads.run(1000, [&](std::int64_t i) { b[static_cast<std::size_t>(i)] = a[static_cast<std::size_t>(999 - i)]; });
    for (const int v : b) ASSERT_EQ(v, round);
  }
}

TEST(Threads, NestedRegionsRunSerially) {
  Threads threads(2);
  std::atomic<int> runs{0};
  threads.run(8, [&](std::int64_t) { threads.run(5, [&](std::int64_t) { ++runs; }); });
  EXPECT_EQ(runs, 40);
}

TEST(Threads, PoolsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    Threads threads(1 + i % 4, i % 2 == 0 ? 0 : 100);
    std::atomic<int> runs{0};
    if (i % 3 != 0) threads.run(i, [&](std::int64_t) { ++runs; });
    EXPECT_EQ(runs, i % 3 != 0 ? i : 0);
  }
  EXPECT_GE(Threads().count(), 1);
}

}  // namespace
}  // namespace graven::kernels::test
