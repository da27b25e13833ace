// CallTimes: when each call of a program began, and how long it took. It listens to the calls (kernels/config/calls.h)
// and asks the clock of the device that they run on:
//
//   CallTimes<HostClock> times;
//   times.begin_phase("forward"), times.begin_call(), times.begin_call(), times.end_phase();
//   for (const CallTime& t : times.take()) t.phase, t.call, t.begin, t.seconds;
//
// A call ends where the next one begins, or the phase does: what the program does between two calls is counted with the
// first.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace graven::runtime {

struct CallTime {
  const char* phase;
  std::int64_t call;      ///< its number in the phase, from 0
  double begin, seconds;  ///< the former by the steady clock
};

/// Of the processor.
class HostClock {
 public:
  using Mark = double;
  Mark now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  /// Once all work is done that was given to the device.
  void finish() {}
  double seconds(Mark mark) const { return mark; }
  double between(Mark first, Mark second) const { return second - first; }
};

/// `Clock`: its marks are of the order in which the device does its work; see HostClock.
template <class Clock>
class CallTimes {
 public:
  template <class... Arguments>
  explicit CallTimes(Arguments&&... of_clock) : clock_(std::forward<Arguments>(of_clock)...) {}

  void begin_phase(const char* name) {
    phase_ = name;
    calls_ = 0;
  }
  void begin_call() {
    const auto now = clock_.now();
    close(now);
    measured_.push_back({phase_, calls_++, now, now});
    is_open_ = true;
  }
  void end_phase() {
    if (is_open_) close(clock_.now());
  }

  /// The calls since it was last asked.
  std::vector<CallTime> take() {
    clock_.finish();
    std::vector<CallTime> list;
    list.reserve(measured_.size());
    for (const Measured& m : measured_)
      list.push_back({m.phase, m.call, clock_.seconds(m.begin), clock_.between(m.begin, m.end)});
    measured_.clear();
    return list;
  }

 private:
  using Mark = typename Clock::Mark;
  struct Measured {
    const char* phase;
    std::int64_t call;
    Mark begin, end;
  };

  void close(const Mark& now) {
    if (is_open_) measured_.back().end = now;
    is_open_ = false;
  }

  Clock clock_;
  std::vector<Measured> measured_;
  bool is_open_ = false;
  const char* phase_ = "";
  std::int64_t calls_ = 0;
};

}  // namespace graven::runtime
