// Choices of algorithms by measurement: what is measured on this machine's processor or device, the file it is kept in
// (ir/tuning.h), and which of a file's entries hold for a graph here.
//
//   TuneReport report = tune(traced, {.weights = weights});                        // measures
//   write(ir::tuning_text(merged(report.entries, before)));
//   const std::string note = apply_tuning(traced, "saved/tuning.json", target);  // the graph's config says what holds
//
// Candidates are measured where they will work: in programs of the whole graph, each of which takes another candidate
// for every choice at once, run in turns; the least time of each counts, since others' work on the machine only adds to
// it. A choice is a key, operator, dtypes and shapes; calls that have it in common are measured together.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/targets/targets.h"
#include "ir/graph.h"
#include "ir/tuning.h"

namespace graven::codegen {

/// What times depend on besides the device: "graven 0.1.0, kernels 1f3a9c02", a digest of the target's kernels, and
/// ", cuBLASLt 130100" of the device that is here. User error where that is not there.
std::string tuning_versions(const Target& target, bool with_libraries = true);

/// Writes into the graph's config those of the file's entries that hold for it: of the target, of this device (the
/// target's, or `device`; or `tuned_for`, whose libraries are then taken for those of the entry), of these versions, of
/// choices that the graph has, and another than what heuristics choose. Returns one line about those of the target that
/// do not hold, or nothing. Does nothing to a graph that has been through passes: its choices have been made. User
/// error where the file cannot be read or is damaged.
std::string apply_tuning(ir::Graph& graph, const std::string& file, const Target& target,
                         const std::string& tuned_for = {}, const std::optional<ir::Device>& device = {});

struct TuneOptions {
  std::string target = {};  ///< a name of codegen::targets(); empty: the first
  int threads = 0;          ///< of a program for the processor; 0: measured, too
  int rounds = 7;
  /// Parameters and buffers by name; what is missing is made up.
  std::map<std::string, std::shared_ptr<const ir::TensorData>> weights = {};
};

struct TuneReport {
  std::vector<ir::TuningEntry> entries;
  std::map<std::string, std::string> heuristics;  ///< by choice
  /// Of a step by heuristics, and as tuned.
  double milliseconds_before = 0, milliseconds_after = 0;
  /// Together the candidates that were faster by themselves are slower: the heuristics' have stayed.
  bool slower_together = false;
};

/// Measures every candidate of every choice of a graph at its trace.
TuneReport tune(const ir::Graph& traced, const TuneOptions& options);

/// What `before` has of other targets and devices, and the new entries.
std::vector<ir::TuningEntry> merged(std::vector<ir::TuningEntry> entries, const std::vector<ir::TuningEntry>& before);

}  // namespace graven::codegen
