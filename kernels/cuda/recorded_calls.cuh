// RecordedCalls: calls that are made again and again, given to the device as one CUDA graph. The host's work is then
// the same few microseconds for a call as for a thousand.
//
//   RecordedCalls forward;
//   forward.run(context, {}, [&] { program.forward(step); });        // recorded at first, replayed from then on
//   forward.run(context, {batch}, [&] { program.forward(step); });   // the same, for each batch that comes again
//
// What is recorded are launches, library calls and copies with all their arguments: the same calls on the same memory
// each time that the sizes are the same. What changes from call to call lies in memory: the inputs, and the numbers of
// a training step. Sizes are recorded when they come for the second time, the first kMostSizes of them; with others the
// calls are made one by one.
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <map>
#include <utility>
#include <vector>

namespace graven::kernels {

class RecordedCalls {
 public:
  RecordedCalls() = default;
  ~RecordedCalls() { forget(); }
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  /// Makes the calls, or replays what was recorded for these sizes. A context that is not to record makes them always.
  template <class Calls>
  void run(CudaContext& context, const std::vector<std::int64_t>& sizes, const Calls& calls) {
    if (!context.records_calls()) return calls();
    const bool is_new = recorded_.find(sizes) == recorded_.end();
    if (is_new && recorded_.size() == kMostSizes) return calls();
    Recorded& recorded = recorded_[sizes];
    if (is_new && !sizes.empty()) return calls();
    if (recorded.executable != nullptr && recorded.workspace_version != context.workspace_version()) {
      context.synchronize();
      GRAVEN_CUDA(cudaGraphExecDestroy(std::exchange(recorded.executable, nullptr)));
    }
    OtherRanks* const ranks = context.others();
    if (ranks != nullptr) ranks->require_together();
    if (recorded.executable == nullptr) {
      const SentByRank before = ranks != nullptr ? ranks->take_sent() : SentByRank{};
      recorded.executable = record(context, calls);
      recorded.workspace_version = context.workspace_version();
      if (ranks != nullptr) {
        recorded.sent = ranks->take_sent();
        ranks->add_sent(before);
      }
    }
    if (ranks != nullptr) ranks->add_sent(recorded.sent);
    GRAVEN_CUDA(cudaGraphLaunch(recorded.executable, context.stream()));
  }

  /// Drops what was recorded: its memory is another's now. The stream must have come to its end.
  void forget() noexcept {
    for (const auto& [sizes, recorded] : recorded_)
      if (recorded.executable != nullptr) (void)cudaGraphExecDestroy(recorded.executable);
    recorded_.clear();
  }

 private:
  static constexpr std::size_t kMostSizes = 64;
  struct Recorded {
    cudaGraphExec_t executable = nullptr;
    int workspace_version = 0;
    SentByRank sent;  ///< by each launch
  };

  /// A graph that is being recorded or has been, destroyed in the end whatever happens.
  class Recording {
   public:
    explicit Recording(cudaStream_t stream) : stream_(stream) {
      // Other threads, with models of their own, may allocate meanwhile.
      GRAVEN_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      records_ = true;
    }
    ~Recording() {
      if (records_) (void)cudaStreamEndCapture(stream_, &graph_);
      if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
      (void)cudaGetLastError();  // of a recording that a failed call has spoilt
    }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    cudaGraph_t end() {
      records_ = false;
      GRAVEN_CUDA(cudaStreamEndCapture(stream_, &graph_));
      return graph_;
    }

   private:
    cudaStream_t stream_;
    cudaGraph_t graph_ = nullptr;
    bool records_ = false;
  };

  template <class Calls>
  static cudaGraphExec_t record(CudaContext& context, const Calls& calls) {
    context.rehearse(calls);  // nothing may be allocated while calls are recorded
    Recording recording(context.stream());
    calls();
    cudaGraphExec_t executable = nullptr;
    GRAVEN_CUDA(cudaGraphInstantiate(&executable, recording.end(), 0));
    return executable;
  }

  std::map<std::vector<std::int64_t>, Recorded> recorded_;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
