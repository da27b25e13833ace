// The calls of a program that runs in this process, as they are measured: by phase and number, as a listener counts
// them, or by their place in the list of all.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "codegen/emit/calls.h"
#include "ir/diagnostic.h"
#include "ir/executable.h"
#include "kernels/config/calls.h"
#include "runtime_min/call_times.h"

namespace graven::codegen {

template <class Clock>
class MeasuredCalls {
 public:
  template <class... OfClock>
  explicit MeasuredCalls(const std::vector<MeasuredCall>& calls, OfClock&&... of_clock)
      : listener(kernels::listener_of(times_)), calls_(calls), times_(std::forward<OfClock>(of_clock)...) {}
  MeasuredCalls(const MeasuredCalls&) = delete;
  MeasuredCalls& operator=(const MeasuredCalls&) = delete;

  std::vector<ir::CallTime> take() {
    std::vector<ir::CallTime> list;
    for (const runtime::CallTime& t : times_.take()) {
      std::size_t call = 0;
      while (call < calls_.size() && ir::name(calls_[call].phase) != t.phase) ++call;
      call += static_cast<std::size_t>(t.call);
      GRAVEN_CHECK(call < calls_.size() && ir::name(calls_[call].phase) == t.phase,
                   std::string("a call of ") + t.phase + " is not in the list of calls");
      list.push_back({call, t.begin, t.seconds});
    }
    return list;
  }

  kernels::CallListener listener;

 private:
  const std::vector<MeasuredCall>& calls_;
  runtime::CallTimes<Clock> times_;
};

}  // namespace graven::codegen
