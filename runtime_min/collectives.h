// What kernels ask of the other ranks, answered by Ranks. `Interface` is kernels/cpu/collectives.h's: the kernels do
// not know the run time, nor it them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ranks.h"

namespace graven::runtime {

template <class Interface>
struct RankCollectives final : Interface {
  using Accumulation = typename Interface::Accumulation;
  /// `of`: which ranks they are.
  explicit RankCollectives(Ranks& (*of)()) : ranks(of) {}

  int size() const override { return ranks().size(); }
  void start_mean(float* x, std::int64_t n) override { ranks().start_mean(x, n); }
  void start_mean(double* x, std::int64_t n) override { ranks().start_mean(x, n); }
  void start_shard_of_mean(float* x, std::int64_t n) override { ranks().start_shard_of_mean(x, n); }
  void start_shard_of_mean(double* x, std::int64_t n) override { ranks().start_shard_of_mean(x, n); }
  void start_adding_shard(float* sum, const float* x, std::int64_t n, const Accumulation& how) override {
    ranks().start_adding_shard(sum, x, n, {how.first, how.last, how.times, how.parts});
  }
  void start_adding_shard(double* sum, const double* x, std::int64_t n, const Accumulation& how) override {
    ranks().start_adding_shard(sum, x, n, {how.first, how.last, how.times, how.parts});
  }
  void start_gather(float* x, std::int64_t n) override { ranks().start_gather(x, n); }
  void start_gather(double* x, std::int64_t n) override { ranks().start_gather(x, n); }
  void finish_gathers() override { ranks().finish_gathers(); }
  void gather(float* whole, const float* x, std::int64_t n) override { gather_any(whole, x, n); }
  void gather(double* whole, const double* x, std::int64_t n) override { gather_any(whole, x, n); }
  void visit(const double* x, std::int64_t n, void (*take)(void* context, const double* theirs),
             void* context) override {
    const std::vector<double> all = ranks().all_numbers(x, static_cast<std::size_t>(n));
    for (int rank = 0; rank < size(); ++rank) take(context, all.data() + rank * n);
  }
  void sum(double* x, std::int64_t n) override { ranks().sum(x, static_cast<std::size_t>(n)); }
  void largest(double* x, std::int64_t n) override { ranks().largest(x, static_cast<std::size_t>(n)); }

 private:
  Ranks& (*ranks)();
  template <class T>
  void gather_any(T* whole, const T* x, std::int64_t n) {
    const Shard shard = ranks().shard(1);
    std::memcpy(shard.of(whole, n), x, static_cast<std::size_t>(shard.count(n)) * sizeof(T));
    ranks().start_gather(whole, n);
    ranks().finish_gathers();
  }
};

/// What kernels ask of the ranks that have tensors in parts: kernels/config/team.h's interface.
template <class Interface>
struct RankTeam final : Interface {
  int rank() const override { return Ranks::team().rank(); }
  int size() const override { return Ranks::team().size(); }
  void exchange(const void* rows, void* received, std::int64_t bytes) override {
    Ranks::team().exchange(rows, received, static_cast<std::size_t>(bytes));
  }
  void gather(const void* own, void* rows, std::int64_t bytes) override {
    Ranks::team().gather_rows(own, rows, static_cast<std::size_t>(bytes));
  }
};

}  // namespace graven::runtime
