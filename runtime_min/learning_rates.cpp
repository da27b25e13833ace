#include "learning_rates.h"

#include <algorithm>
#include <string>

#include "arguments.h"
#include "error.h"

namespace graven::runtime {

void LearningRates::start(const TrainingState& state) {
  const double base = groups_.empty() ? 0 : groups_[0].lr;
  bool any_length = false;
  std::int64_t before = 0;
  for (ParameterGroup& group : groups_) {
    // With one group this is --lr itself, not a product that rounds.
    group.lr = group.lr == base ? state.lr : base == 0 ? group.lr : group.lr * (state.lr / base);
    before = std::max(before, group.schedule.start_of_last_part());
    if (state.total_steps > 0) any_length = group.schedule.set_length(state.total_steps) || any_length;
    if (state.warmup > 0) {
      group.schedule.warmup = Schedule::Warmup::linear;
      group.schedule.warmup_iters = state.warmup;
    }
  }
  if (state.reduced_lrs.size() == groups_.size())
    for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].lr = state.reduced_lrs[g];
  if (state.total_steps == 0 || any_length) return;
  if (state.total_steps <= before) {
    throw UsageError("--total-steps", "",
                     "more than the " + std::to_string(before) + " steps before the learning-rate schedule's last part",
                     std::to_string(state.total_steps));
  }
  throw UsageError("--total-steps", "the model's learning-rate schedule has no length to set");
}

void LearningRates::require(std::int64_t last, std::int64_t step) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::int64_t covered = groups_[g].schedule.covered_steps(), made = last - model_.skipped(g);
    if (made <= covered || last <= step) continue;
    throw Error("training", "learning rates",
                "factors of the " + std::to_string(made) +
                    " steps that the run has (tabulated_steps of LambdaLR when the program was emitted; --epochs and "
                    "--steps)",
                "those of " + std::to_string(covered));
  }
}

void LearningRates::set(std::int64_t steps) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::int64_t done = steps - model_.skipped(g);
    if (!groups_[g].schedule.covers(done))
      throw Error("training", std::string("step ") + std::to_string(done + 1),
                  "at most " + std::to_string(groups_[g].schedule.covered_steps()) +
                      " steps, for which the program has the factors of its learning rate (tabulated_steps of LambdaLR "
                      "when it was emitted)",
                  "one more");
    rates_[g] = groups_[g].schedule.learning_rate(groups_[g].lr, done);
  }
}

bool LearningRates::follow_plateaus(TrainingState& state, double loss, std::optional<double> accuracy, Ranks& ranks) {
  const std::vector<Plateau>& plateaus = model_.description().plateaus;
  bool any = false;
  for (std::size_t p = 0; p < plateaus.size(); ++p) {
    const Plateau& plateau = plateaus[p];
    if (!plateau.sees(state.plateaus[p], plateau.max ? accuracy.value() : loss)) continue;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].plateau == static_cast<int>(p)) {
        double& lr = groups_[g].lr;
        const double next = plateau.reduced(groups_[g].schedule, lr, groups_[g].min_lr, state.step - model_.skipped(g));
        any = any || next != lr;
        lr = next;
      }
  }
  // What the first rank has found holds: sums of ranks are the same on all of them, and this does not rest on it.
  ranks.broadcast(&any, sizeof any);
  ranks.broadcast(state.plateaus.data(), state.plateaus.size() * sizeof(PlateauState));
  if (!any) return false;
  state.reduced_lrs.resize(groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) state.reduced_lrs[g] = groups_[g].lr;
  ranks.broadcast(state.reduced_lrs.data(), state.reduced_lrs.size() * sizeof(double));
  for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].lr = state.reduced_lrs[g];
  set(state.step);
  return true;
}

void LearningRates::write(JsonWriter& json) const {
  json.key("lr").value(rates_[0]);
  if (groups_.size() < 2) return;
  json.key("rates").begin_array();
  for (const double rate : rates_) json.value(rate);
  json.end_array();
}

}  // namespace graven::runtime
