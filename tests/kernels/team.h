// Ranks that are threads of one process, for kernels that ask the others.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/collectives.h"

namespace graven::kernels::test {

/// As many of them.
struct Team {
  explicit Team(int n) : size(n), here(n), own(static_cast<std::size_t>(n)) {}
  int size;
  std::barrier<> here;
  std::vector<const double*> own;
};
/// One of them.
struct Member final : Collectives {
  Member(Team& of, int number) : team(of), rank(number) {}
  int size() const override { return team.size; }
  void visit(const double* x, std::int64_t, void (*take)(void*, const double*), void* context) override {
    ++visits;
    team.own[static_cast<std::size_t>(rank)] = x;
    team.here.arrive_and_wait();
    for (const double* theirs : team.own) take(context, theirs);
    team.here.arrive_and_wait();
  }
  void start_mean(float*, std::int64_t) override { FAIL(); }
  void start_mean(double*, std::int64_t) override { FAIL(); }
  void start_shard_of_mean(float*, std::int64_t) override { FAIL(); }
  void start_shard_of_mean(double*, std::int64_t) override { FAIL(); }
  void start_adding_shard(float*, const float*, std::int64_t, const Accumulation&) override { FAIL(); }
  void start_adding_shard(double*, const double*, std::int64_t, const Accumulation&) override { FAIL(); }
  void start_gather(float*, std::int64_t) override { FAIL(); }
  void start_gather(double*, std::int64_t) override { FAIL(); }
  void finish_gathers() override { FAIL(); }
  void gather(float*, const float*, std::int64_t) override { FAIL(); }
  void gather(double*, const double*, std::int64_t) override { FAIL(); }
  void sum(double* x, std::int64_t n) override {
    const std::vector<double> own(x, x + n);
    for (std::int64_t i = 0; i < n; ++i) x[i] = 0;
    struct Sum {
      double* to;
      std::int64_t n;
    } all{x, n};
    visit(
        own.data(), n,
        [](void* context, const double* theirs) {
          const Sum& s = *static_cast<const Sum*>(context);
          for (std::int64_t i = 0; i < s.n; ++i) s.to[i] += theirs[i];
        },
        &all);
  }
  void largest(double*, std::int64_t) override { FAIL(); }
  Team& team;
  int rank, visits = 0;
};

}  // namespace graven::kernels::test
