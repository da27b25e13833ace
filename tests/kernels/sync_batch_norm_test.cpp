// Batch normalisation over the batches of several ranks, here threads: that of all their samples, of whatever sizes
// each has, in the same bits everywhere; of one rank batch_norm, bit for bit.
#include "kernels/cpu/sync_batch_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/reference/sync_batch_norm.h"
#include "tests/kernels/team.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;
using test::Member;
using test::Team;

struct Case {
  std::string name;
  std::vector<std::int64_t> outer;  ///< of each rank
  std::int64_t channels, inner;
  double offset = 0;
  bool affine = true;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

template <class T>
std::vector<T> values(std::size_t n, std::uint32_t seed, double offset) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<T> v(n);
  for (T& value : v) value = static_cast<T>(uniform(generator) + offset);
  return v;
}

/// What is computed of a batch, a rank's or all of them.
template <class T>
struct Results {
  std::vector<T> y, mean, rstd, running_mean, running_var, dx, dgamma, dbeta;
};

template <class T>
struct Problem {
  explicit Problem(const Case& of) : c(of), channels(static_cast<std::size_t>(of.channels)) {
    for (const std::int64_t o : c.outer) all += o;
    x = values<T>(elements(all), 1, c.offset);
    // Ranks whose samples are not alike.
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<T>(2.0 * static_cast<double>(i) / x.size());
    dy = values<T>(x.size(), 2, 0.1);
    gamma = values<T>(channels, 3, 1.5);
    beta = values<T>(channels, 4, 0);
    running_mean = values<T>(channels, 5, 0);
    running_var = values<T>(channels, 6, 2);
  }
  std::size_t elements(std::int64_t outer) const { return static_cast<std::size_t>(outer * c.channels * c.inner); }
  sync_batch_norm_config config(std::int64_t outer) const {
    return {.outer = outer, .channels = c.channels, .inner = c.inner, .eps = 1e-5, .momentum = 0.2};
  }
  Results<T> memory(std::int64_t outer) const {
    const std::vector<T> some(channels, T(-7)), many(elements(outer), T(-7));
    return {many, some, some, some, some, many, some, some};
  }
  template <class U>
  const U* optional(const std::vector<U>& v) const {
    return c.affine ? v.data() : nullptr;
  }

  /// Of samples `first` and so many behind it, by a rank.
  Results<T> run(std::int64_t first, std::int64_t outer, Collectives* ranks, int count) const {
    Threads threads(count);
    threads.set_collectives(ranks);
    Results<T> r = memory(outer);
    std::vector<double> scratch(static_cast<std::size_t>(sync_batch_norm_workspace_bytes(config(outer)) / 8), NAN);
    const T *const own = x.data() + elements(first), *const own_dy = dy.data() + elements(first);
    sync_batch_norm(threads, config(outer), r.y.data(), r.mean.data(), r.rstd.data(), r.running_mean.data(),
                    r.running_var.data(), own, optional(gamma), optional(beta), running_mean.data(), running_var.data(),
                    scratch.data());
    std::fill(scratch.begin(), scratch.end(), NAN);
    sync_batch_norm_backward(threads, config(outer), r.dx.data(), r.dgamma.data(), r.dbeta.data(), own_dy, own,
                             optional(gamma), r.mean.data(), r.rstd.data(), scratch.data());
    return r;
  }
  std::vector<Results<T>> run_ranks(int count) const {
    Team team(static_cast<int>(c.outer.size()));
    std::vector<Results<T>> results(c.outer.size());
    std::vector<std::thread> ranks;
    std::int64_t first = 0;
    for (std::size_t r = 0; r < c.outer.size(); ++r) {
      ranks.emplace_back([this, r, first, count, &team, &results] {
        Member member(team, static_cast<int>(r));
        results[r] = run(first, c.outer[r], &member, count);
        EXPECT_EQ(member.visits, 2) << "once forward, once backward";
      });
      first += c.outer[r];
    }
    for (std::thread& t : ranks) t.join();
    return results;
  }
  /// What batch_norm makes of all samples together, in double; the gradient with mean and rstd as the ranks have them.
  Results<double> expected(const Results<T>& rank) const {
    Problem<double> wide(c);
    wide.x.assign(x.begin(), x.end());
    wide.dy.assign(dy.begin(), dy.end());
    wide.gamma.assign(gamma.begin(), gamma.end());
    wide.beta.assign(beta.begin(), beta.end());
    wide.running_mean.assign(running_mean.begin(), running_mean.end());
    wide.running_var.assign(running_var.begin(), running_var.end());
    Results<double> r = wide.memory(all);
    reference::batch_norm(config(all).of_rank(), r.y.data(), r.mean.data(), r.rstd.data(), r.running_mean.data(),
                          r.running_var.data(), wide.x.data(), optional(wide.gamma), optional(wide.beta),
                          wide.running_mean.data(), wide.running_var.data());
    const std::vector<double> mean(rank.mean.begin(), rank.mean.end()), rstd(rank.rstd.begin(), rank.rstd.end());
    reference::batch_norm_backward(config(all).of_rank(), r.dx.data(), r.dgamma.data(), r.dbeta.data(), wide.dy.data(),
                                   wide.x.data(), optional(wide.gamma), mean.data(), rstd.data());
    return r;
  }

  const Case& c;
  std::size_t channels;
  std::int64_t all = 0;
  std::vector<T> x, dy, gamma, beta, running_mean, running_var;
};

class SyncBatchNorm : public testing::TestWithParam<Case> {
 protected:
  template <class T>
  static void expect_close(const std::vector<T>& actual, const std::vector<double>& expected, std::size_t from,
                           double tolerance, const char* what) {
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(static_cast<double>(actual[i]), expected[from + i], tolerance * (1 + std::abs(expected[from + i])))
          << what << " at " << i;
  }
  template <class T>
  static void expect_the_whole_batch(const Case& c, double tolerance, double of_sums) {
    const Problem<T> problem(c);
    const std::vector<Results<T>> ranks = problem.run_ranks(1);
    const Results<double> all = problem.expected(ranks[0]);
    std::vector<double> dgamma(problem.channels), dbeta(problem.channels);
    std::int64_t first = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      SCOPED_TRACE(r);
      const Results<T>& own = ranks[r];
      expect_close(own.y, all.y, problem.elements(first), tolerance, "y");
      expect_close(own.mean, all.mean, 0, tolerance, "mean");
      expect_close(own.rstd, all.rstd, 0, tolerance, "rstd");
      expect_close(own.running_mean, all.running_mean, 0, tolerance, "running mean");
      expect_close(own.running_var, all.running_var, 0, tolerance, "running variance");
      expect_close(own.dx, all.dx, problem.elements(first), tolerance, "dx");
      for (std::size_t i = 0; i < problem.channels; ++i) {
        dgamma[i] += static_cast<double>(own.dgamma[i]);
        dbeta[i] += static_cast<double>(own.dbeta[i]);
        EXPECT_EQ(own.mean[i], ranks[0].mean[i]);
        EXPECT_EQ(own.rstd[i], ranks[0].rstd[i]);
        EXPECT_EQ(own.running_mean[i], ranks[0].running_mean[i]);
        EXPECT_EQ(own.running_var[i], ranks[0].running_var[i]);
      }
      first += c.outer[r];
    }
    expect_close(dgamma, all.dgamma, 0, of_sums, "the sum of dgamma");
    expect_close(dbeta, all.dbeta, 0, of_sums, "the sum of dbeta");
  }
  template <class T>
  static void expect_same_bits(const Results<T>& a, const Results<T>& b) {
    for (auto member : {&Results<T>::y, &Results<T>::mean, &Results<T>::rstd, &Results<T>::running_mean,
                        &Results<T>::running_var, &Results<T>::dx, &Results<T>::dgamma, &Results<T>::dbeta}) {
      ASSERT_EQ((a.*member).size(), (b.*member).size());
      EXPECT_TRUE((a.*member).empty() ||
                  std::memcmp((a.*member).data(), (b.*member).data(), (a.*member).size() * sizeof(T)) == 0);
    }
  }
};

TEST_P(SyncBatchNorm, IsThatOfTheWholeBatch) {
  const Case& c = GetParam();
  double count = 0;
  for (const std::int64_t o : c.outer) count += static_cast<double>(o * c.inner);
  expect_the_whole_batch<float>(c, tolerance_of::normalisation.f32 + 4e-7 * std::abs(c.offset),
                                1e-6 * std::sqrt(count) + 1e-5);
  expect_the_whole_batch<double>(c, 1e-12 * (1 + std::abs(c.offset)), 1e-12 * (1 + std::abs(c.offset)));
}

TEST_P(SyncBatchNorm, AnyNumberOfThreadsGivesTheSameBits) {
  const Problem<float> problem(GetParam());
  const auto one = problem.run_ranks(1), three = problem.run_ranks(3);
  for (std::size_t r = 0; r < one.size(); ++r) expect_same_bits(one[r], three[r]);
}

TEST_P(SyncBatchNorm, OfOneRankIsBatchNorm) {
  const Problem<float> problem(GetParam());
  const std::int64_t n = problem.all;
  Team team(1);
  Member alone(team, 0);
  const Results<float> none = problem.run(0, n, nullptr, 2), one = problem.run(0, n, &alone, 2);
  EXPECT_EQ(alone.visits, 0);
  Results<float> plain = problem.memory(n);
  Threads threads(2);
  std::vector<float> scratch(static_cast<std::size_t>(batch_norm_workspace_bytes(problem.config(n).of_rank()) / 4));
  batch_norm(threads, problem.config(n).of_rank(), plain.y.data(), plain.mean.data(), plain.rstd.data(),
             plain.running_mean.data(), plain.running_var.data(), problem.x.data(), problem.optional(problem.gamma),
             problem.optional(problem.beta), problem.running_mean.data(), problem.running_var.data(), scratch.data());
  batch_norm_backward(threads, problem.config(n).of_rank(), plain.dx.data(), plain.dgamma.data(), plain.dbeta.data(),
                      problem.dy.data(), problem.x.data(), problem.optional(problem.gamma), plain.mean.data(),
                      plain.rstd.data(), scratch.data());
  expect_same_bits(none, plain);
  expect_same_bits(one, plain);

  const Problem<double> wide(GetParam());
  const Results<double> own = wide.run(0, n, nullptr, 2);
  Results<double> reference = wide.memory(n);
  reference::sync_batch_norm(wide.config(n), reference.y.data(), reference.mean.data(), reference.rstd.data(),
                             reference.running_mean.data(), reference.running_var.data(), wide.x.data(),
                             wide.optional(wide.gamma), wide.optional(wide.beta), wide.running_mean.data(),
                             wide.running_var.data());
  reference::sync_batch_norm_backward(wide.config(n), reference.dx.data(), reference.dgamma.data(),
                                      reference.dbeta.data(), wide.dy.data(), wide.x.data(), wide.optional(wide.gamma),
                                      reference.mean.data(), reference.rstd.data());
  for (std::size_t i = 0; i < reference.dx.size(); ++i) {
    ASSERT_DOUBLE_EQ(own.y[i], reference.y[i]);
    ASSERT_NEAR(own.dx[i], reference.dx[i], 1e-12 * (1 + std::abs(reference.dx[i])));
  }
}

/// Of the sum over all ranks of y * dy, by finite differences, in double.
TEST(SyncBatchNormOfRanks, GradientsAreDifferences) {
  const Case c{"small", {2, 3}, 2, 2};
  Problem<double> problem(c);
  const std::vector<Results<double>> ranks = problem.run_ranks(1);
  const auto loss = [&] {
    const auto results = problem.run_ranks(1);
    double sum = 0;
    std::size_t i = 0;
    for (const Results<double>& r : results)
      for (const double y : r.y) sum += y * problem.dy[i++];
    return sum;
  };
  const auto difference = [&](double& at) {
    const double h = 1e-5, was = at;
    at = was + h;
    const double up = loss();
    at = was - h;
    const double down = loss();
    at = was;
    return (up - down) / (2 * h);
  };
  std::vector<double> dx;
  for (const Results<double>& r : ranks) dx.insert(dx.end(), r.dx.begin(), r.dx.end());
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], difference(problem.x[i]), 1e-8) << i;
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(ranks[0].dgamma[i] + ranks[1].dgamma[i], difference(problem.gamma[i]), 1e-8);
    EXPECT_NEAR(ranks[0].dbeta[i] + ranks[1].dbeta[i], difference(problem.beta[i]), 1e-8);
  }
}

TEST(SyncBatchNormOfRanks, HasToSeeTwoValues) {
  // One on each of two ranks are enough.
  const Case two{"two", {1, 1}, 3, 1}, one{"one", {1, 0}, 3, 1};
  const auto results = Problem<float>(two).run_ranks(1);
  for (const float v : results[0].running_var) EXPECT_TRUE(std::isfinite(v));
  Team team(2);
  const Problem<float> problem(one);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      Member member(team, r);
      EXPECT_THROW(problem.run(r, 1 - r, &member, 1), value_error) << r;
    });
  for (std::thread& t : ranks) t.join();
  EXPECT_THROW(problem.run(0, 1, nullptr, 1), value_error);
}

const std::vector<Case> kCases = {
    {"rows", {40, 40}, 32, 1},           {"rows_of_other_sizes", {300, 7, 123}, 17, 1},
    {"many_rows", {3000, 2000}, 96, 1},  {"few_channels", {500, 400, 300, 200}, 3, 1},
    {"offset", {200, 100}, 16, 1, 1000}, {"plain", {9, 8}, 40, 1, 0, false},
    {"images", {4, 4}, 6, 100},          {"images_of_other_sizes", {1, 5, 2}, 5, 37},
    {"large_images", {2, 1}, 3, 9000},   {"images_plain", {2, 2}, 4, 25, 0, false},
    {"one_has_none", {6, 0, 3}, 5, 1},   {"one_has_no_image", {0, 3}, 5, 7},
};
const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Cases, SyncBatchNorm, testing::ValuesIn(kCases), kName);

}  // namespace
}  // namespace graven::kernels
