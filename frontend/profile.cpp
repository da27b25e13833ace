#include "frontend/profile.h"

#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "ir/diagnostic.h"
#include "runtime_min/call_times.h"
#include "runtime_min/error.h"
#include "runtime_min/file.h"
#include "runtime_min/machine.h"

namespace graven::detail {

void ProfileRecording::measure(ir::Executable& executable, const ir::Device& device, int threads,
                               const std::vector<std::int64_t>& symbols, const std::function<void()>& run) {
  if (!profile_) {
    if (threads == 0) threads = runtime::processor_count();
    const std::string where =
        device.is_cpu() ? fmt::format("{} thread{}", threads, threads == 1 ? "" : "s") : device.to_string();
    const ir::MachineLimits limits = executable.machine_limits();
    profile_.emplace(name_, where, runtime::Limits{limits.flops, limits.bytes});
  }
  struct Measuring {
    explicit Measuring(ir::Executable& executable) : executable(executable) { executable.measure_calls(true); }
    ~Measuring() { executable.measure_calls(false); }
    ir::Executable& executable;
  };
  const Measuring measuring(executable);
  const double begin = runtime::steady_clock();
  run();
  const std::vector<ir::CallTime> times = executable.call_times();  // waits for the device
  const double seconds = runtime::steady_clock() - begin;
  if (warmup_ > 0) {
    --warmup_;
    return;
  }
  const std::vector<ir::CallDescription> calls = executable.calls(symbols);
  std::vector<runtime::ProfiledCall> measured;
  for (const ir::CallTime& t : times) {
    const ir::CallDescription& c = calls.at(t.call);
    measured.push_back({c.phase.c_str(), c.module.c_str(), c.operation.c_str(), c.types.c_str(), c.flops, c.bytes,
                        t.begin, t.seconds});
  }
  profile_->add_step(begin, seconds, measured);
}

nn::Profile ProfileRecording::take(Location where) {
  if (!profile_ || profile_->steps() == 0)
    fail_at(name_ + ": profile: expected a function that calls the graph, found one that does not", where);
  return nn::Profile(std::make_shared<const runtime::Profile>(std::move(*profile_)));
}

nn::Profile profile_calls(std::optional<ProfileRecording>& recording, const std::string& name, std::int64_t warmup,
                          std::int64_t calls, const std::function<void()>& work, Location where) {
  if (recording) fail_at(name + ": profile is called within what it profiles", where);
  recording.emplace(name, warmup);
  try {
    for (std::int64_t call = 0; call < calls; ++call) work();
    nn::Profile profile = recording->take(where);
    recording.reset();
    return profile;
  } catch (...) {
    recording.reset();
    throw;
  }
}

nn::Profile profile_calls(std::optional<ProfileRecording>& recording, const std::string& name,
                          const nn::ProfileOptions& options, const std::function<void()>& work, Location where) {
  if (options.warmup < 0)
    fail_at(fmt::format("{}: profile: expected warmup of 0 or more calls, got {}", name, options.warmup), where);
  if (options.steps < 1)
    fail_at(fmt::format("{}: profile: expected steps of 1 or more, got {}", name, options.steps), where);
  return profile_calls(recording, name, options.warmup, options.warmup + options.steps, work, where);
}

}  // namespace graven::detail

namespace graven::nn {

Profile::Profile(std::shared_ptr<const runtime::Profile> of_calls) : of_calls_(std::move(of_calls)) {}

std::vector<ProfileRow> Profile::rows() const {
  std::vector<ProfileRow> list;
  for (runtime::ProfileRow& r : of_calls_->rows())
    list.push_back({std::move(r.phase), std::move(r.module), std::move(r.operation), r.calls, r.seconds, r.flops,
                    r.bytes, r.share, r.share_of_limit});
  return list;
}

std::int64_t Profile::steps() const { return static_cast<std::int64_t>(of_calls_->steps()); }
double Profile::seconds() const { return of_calls_->seconds(); }
double Profile::peak_flops() const { return of_calls_->limits().flops; }
double Profile::bandwidth() const { return of_calls_->limits().bytes; }
std::string Profile::table() const { return of_calls_->table(); }

void Profile::save_trace(const std::string& path, Location where) const {
  if (path.empty()) graven::detail::fail_at("save_trace: expected the name of a file, got an empty one", where);
  try {
    runtime::AtomicFile file(path);
    of_calls_->write_trace(file);
    file.commit();
  } catch (const runtime::Error& e) {
    graven::detail::fail_at(e.what(), where);
  }
}

std::ostream& operator<<(std::ostream& out, const Profile& profile) { return out << profile.table(); }

}  // namespace graven::nn
