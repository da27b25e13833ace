// Choices between algorithms that compute the same but for rounding, and the file in which what was measured of them is
// kept, "tuning.json": format "graven.tuning", version 1, one entry a line, sorted.
//
//   {
//   "format": "graven.tuning",
//   "version": 1,
//   "entries": [
//   {"target": "cpu", "device": "Intel(R) Xeon(R) ...", "versions": "graven 0.1.0, kernels 1f3a9c02",
//    "choice": "conv2d f32[1,56,56,64] f32[64,64,3,3] padding 1x1", "chosen": "winograd 4",
//    "milliseconds": {"direct": 1.21, "winograd 2": 0.847, "winograd 4": 0.613}}          (on one line)
//   ]
//   }
//
// What holds for a graph is written into its config (set_tuned), where passes and targets find it: a graph says by
// itself what it becomes. codegen/build/tuning.h measures, and says which entries hold.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace graven::ir {

/// A choice that a graph has been through, and what it fell on.
struct Choice {
  std::string key;                      ///< operator, dtypes and shapes
  std::vector<std::string> candidates;  ///< the names of the algorithms
  std::string taken;
  std::vector<NodeId> nodes;  ///< that compute it
};

/// "direct" and "winograd 4": what the config says that a choice falls on; empty: heuristics choose.
std::string tuned(const Graph& graph, std::string_view key);
void set_tuned(Graph& graph, std::string_view key, std::string chosen);
/// Whether the config says so of any choice.
bool has_tuned(const Graph& graph);

/// Key of Graph::config, a text: the device whose entries a graph was given.
inline constexpr std::string_view kTunedFor = "tuned_for";
/// The choice of how many threads a program has, which stands in no node: "all", or a number.
std::string threads_key(const Graph& graph);
/// What the config says of it; 0: all, or nothing.
int tuned_threads(const Graph& graph);
/// "4", of 1 to 4096; nothing of any other text.
std::optional<int> thread_count(const std::string& text);

struct TuningEntry {
  std::string target, device, versions;
  std::string choice, chosen;
  std::map<std::string, double> milliseconds;  ///< by candidate
  friend auto operator<=>(const TuningEntry&, const TuningEntry&) = default;
};

/// Sorted, and one entry a line: the same entries are the same bytes.
std::string tuning_text(std::vector<TuningEntry> entries);
/// User error naming the file, the place and what was expected, on any mistake.
std::vector<TuningEntry> parse_tuning(std::string_view text, const std::string& file);
/// User error where the file cannot be read, too.
std::vector<TuningEntry> read_tuning(const std::string& file);

}  // namespace graven::ir
