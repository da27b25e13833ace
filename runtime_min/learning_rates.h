// The learning rates of a run: of each parameter group its schedule, and what a plateau has made of it.
//
//   LearningRates rates(model);
//   rates.start(state);             // --lr, --warmup, --total-steps, or the checkpoint's
//   rates.set(state.step);          // before each step
//   rates.follow_plateaus(...);     // behind an epoch
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint.h"
#include "json_writer.h"
#include "ranks.h"
#include "train.h"

namespace graven::runtime {

class LearningRates {
 public:
  explicit LearningRates(TrainableModel& model)
      : model_(model), groups_(model.description().groups), rates_(groups_.empty() ? 1 : groups_.size()) {}

  /// Of each group its first rate and its schedule, from what the state says of them; throws a UsageError where
  /// --total-steps says nothing of the schedule.
  void start(const TrainingState& state);
  /// Before the first step, where it is known how many there will be: throws where a table has fewer factors.
  void require(std::int64_t last, std::int64_t step) const;
  /// To those of the step behind so many.
  void set(std::int64_t steps);
  /// Behind an epoch: `loss` is that of the held-out set, or without one of the training set; `accuracy` the held-out
  /// set's. What is reduced stands in the state. Whether anything is.
  bool follow_plateaus(TrainingState& state, double loss, std::optional<double> accuracy, Ranks& ranks);
  /// "lr" of the first parameter group, and, where there are more, "rates" of all.
  void write(JsonWriter& json) const;
  /// One for each parameter group.
  const std::vector<double>& values() const { return rates_; }

 private:
  TrainableModel& model_;
  std::vector<ParameterGroup> groups_;
  std::vector<double> rates_;
};

}  // namespace graven::runtime
