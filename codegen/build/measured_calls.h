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

/// `Times`: runtime::CallTimes or DeviceCallTimes.
template <class Times>
class MeasuredCalls {
 public:
  template <class... OfTimes>
  explicit MeasuredCalls(const std::vector<MeasuredCall>& calls, OfTimes&&... of_times)
      : calls_(calls), times_(std::forward<OfTimes>(of_times)...) {}
  MeasuredCalls(const MeasuredCalls&) = delete;
  MeasuredCalls& operator=(const MeasuredCalls&) = delete;

  std::vector<ir::CallTime> take() {
    std::vector<ir::CallTime> list;
    std::size_t first = 0;  // call of the phase
    for (const runtime::CallTime& t : times_.take()) {
      if (t.call == 0)
        for (first = 0; first < calls_.size() && ir::name(calls_[first].phase) != t.phase;) ++first;
      const std::size_t call = first + static_cast<std::size_t>(t.call);
      GRAVEN_CHECK(call < calls_.size() && ir::name(calls_[call].phase) == t.phase,
                   std::string("a call of ") + t.phase + " is not in the list of calls");
      list.push_back({call, t.begin, t.seconds});
    }
    return list;
  }

  kernels::CallListener* listener() { return &times_.listener; }

 private:
  const std::vector<MeasuredCall>& calls_;
  Times times_;
};

}  // namespace graven::codegen
