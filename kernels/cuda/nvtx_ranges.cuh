// NvtxRanges: a listener to calls (kernels/config/calls.h) that puts each into a range of NVTX, which Nsight Systems
// and others show above the device's work: the phase, and in it "model.hidden: linear + bias + relu".
//
//   NvtxRanges ranges(&nvtxRangePushA, &nvtxRangePop, {{"forward", {"model.hidden: linear + bias + relu", ...}}});
//   context.set_listener(&ranges.listener);
//
// A range is open while the host gives its call to the device. Calls that are recorded as a CUDA graph have theirs
// while they are recorded; the graph has none.
#pragma once

#ifndef __CUDACC_RTC__
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../config/calls.h"

namespace graven::kernels {

class NvtxRanges {
 public:
  using Push = int (*)(const char* name);
  using Pop = int (*)();
  /// `names`: of each phase's calls, in order.
  NvtxRanges(Push push, Pop pop, std::map<std::string, std::vector<std::string>> names)
      : push_(push), pop_(pop), names_(std::move(names)) {
    listener.self = this;
    listener.begin_phase = [](void* self, const char* name) { static_cast<NvtxRanges*>(self)->begin_phase(name); };
    listener.begin_call = [](void* self) { static_cast<NvtxRanges*>(self)->begin_call(); };
    listener.end_phase = [](void* self) { static_cast<NvtxRanges*>(self)->end_phase(); };
    listener.of_each_call = false;
  }
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  CallListener listener{};

 private:
  void begin_phase(const char* name) {
    push_(name);
    const auto found = names_.find(name);
    calls_ = found == names_.end() ? nullptr : &found->second;
    next_ = 0;
  }
  void begin_call() {
    end_call();
    push_(calls_ != nullptr && next_ < calls_->size() ? (*calls_)[next_].c_str() : "a call that calls.h does not have");
    ++next_;
    is_open_ = true;
  }
  void end_call() {
    if (is_open_) pop_();
    is_open_ = false;
  }
  void end_phase() {
    end_call();
    pop_();
  }

  Push push_;
  Pop pop_;
  std::map<std::string, std::vector<std::string>> names_;
  const std::vector<std::string>* calls_ = nullptr;
  std::size_t next_ = 0;
  bool is_open_ = false;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
