// What calls of a graph leave behind while they are profiled (graven/profile.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graven/profile.h"
#include "ir/device.h"
#include "ir/executable.h"
#include "runtime_min/profile.h"

namespace graven::detail {

class ProfileRecording {
 public:
  /// `warmup`: so many calls are not kept.
  ProfileRecording(std::string name, std::int64_t warmup) : name_(std::move(name)), warmup_(warmup) {}

  /// A call of the program, which `run` makes. The machine's limits are measured before the first one.
  void measure(ir::Executable& executable, const ir::Device& device, int threads,
               const std::vector<std::int64_t>& symbols, const std::function<void()>& run);
  /// User error where the graph was not called.
  nn::Profile take(Location where);

 private:
  std::string name_;
  std::int64_t warmup_;
  std::optional<runtime::Profile> profile_;
};

/// Makes `work`, with `recording` in place, where nothing is yet, as long as that takes; `calls` times.
nn::Profile profile_calls(std::optional<ProfileRecording>& recording, const std::string& name, std::int64_t warmup,
                          std::int64_t calls, const std::function<void()>& work, Location where);
/// The same, of so many calls that are kept, after others that are not. User error where these numbers are none.
nn::Profile profile_calls(std::optional<ProfileRecording>& recording, const std::string& name,
                          const nn::ProfileOptions& options, const std::function<void()>& work, Location where);

}  // namespace graven::detail
