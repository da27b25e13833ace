// A pipeline: processes train one model together, each a stage of it, a group of its layers. A step's batch comes in
// parts. A stage computes a part's forward phase and sends what the next ones read to them; gradients come back the
// other way. So that all stages work at once, several parts are under way, in the order that is called one forward, one
// backward (1F1B; PipeDream: Narayanan et al., 2019, with the flush of its second edition): three stages, five parts,
//
//   stage 0   F0 F1 F2       B0 F3 B1 F4 B2    B3    B4  U
//   stage 1      F0 F1    B0 F2 B1 F3 B2 F4 B3    B4     U
//   stage 2         F0 B0 F1 B1 F2 B2 F3 B3 F4 B4        U
//
// Stage s of S has S - s parts under way at the most, each with an arena of its own, a slot. Backward runs part after
// part in the order of their numbers, as one process does: gradients add up to the same bits.
//
//   StagePipeline pipeline(stages);             // of Ranks::all(), a multiple of the stages
//   pipeline.start(weights, states, 600);
//   loss = pipeline.step(parts, [&](std::int64_t part, int slot) { return StagePart{...}; });
//
// An evaluation goes through the stages likewise, forward alone: a stage that waits for no gradient has as many parts
// under way as it has slots.
//
//   pipeline.evaluate(batches, [&](std::int64_t batch, int slot) { return StagePart{...}; }, add_up);
//
// Where there are more ranks than stages, each stage has several, its replicas: rank r runs stage r % S of replica r /
// S, on parts of its own, and a gradient is the mean over the replicas (all_reduce, over Ranks::peers()).
//
// A rank holds what its stage has: the first one gets the others' weights and states for a checkpoint, in the host's
// memory, and hands out what it has read.
//
// A parameter that several stages read has one that owns it, the first: what the others add to its gradient flows there
// part by part, and behind the update they get its new value.
//
// A model on a device gives its calls to it and returns; values go from device to device (kernels/cuda/nccl.cuh).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ranks.h"
#include "train.h"

namespace graven::runtime {

/// A value that one stage makes and another reads, of the part in a slot.
struct Crossing {
  /// It is there behind this phase of `from`, and read in that of `to`; of the update, it is there once that has begun.
  enum class Phase { forward, backward, update, evaluate } phase;
  int from, to;
  void* data;
  std::size_t bytes;
};

/// The stages that read a weight or a state, its owner first, who alone changes it: by updates, which are the same in
/// all replicas, or by what it observes while parts run, as running statistics are.
struct StagesOfVariable {
  const char* path;
  enum class Change { fixed, learned, observed } change;
  std::vector<int> stages;
};

/// What carries values from one rank's stage to another's. They are sent once the calls before have computed them, and
/// go on beside those that follow.
class StageMessages {
 public:
  virtual ~StageMessages() = default;
  /// Of a slot; `tag` tells those of two ranks apart that are under way together.
  virtual void send(int slot, int to, int tag, const void* data, std::size_t bytes) = 0;
  virtual void receive(int from, int tag, void* data, std::size_t bytes) = 0;
  /// What calls do from here on comes behind all that was to be received.
  virtual void finish_receiving() = 0;
  /// The same of what was sent from a slot: calls may write where it lies.
  virtual void finish_sending(int slot) = 0;
};

/// What a model does for a pipeline. Slots are numbered from 0.
class StagedModel {
 public:
  virtual ~StagedModel() = default;
  virtual int stages() const = 0;
  /// Of this rank, between the places that crossings() and place_of() name; nullptr: those are the host's memory.
  virtual StageMessages* messages() { return nullptr; }
  /// Where a weight or a state lies, of which `variable` is the host's.
  virtual void* place_of(const Variable& variable) { return variable.data; }
  /// As TrainableModel's.
  virtual void weights_needed() {}
  virtual void weights_changed() {}
  /// Memory for so many parts of this rank's stage.
  virtual void set_slots(int stage, int count) = 0;
  /// The slot has this part now.
  virtual void prepare(int slot, const StagePart& part) = 0;
  /// The forward phase of a stage.
  virtual void forward(int stage, int slot) = 0;
  /// The backward phase, which adds to the gradients.
  virtual void backward(int stage, int slot) = 0;
  /// The loss that forward() has computed for the part that a slot has, 0 where the stage computes none. It adds to
  /// `numbers` what the stage makes of TrainableModel::numbers(); nullptr: nothing.
  virtual double results(int stage, int slot, double* numbers) = 0;
  /// Behind the last part, on every rank: the gradients are the mean of all replicas'.
  virtual void finish_gradients() { Ranks::peers().finish(); }
  /// Behind the last part, which is in slot 0: what the updates of other stages read of this one's gradients, the norms
  /// of them; then the update.
  virtual void begin_update(int stage) = 0;
  virtual void update(int stage) = 0;
  /// What the stage has of an evaluation of the part that a slot has.
  virtual void evaluate(int stage, int slot) = 0;
  /// What it has computed of it: 0 of what another stage does.
  virtual Evaluation evaluated(int stage, int slot, const StagePart& part) = 0;
  /// The step, or the evaluation, is over: waits for what it has given to a device.
  virtual void end_step() {}
  /// In the same order on all ranks, with the part's sizes.
  virtual const std::vector<Crossing>& crossings(int slot) = 0;
  virtual const std::vector<StagesOfVariable>& stages_of_variables() const = 0;
};

class StagePipeline final : public Pipeline {
 public:
  explicit StagePipeline(StagedModel& model);
  ~StagePipeline() override;

  int stages() const override { return model_.stages(); }
  int replicas() const override { return ranks_.size() / stages(); }
  int replica() const override { return ranks_.rank() / stages(); }
  int slots() const override { return stages() - stage_; }
  void start(const std::vector<Variable>& weights, const std::vector<Variable>& states, double time_limit) override;
  double step(std::int64_t parts, const StageParts& part, double* numbers) override;
  void hand_out() override;
  void bring_to_first() override;
  void share_statistics() override;
  void evaluate(std::int64_t parts, const StageParts& part, const EvaluatedPart& result) override;
  bool has_gradient(const std::string& parameter) const override;

 private:
  using Change = StagesOfVariable::Change;
  struct Held {
    Variable variable;
    Change change;
    std::vector<int> stages;
  };
  void forward(std::int64_t part, std::int64_t parts, const StageParts& parts_of_step);
  void backward(std::int64_t part, std::int64_t parts);
  /// The results of the parts before this one that have not been asked for.
  void collect(std::int64_t before, std::int64_t parts, double* numbers);
  void share_changed_weights();
  void send(int slot, Crossing::Phase phase);
  void receive(int slot, Crossing::Phase phase);
  /// The last part of a step is in slot 0, where its results are looked for.
  int slot_of(std::int64_t part, std::int64_t parts) const {
    return static_cast<int>((parts - 1 - part) % std::int64_t{slots()});
  }
  bool has(const Held& held) const;
  /// The rank that runs a stage of this rank's replica.
  int rank_of(int stage) const { return replica() * stages() + stage; }

  Ranks& ranks_ = Ranks::all();
  StagedModel& model_;
  const int stage_;
  std::vector<Held> weights_, states_;
  std::unique_ptr<StageMessages> own_messages_;  ///< where the model has none
  StageMessages* messages_ = nullptr;
  std::int64_t collected_ = 0;  ///< parts of the step
  double loss_ = 0;             ///< theirs
};

}  // namespace graven::runtime
