#include "runtime_min/sampler.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "fixture.h"

namespace graven::runtime {
namespace {

std::vector<std::int64_t> all_of(std::int64_t count, std::int64_t seed, std::int64_t epoch) {
  const Permutation order(count, seed, epoch);
  std::vector<std::int64_t> v;
  for (std::int64_t i = 0; i < count; ++i) v.push_back(order[i]);
  return v;
}

TEST(Permutation, VisitsEachSampleOnce) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 10, 16, 17, 100, 255, 256, 257, 1000, 4096, 60000}) {
    for (const std::int64_t seed : {0, 1, -5}) {
      std::vector<std::int64_t> v = all_of(n, seed, 3);
      std::sort(v.begin(), v.end());
      std::vector<std::int64_t> identity(static_cast<std::size_t>(n));
      std::iota(identity.begin(), identity.end(), 0);
      EXPECT_EQ(v, identity) << n << " samples, seed " << seed;
    }
  }
}

TEST(Permutation, DependsOnSeedAndEpochAlone) {
  EXPECT_EQ(all_of(1000, 1, 2), all_of(1000, 1, 2));
  EXPECT_NE(all_of(1000, 1, 2), all_of(1000, 1, 3));
  EXPECT_NE(all_of(1000, 1, 2), all_of(1000, 2, 2));
  EXPECT_NE(all_of(1000, 1, 2), all_of(1000, 2, 1));
}

TEST(Permutation, IsTheSameOnEveryMachine) {
  const Permutation order(60000, 42, 7);
  EXPECT_EQ((std::vector<std::int64_t>{order[0], order[1], order[2], order[29999], order[59999]}),
            (std::vector<std::int64_t>{38536, 54446, 50163, 5711, 24661}));
  const Permutation large(std::int64_t{1} << 40, 42, 7);
  EXPECT_EQ((std::vector<std::int64_t>{large[0], large[1], large[(std::int64_t{1} << 40) - 1]}),
            (std::vector<std::int64_t>{908727358232, 241543773657, 856565284096}));
}

TEST(Permutation, ServesHugeSets) {
  for (const std::int64_t n : {(std::int64_t{1} << 53) - 1, INT64_MAX}) {
    const Permutation order(n, 1, 1);
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, n / 2, n - 1}) {
      EXPECT_GE(order[i], 0);
      EXPECT_LT(order[i], n);
    }
    EXPECT_NE(order[0], order[1]);
  }
}

// Not a test of randomness, but of the mistakes that are easy to make: places that never move, epochs that share
// orders, few of the orders reached.
TEST(Permutation, MovesEverySampleEverywhere) {
  constexpr std::int64_t n = 6, epochs = 21600;
  std::int64_t counts[n][n] = {};
  std::map<std::vector<std::int64_t>, int> orders;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<std::int64_t> v = all_of(n, 0, epoch);
    for (std::size_t i = 0; i < n; ++i) ++counts[i][v[i]];
    ++orders[v];
  }
  for (const auto& row : counts) {
    for (const std::int64_t c : row) {
      EXPECT_GT(c, epochs / n * 8 / 10);
      EXPECT_LT(c, epochs / n * 12 / 10);
    }
  }
  EXPECT_EQ(orders.size(), 720U) << "every order of six occurs";

  // Samples that lie side by side in the file come apart.
  const std::vector<std::int64_t> v = all_of(60000, 0, 0);
  int neighbours = 0, fixed = 0;
  for (std::size_t i = 0; i + 1 < v.size(); ++i) {
    neighbours += v[i + 1] == v[i] + 1 ? 1 : 0;
    fixed += v[i] == static_cast<std::int64_t>(i) ? 1 : 0;
  }
  EXPECT_LT(neighbours, 10);  // one is expected
  EXPECT_LT(fixed, 10);
}

}  // namespace
}  // namespace graven::runtime
