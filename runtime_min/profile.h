// Profile: where the time of a program's steps goes: by module and operator, beside what the machine reaches.
//
//   Profile profile("lenet_train", "2 threads", {.flops = 1e11, .bytes = 1e10});
//   profile.add_step(begin, seconds, calls);       // once a step
//   std::puts(profile.table().c_str());
//   AtomicFile file("trace.json");
//   profile.write_trace(file);                     // for ui.perfetto.dev and chrome://tracing
//
// Times are means over the faster half of the largest steps (those that took no longer than the median), so that other
// work on the machine does not count and the rows add up. What a row could take at least is max(FLOPs / peak, bytes /
// bandwidth) (the roofline: Williams, Waterman and Patterson, CACM 52(4), 2009); its share of the limit is that, by its
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace graven::runtime {

class AtomicFile;

/// What a second brings, measured.
struct Limits {
  double flops = 0;  ///< f32 multiply-adds, counted as two; 0: not known
  double bytes = 0;  ///< read and written by a copy; 0: not known
};

/// A kernel's call. The texts are those of the program's list of calls, and outlive the profile.
struct ProfiledCall {
  const char* phase = "";      ///< "forward"
  const char* module = "";     ///< "model.hidden"; empty: it is no module's
  const char* operation = "";  ///< "linear + bias + relu"
  const char* types = "";      ///< "f32[64,784] -> f32[64,256]"
  double flops = 0, bytes = 0;
  double begin = 0, seconds = 0;  ///< the former by the steady clock
};

/// A module's calls of one operator in one phase, or all of a module's, or all of a phase's, in a step.
struct ProfileRow {
  std::string phase{}, module{}, operation{};
  double calls = 0;  ///< a step
  double seconds = 0, flops = 0, bytes = 0;
  double share = 0;           ///< of the step's time
  double share_of_limit = 0;  ///< what it could take at least, by what it takes; 0: the limits are not known
};

class Profile {
 public:
  Profile() = default;
  /// `where`: "2 threads".
  Profile(std::string name, std::string where, Limits limits)
      : name_(std::move(name)), where_(std::move(where)), limits_(limits) {}

  /// A step, or a call, that began and took so long; its calls in order. `samples`: how many it was for, where its
  /// calls do not tell it.
  void add_step(double begin, double seconds, const std::vector<ProfiledCall>& calls, std::int64_t samples = 0);
  /// A line below the table's title.
  void add_note(std::string note) { notes_.push_back(std::move(note)); }

  std::size_t steps() const { return steps_.size(); }
  Limits limits() const { return limits_; }
  /// Of a step.
  double seconds() const;
  /// By phase, module and operator, in the order of their first calls.
  std::vector<ProfileRow> rows() const;
  /// Operators below their modules, modules below their phases, what is no call's, and the total.
  std::string table() const;
  /// Chrome's trace format: each step, and each call in a row of its phase. Microseconds.
  void write_trace(AtomicFile& file) const;

 private:
  struct Kind {
    std::string phase, module, operation, types;
    double flops, bytes;
    friend auto operator<=>(const Kind&, const Kind&) = default;
  };
  struct Timed {
    std::size_t kind;  ///< into kinds_
    double begin, seconds;
  };
  struct Step {
    double begin, seconds;
    std::int64_t samples;
    double flops, bytes;
    std::vector<Timed> calls;

    /// What makes one step larger than another.
    auto size() const { return std::tuple(samples, calls.size(), flops, bytes); }
  };

  /// Those of the largest size, as most are; the last batch of a data set may be a smaller one.
  std::vector<const Step*> largest() const;
  std::vector<const Step*> faster_half() const;
  void add_shares(ProfileRow& row, double least) const;
  double least_seconds(const Kind& kind) const;

  std::string name_, where_;
  Limits limits_;
  std::vector<std::string> notes_;
  std::vector<Kind> kinds_;
  std::map<Kind, std::size_t> numbers_;
  std::vector<Step> steps_;
};

}  // namespace graven::runtime
