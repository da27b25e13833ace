// Ranks: the processes that train one model together, started by mpirun or srun. The engine is MPI, in a program that
// is built with it (-DGRAVEN_MPI=ON); without it, and in a program that is started alone, there is one rank, and
// everything below is done at once. Where devices bring together what their ranks have computed (kernels/cuda/nccl.cuh)
// the engine are sockets (rank_sockets.h), and what is begun here is nothing, nor is exchange().
//
//   Ranks& ranks = Ranks::all();
//   ranks.start_mean(gradient, n);              // begins, and goes on beside what the caller does next
//   ranks.finish();                             // now it is the mean over all ranks
//   ranks.sum(totals, 4);                       // begins and finishes
//
// Every rank makes the same calls in the same order, from one thread. One that waits for longer than the time limit
// gives up: another has died or hangs, or makes other calls.
//
// How a mean comes about: elements are packed into a bucket, a row for each rank. Each rank sends each other one its
// row, adds up what it got, in the order of the ranks, and sends the result to all. So a rank sends 2 (N - 1) / N of
// the bytes, which is the least that there is (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication
// Operations in MPICH, 2005), and all ranks have the same bits, which do not depend on how fast each one is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "rank_engine.h"
#include "shard.h"
#include "tensor.h"

namespace graven::runtime {

/// How many processes a launcher says that it has started, this one among them; 0: none has.
int launched_processes();

class Ranks {
 public:
  /// Of this process; joins the others when it is first called. An Error in a program without an engine that is one of
  /// several processes: each would train for itself.
  static Ranks& all();
  /// Before the first all(): what to join the others with, in a program whose device adds up the gradients.
  static void use(std::unique_ptr<RankEngine> (*connect)());
  /// Where ranks of a row make up one model, each a stage or a part of its tensors: those at this rank's place in
  /// theirs, rank % count, and those of its own row, rank / count. All ranks, before divide().
  static Ranks& peers();
  static Ranks& team();
  /// Into rows of so many ranks. Called by every rank; once it is done, another number is an Error.
  static void divide(int count);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }  ///< from 0
  int size() const { return size_; }
  bool is_first() const { return rank_ == 0; }
  /// How many ranks run on the same processors of this machine, this one included.
  int sharing_processors() const;
  /// How many ranks before this one run on the same machine.
  int place_on_machine() const;
  void set_time_limit(double seconds) { time_limit_ = seconds; }

  /// This rank's part of tensors of `least` elements or more.
  Shard shard(std::int64_t least) const { return {rank_, size_, least}; }

  /// x becomes the mean over all ranks. Nobody may touch it before finish().
  void start_mean(float* x, std::int64_t n);
  void start_mean(double* x, std::int64_t n);
  /// This rank's shard of x becomes that of the mean; the rest of x is of no use any more.
  void start_shard_of_mean(float* x, std::int64_t n);
  void start_shard_of_mean(double* x, std::int64_t n);
  /// How one part's mean is added to the sum over the parts of a step.
  struct Accumulation {
    bool first = true, last = true;  ///< the sum begins with it; it is divided by `parts` behind it
    double times = 1, parts = 1;     ///< what the mean is multiplied by
  };
  /// `sum`, a shard of n elements, takes in its part of the mean of x, which the caller may touch at once.
  void start_adding_shard(float* sum, const float* x, std::int64_t n, const Accumulation& how);
  void start_adding_shard(double* sum, const double* x, std::int64_t n, const Accumulation& how);
  /// Each rank's shard of x for all of them.
  void start_gather(float* x, std::int64_t n);
  void start_gather(double* x, std::int64_t n);
  /// Waits for all that was begun; for what start_gather() has.
  void finish();
  void finish_gathers();

  using Traffic = RankTraffic;
  /// Since the last call.
  Traffic take_traffic();
  /// What a device has sent.
  void count(const Traffic& traffic);
  /// The seconds that all this takes with nothing beside it: what was begun up to the last finish(), and behind the one
  /// before. 0 with one rank.
  double time_last_messages();

  /// Each rank's n numbers, one rank's behind another's. What was begun goes on.
  std::vector<double> all_numbers(const double* x, std::size_t n);
  /// Adds up, in the order of the ranks: the same bits everywhere.
  void sum(double* x, std::size_t n);
  /// The largest of each; NaN is larger than any number.
  void largest(double* x, std::size_t n);
  /// The first rank's bytes for everybody.
  void broadcast(void* data, std::size_t bytes);
  /// What one rank has in a variable for another; one of the two is the first.
  void bring(int from, int to, const Variable& variable);
  /// The first rank's `whole` in parts for everybody, each its own one of a variable that is_part(); and back.
  void scatter(const Variable& variable, const void* whole);
  void gather(const Variable& variable, void* whole);
  /// Row r of `rows`, of so many bytes, goes to rank r, and row r of `received` comes from it.
  void exchange(const void* rows, void* received, std::size_t bytes);
  /// Row r of `rows` is what rank r has in its `own`.
  void gather_rows(const void* own, void* rows, std::size_t bytes);
  /// An Error on each rank whose text is not the first rank's: what it is of, expected that, found its own.
  void require_same(const char* what, const std::string& text);

  /// For who waits for a device, and has for so many seconds: an Error where another rank has ended, or time is up.
  void require_others(double seconds) const;
  /// Prints the error of this rank as one line, and ends all ranks with this status. Where every rank has found the
  /// same, the first one is the one that says so. With one rank it returns the status.
  int fail(const std::exception& error, int status);

 private:
  std::vector<double> gathered(const double* x, std::size_t n);
  Ranks();
  explicit Ranks(std::unique_ptr<RankEngine> engine);
  std::unique_ptr<RankEngine> engine_;  ///< nullptr: one rank
  int rank_ = 0, size_ = 1;
  double time_limit_ = 600;
};

/// They as a device's library is told of them (kernels/cuda/nccl.cuh): so many in a row have tensors in parts. The
/// kernels do not know the run time, nor it them.
template <class Processes>
Processes processes(int row = 1) {
  return {.rank = Ranks::all().rank(),
          .size = Ranks::all().size(),
          .row = row,
          .broadcast = [](void* data, std::size_t bytes) { Ranks::all().broadcast(data, bytes); },
          .require_others = [](double seconds) { Ranks::all().require_others(seconds); }};
}

}  // namespace graven::runtime
