// The stages of a pipeline: where a network is cut, so that the slowest stage is as fast as it can be, and when each
// stage does what.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/simulate/tensor_parallel.h"
#include "codegen/simulate/workload.h"

namespace graven::codegen {

/// By boundary, before position 0, 1, ... and behind the last one: bytes of activations that cross it, and of their
/// gradients, which come back.
struct Crossed {
  std::vector<double> forward, backward;
};
Crossed crossed(const Workload& workload, const Shards& shards);

/// Of each number of stages from 1 to `most`: the positions where they begin, from 0, and where the last one ends.
///
/// A dynamic program over the positions. With t(i, j) the seconds of both phases between two cuts, and what the cut at
/// j sends behind them,
///   slowest(s, j) = min over i < j of max(slowest(s - 1, i), t(i, j)),
/// and of equal ones that with the fewest bytes across the cuts. Of more than 512 positions those are looked at where
/// the fewest bytes cross, one for each share of the time. Fewer stages where there are not so many positions.
std::vector<std::vector<std::int32_t>> cut_into_stages(const std::vector<double>& seconds, const Crossed& crossed,
                                                       std::int64_t most, const Link& link);

/// What the stages do with a batch, in seconds.
struct StageTimes {
  std::vector<double> forward, backward;
  std::vector<double> down, up;  ///< of the cut behind each stage but the last: activations, and gradients back
};
/// One batch in one stage.
struct Slot {
  std::int32_t stage = 0;
  std::int64_t batch = 0;
  bool is_forward = false;
  double begin = 0, end = 0;
};
struct PipelineRun {
  std::vector<double> ends, last_backward;  ///< by stage: when it is done; when it begins the last batch's backward
  std::vector<Slot> slots;                  ///< where they were asked for
};
/// PipeDream-flush: stage k of S begins with min(S - k, batches) forwards, then does a backward and a forward in turn,
/// and ends with backwards. A stage computes while it sends; each cut carries one message each way at a time.
PipelineRun one_forward_one_backward(const StageTimes& times, std::int64_t batches, bool record = false);

}  // namespace graven::codegen
