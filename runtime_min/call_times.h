// When each call of a program began, and how long it took: CallTimes of the processor's calls, DeviceCallTimes of a
// device's. Each has a listener (kernels/config/calls.h), which is set where the calls are made:
//
//   CallTimes<CallListener> times(read_ticks);
//   threads.set_listener(&times.listener);
//   program.forward(step);
//   for (const CallTime& t : times.take()) t.phase, t.call, t.begin, t.seconds;
//
// A call ends where the next one begins, or the phase does: what the program does between two calls is counted with the
// first.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace graven::runtime {

struct CallTime {
  const char* phase;
  std::int64_t call;      ///< its number in the phase, from 0
  double begin, seconds;  ///< the former by the steady clock
};

/// Seconds.
inline double steady_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of calls that leave marks.
template <class Listener>
class CallTimes {
 public:
  /// `ticks`: the clock of the marks.
  explicit CallTimes(std::uint64_t (*ticks)()) : ticks_(ticks), marks_(kMostCalls) {
    listener.self = this;
    listener.begin_phase = [](void* self, const char* name) { static_cast<CallTimes*>(self)->begin_phase(name); };
    listener.end_phase = [](void* self) { static_cast<CallTimes*>(self)->end_phase(); };
    listener.begin_call = nullptr;
    restart();
    origin_ticks_ = ticks_();
    origin_ = steady_clock();
  }
  CallTimes(const CallTimes&) = delete;
  CallTimes& operator=(const CallTimes&) = delete;

  /// The calls since it was last asked, or made.
  std::vector<CallTime> take() {
    if (listener.next == listener.end)
      throw std::runtime_error("calls: expected fewer than " + std::to_string(kMostCalls) + " to measure, found more");
    // Two readings of both clocks, by now far apart.
    const double ticks = since_origin(ticks_()), now = steady_clock();
    const double tick = ticks > 0 ? (now - origin_) / ticks : 0;
    std::vector<CallTime> list;
    for (const Phase& phase : phases_)
      for (std::size_t i = phase.first; i < phase.last; ++i) {
        const double begin = since_origin(marks_[i].ticks),
                     end = since_origin(i + 1 < phase.last ? marks_[i + 1].ticks : phase.end);
        list.push_back(
            {phase.name, static_cast<std::int64_t>(i - phase.first), origin_ + begin * tick, (end - begin) * tick});
      }
    phases_.clear();
    restart();
    return list;
  }

  Listener listener{};

 private:
  static constexpr std::size_t kMostCalls = std::size_t{1} << 18;
  struct Phase {
    const char* name;
    std::size_t first, last;  ///< marks
    std::uint64_t end;
  };

  void restart() {
    listener.next = marks_.data();
    listener.end = marks_.data() + marks_.size();
  }
  double since_origin(std::uint64_t ticks) const { return static_cast<double>(ticks - origin_ticks_); }
  std::size_t count() const { return static_cast<std::size_t>(listener.next - marks_.data()); }
  void begin_phase(const char* name) { phases_.push_back({name, count(), count(), 0}); }
  void end_phase() {
    phases_.back().end = ticks_();
    phases_.back().last = count();
  }

  std::uint64_t (*ticks_)();
  std::vector<typename Listener::Mark> marks_;
  std::vector<Phase> phases_;
  std::uint64_t origin_ticks_ = 0;
  double origin_ = 0;
};

/// Of calls that a device is given. `Clock`: makes marks between them, of which it knows the times once the device is
/// done: kernels/cuda/event_clock.cuh.
template <class Listener, class Clock>
class DeviceCallTimes {
 public:
  template <class... Arguments>
  explicit DeviceCallTimes(Arguments&&... of_clock) : clock_(std::forward<Arguments>(of_clock)...) {
    listener.self = this;
    listener.begin_phase = [](void* self, const char* name) { static_cast<DeviceCallTimes*>(self)->begin_phase(name); };
    listener.begin_call = [](void* self) { static_cast<DeviceCallTimes*>(self)->begin_call(); };
    listener.end_phase = [](void* self) { static_cast<DeviceCallTimes*>(self)->end_phase(); };
  }
  DeviceCallTimes(const DeviceCallTimes&) = delete;
  DeviceCallTimes& operator=(const DeviceCallTimes&) = delete;

  std::vector<CallTime> take() {
    clock_.finish();
    std::vector<CallTime> list;
    list.reserve(measured_.size());
    for (const Measured& m : measured_)
      list.push_back({m.phase, m.call, clock_.seconds(m.begin), clock_.between(m.begin, m.end)});
    measured_.clear();
    return list;
  }

  Listener listener{};

 private:
  using Mark = typename Clock::Mark;
  struct Measured {
    const char* phase;
    std::int64_t call;
    Mark begin, end;
  };

  void begin_phase(const char* name) {
    phase_ = name;
    calls_ = 0;
  }
  void begin_call() {
    const Mark now = clock_.now();
    close(now);
    measured_.push_back({phase_, calls_++, now, now});
    is_open_ = true;
  }
  void end_phase() {
    if (is_open_) close(clock_.now());
  }
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
