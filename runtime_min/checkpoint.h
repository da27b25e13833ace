// Checkpoints of a training run: a folder of folders, each complete or not there.
//
//   checkpoints/
//     step-00000938/  weights.safetensors  optimizer.safetensors  manifest.json
//     step-00001876/  ...
//     latest -> step-00001876,  best -> step-00000938
//
//   CheckpointFolder folder("checkpoints");             // made if need be, and locked against a second run
//   folder.save(state, weights, states, keep);
//   TrainingState state = load_newest("checkpoints", computation, weights, states, report);
//
// A checkpoint is written under a temporary name, every file synced, the manifest with the sizes and SHA-256 of the
// others last, the folder renamed, its parent synced; so whenever the program or the machine stops, the newest
// checkpoint or the one before it loads. Loading verifies sizes, hashes, names, dtypes and shapes before it touches the
// model, and is all or nothing. Doubles in the manifest read back to the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plateau.h"
#include "tensor.h"

namespace graven::runtime {

/// Where a run stands: with weights and optimizer state, all that it takes to go on exactly.
struct TrainingState {
  std::string model, graph_hash, generator;
  std::string computation;               ///< the digest of what a step computes
  std::int64_t step = 0;                 ///< updates done, those too that were skipped
  std::int64_t draws = 0;                ///< parts of all steps that are done: what random numbers go by
  std::int64_t epoch = 0;                ///< the epoch in progress, from 0
  std::int64_t position = 0;             ///< samples of it that are done
  std::int64_t samples = 0;              ///< of the training set
  /// Of the samples done in this epoch those whose loss was a number: a scaled loss may be none, and its step is
  /// skipped.
  std::int64_t counted = 0;
  double loss_sum = 0;                   ///< of these
  std::vector<double> result_sums = {};  ///< the same of other results, of whole numbers their sums
  // The options that shape the run.
  std::int64_t seed = 0;
  std::int64_t batch = 0;
  std::int64_t accumulation_steps = 1;  ///< batches of a step
  bool shuffle = true;
  bool drop_last = false;
  double lr = 0;
  std::int64_t warmup = 0;
  std::int64_t total_steps = 0;
  // The best evaluation so far.
  bool has_best = false;
  double best_metric = 0;  ///< larger is better: samples classified rightly, or a loss, negated
  std::int64_t best_step = 0;
  // What --patience waits for.
  bool has_watched = false;
  double watched_loss = 0;        ///< the least so far
  std::int64_t watched_step = 0;  ///< when that was
  std::int64_t waited = 0;        ///< epochs looked at since then
  // What reduces rates, and where these start from since.
  std::vector<PlateauState> plateaus = {};
  std::vector<double> reduced_lrs = {};  ///< by parameter group; none: nothing was reduced
};

class CheckpointFolder {
 public:
  using Report = std::function<void(const std::string& text)>;
  /// Makes the folder, locks it, and removes what a killed run left half-written. An Error when another run has it.
  /// `report` is told of what could not be put in order and does not end the run.
  explicit CheckpointFolder(std::string path, Report report = {});
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;
  ~CheckpointFolder();

  /// Saves as step-<state.step>, points `latest` and `best` at it where it is, and removes all but the `keep` newest
  /// (0: none) and the best. Checkpoints of later steps, which an exact run cannot have, are removed. Returns the path.
  /// On an Error the older ones are as they were. Of a checkpoint only the three files are removed: whatever else lies
  /// there is a user's, and stays with its folder. Once the new checkpoint is safe no fault of the others is an Error.
  /// `whole` as for save_variables(), the weights before the states.
  std::string save(const TrainingState& state, std::span<const Variable> weights, std::span<const Variable> states,
                   std::int64_t keep, const std::function<const void*(const Variable&)>& whole = {});
  /// Removes every checkpoint.
  void clear();
  const std::string& path() const { return path_; }

 private:
  void tidy(const TrainingState& state, std::int64_t keep);
  void remove(const std::string& checkpoint);
  void tell(const std::string& text);

  std::string path_;
  Report report_;
  std::set<std::string> told_;  ///< once is enough
  int lock_ = -1;
};

/// Paths of the checkpoints in the folder, newest first, whether they are valid or not. Empty when there is no such
/// folder.
std::vector<std::string> list_checkpoints(const std::string& folder);
/// The files of a checkpoint that hold the weights, and the states.
std::string weights_file(const std::string& checkpoint);
std::string states_file(const std::string& checkpoint);
/// The step in a checkpoint's name.
std::int64_t step_of(const std::string& checkpoint);
/// Whether its manifest and files agree in size and hash, or it is of a newer format.
bool is_whole_checkpoint(const std::string& path);
/// Loads one checkpoint, whole or not at all. An Error when it is of another computation, whatever graph.json it was
/// made by.
TrainingState load_checkpoint(const std::string& path, std::string_view computation, std::span<const Variable> weights,
                              std::span<const Variable> states);
/// Loads the newest one that is whole; `report` is told why newer ones were passed over. An Error when there is none,
/// or when the newest whole one is another computation's, or the newest is of a newer format. `loaded`, if given,
/// becomes its path.
TrainingState load_newest(const std::string& folder, std::string_view computation, std::span<const Variable> weights,
                          std::span<const Variable> states, const std::function<void(const std::string&)>& report,
                          std::string* loaded = nullptr);

}  // namespace graven::runtime
