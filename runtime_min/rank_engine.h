// RankEngine: what carries the messages of Ranks between processes, MPI (ranks.cpp) or sockets (rank_sockets.h). All
// ranks make the same calls in the same order. A call that waits for longer than `limit` seconds is an Error, as it is
// when another rank has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "error.h"

namespace graven::runtime {

/// What a rank has sent for a step's tensors.
struct RankTraffic {
  std::int64_t messages = 0;  ///< buckets
  double bytes = 0;           ///< of the tensors that calls of this rank were about
  double least = 0;           ///< what a rank has to send for them: (N - 1) / N of these, and of a mean twice that
  double sent = 0;            ///< what this one has sent, the filling of buckets included
  double waited = 0;          ///< seconds in finish() and finish_gathers()
};

/// Another rank is gone. Where it has said so, it has told its user why.
class RankEnded : public Error {
 public:
  explicit RankEnded(int other)
      : Error("ranks", "", "all ranks to go on until the end", "rank " + std::to_string(other) + " gone"),
        other_(other) {}
  RankEnded(int other, int status) : RankEnded(other) { status_ = status; }
  int other() const { return other_; }
  /// With which it has ended; 0: it has not said.
  int status() const { return status_; }

 private:
  int other_, status_ = 0;
};

struct RankEngine {
  RankEngine() = default;
  RankEngine(const RankEngine&) = delete;
  RankEngine& operator=(const RankEngine&) = delete;
  virtual ~RankEngine() = default;

  /// Each rank's bytes, one rank's behind another's, for everybody.
  virtual void all_gather(double limit, const void* own, void* all, std::size_t bytes) = 0;
  /// The first rank's bytes for everybody.
  virtual void broadcast(double limit, void* data, std::size_t bytes) = 0;
  /// Sends bytes to another rank, or receives them. One of the two is the first rank.
  virtual void transfer(double limit, int other, std::byte* data, std::size_t bytes, bool sends) = 0;
  /// For who waits for something else: a RankEnded where another rank has ended.
  virtual void require_others() {}
  /// Whether another rank ends the program within so many seconds, and has told why or will.
  virtual bool is_ended_by_others(double seconds) = 0;
  /// Ends all ranks with this status.
  virtual void end(int status) = 0;

  int rank = 0, size = 1;
  RankTraffic traffic;  ///< since it was taken
};

}  // namespace graven::runtime
