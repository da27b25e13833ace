// Where the time of a graph's calls goes: by module and operator, beside what the machine reaches.
//
//   nn::Profile profile = graph.profile(images, labels);     // 3 calls that warm up, 20 that are measured: each trains
//   std::cout << profile;                                    // a table
//   profile.save_trace("trace.json");                        // for ui.perfetto.dev and chrome://tracing
//
//   nn::Profile epoch = graph.profile([&] {                  // the calls that a loop makes anyway
//     for (auto& batch : loader) graph(batch[0], batch[1]);
//   });
//   for (const nn::ProfileRow& row : epoch.rows()) std::cout << row.module << " " << row.seconds << "\n";
//
// As torch.profiler's key_averages().table() and export_chrome_trace(), of modules instead of library calls.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "graven/types.h"

namespace graven::runtime {
class Profile;
}

namespace graven::nn {

struct ProfileOptions {
  std::int64_t warmup = 3;  ///< calls before those that are measured
  std::int64_t steps = 20;  ///< calls that are measured
};

/// The calls of one operator of one module in one phase, in a call of the graph: the mean over the faster half of the
/// calls, those that took no longer than the median.
struct ProfileRow {
  std::string phase;   ///< "prepare", "forward", "backward" or "update"
  std::string module;  ///< "model.hidden": whose operator it is, of several in one call the first; empty: no module's
  std::string operation;  ///< "linear + bias + relu"
  double calls = 0;       ///< of kernels
  double seconds = 0;
  double flops = 0;  ///< of the sizes that the calls had, as are bytes
  double bytes = 0;  ///< that have to move: each input read once, each output written once
  double share = 0;  ///< of the time of the graph's call
  /// max(flops / peak, bytes / bandwidth) by seconds: more than 1 where tensors stay in the caches. 0: not known.
  double share_of_limit = 0;
};

/// A value.
class Profile {
 public:
  /// By phase, module and operator, in the order in which they are computed.
  std::vector<ProfileRow> rows() const;
  /// Calls of the graph that were measured.
  std::int64_t steps() const;
  /// Of a call, from its beginning until the device is done; the rows' seconds add up to most of it.
  double seconds() const;
  /// What the machine reaches in a second, measured before the first call: f32 multiply-adds, counted as two, of the
  /// graph's threads or its device, and bytes that a copy reads and writes. 0: not known.
  double peak_flops() const;
  double bandwidth() const;
  /// Phases, below them their modules, below these their operators, with calls, time, bytes, FLOPs and shares; the
  /// total at the end.
  std::string table() const;
  /// Writes each measured call of the graph and each kernel's call in it as a trace in Chrome's format (JSON), a row a
  /// phase. User error when the file cannot be written.
  void save_trace(const std::string& path, Location where = Location::current()) const;

  explicit Profile(std::shared_ptr<const runtime::Profile> of_calls);

 private:
  std::shared_ptr<const runtime::Profile> of_calls_;
};

/// The table.
std::ostream& operator<<(std::ostream& out, const Profile& profile);

}  // namespace graven::nn
