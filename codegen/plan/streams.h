// Which steps are done when a step begins, where a target has several streams: those before it on its own, those that
// it waits for, and those that were done when these began.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codegen/plan/plan.h"
#include "codegen/plan/storage.h"
#include "ir/graph.h"

namespace graven::codegen {

class HappensBefore {
 public:
  /// Sets the steps' waits, as few as will do.
  HappensBefore(const ir::Graph& graph, const Storage& storage, Plan& plan);

  /// Whether `step` is done when `later` begins.
  bool operator()(std::int32_t step, std::int32_t later) const {
    return streams_ == 1 ? step < later : done(later)[at(stream_[at(step)])] >= step;
  }
  /// The last step that may run beside `step`, or before it: itself where there is none behind.
  std::int32_t last_beside(std::int32_t step) const;

 private:
  /// By stream: the last of its steps that is done when `step` begins, -1: none.
  std::span<const std::int32_t> done(std::int32_t step) const {
    return std::span(done_).subspan(at(step) * streams_, streams_);
  }
  std::size_t streams_;
  std::vector<std::int32_t> stream_, done_;           // by step
  std::vector<std::vector<std::int32_t>> on_stream_;  // the steps that call something
};

}  // namespace graven::codegen
