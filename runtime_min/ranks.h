// Ranks: the processes that train one model together, started by mpirun or srun. The engine is MPI, in a program that
// is built with it (-DGRAVEN_MPI=ON); without it, and in a program that is started alone, there is one rank, and
// everything below is done at once.
//
//   Ranks& ranks = Ranks::all();
//   ranks.start_sum(gradient, n);               // begins, and goes on beside what the caller does next
//   ranks.finish();                             // now it is the sum over all ranks
//   ranks.sum(totals, 4);                       // begins and finishes
//
// Every rank makes the same calls in the same order, from one thread. One that waits for longer than the time limit
// gives up: another has died or hangs, or makes other calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace graven::runtime {

/// How many processes a launcher of MPI programs says that it has started, this one among them; 0: none has.
int launched_processes();

class Ranks {
 public:
  /// Of this process; joins the others when it is first called. An Error in a program without an engine that is one of
  /// several processes: each would train for itself.
  static Ranks& all();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }  ///< from 0
  int size() const { return size_; }
  bool is_first() const { return rank_ == 0; }
  /// How many ranks run on the same processors of this machine, this one included.
  int sharing_processors() const;
  void set_time_limit(double seconds) { time_limit_ = seconds; }

  /// Begins to add up `n` elements over all ranks, in place. Nobody may touch them before finish().
  void start_sum(float* x, std::int64_t n);
  void start_sum(double* x, std::int64_t n);
  /// Waits for all sums that were begun.
  void finish();

  /// Adds up, in the order of the ranks: the same bits everywhere.
  void sum(double* x, std::size_t n);
  /// The first rank's bytes for everybody.
  void broadcast(void* data, std::size_t bytes);
  /// An Error on each rank whose text is not the first rank's: what it is of, expected that, found its own.
  void require_same(const char* what, const std::string& text);

  /// Prints the error of this rank as one line, and ends all ranks with this status. Where every rank has found the
  /// same, the first one is the one that says so. With one rank it returns the status.
  int fail(const std::string& text, int status);

 private:
  Ranks();
  struct Engine;
  std::unique_ptr<Engine> engine_;  ///< nullptr: one rank
  int rank_ = 0, size_ = 1;
  double time_limit_ = 600;
};

}  // namespace graven::runtime
