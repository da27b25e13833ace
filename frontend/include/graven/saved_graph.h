// A graph without its model's code: what graph.save("folder") wrote, read back and run.
//
//   nn::SavedGraph style("style_transfer");                      // graph.json and weights.safetensors
//   Tensor painting = style({picture}).at(0);
//
//   nn::SavedGraph training("mlp_train");                        // a training graph: every call is a step
//   training.load_state_dict(nn::load("state.safetensors"));     // where it was stopped, if its state_dict() was saved
//   Tensor loss = training({images, labels}).at(0);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graven/module.h"
#include "graven/profile.h"
#include "graven/tree.h"
#include "ir/graph.h"

namespace graven::nn {

/// A handle, like a module. Not for two threads at a time.
class SavedGraph {
 public:
  /// User error naming the file and the place when one of the two files is missing, damaged, or does not fit the other.
  /// Compiles nothing yet.
  explicit SavedGraph(const std::string& directory, Location where = Location::current());

  /// The class of the graph that was saved: "TrainMlp".
  const std::string& name() const;
  const ir::Graph& graph() const;
  /// Whether it has an optimizer.
  bool training() const;
  /// Shape, dtype and name of each input, in the order in which calls take them: that of the tensors in the tree that
  /// build() took.
  std::vector<Spec> inputs() const;
  /// The outputs' names, in the order of the tree that build() returned.
  std::vector<std::string> output_names() const;

  /// Runs the program, which the first call compiles; in a training graph this is one training step. One tensor for
  /// each of inputs(); symbolic dimensions may have any value up to their maximum. User error naming the input that
  /// does not fit.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs, Location where = Location::current());

  /// As nn::Graph's: options.warmup calls and then options.steps that are measured, each of which trains where this is
  /// a training graph.
  Profile profile(const std::vector<Tensor>& inputs, const ProfileOptions& options = {},
                  Location where = Location::current());

  /// The rates of the next step, by optimizer and parameter group.
  std::vector<double> learning_rates() const;
  /// Training calls so far. The folder has no optimizer state: a graph read back starts at 0, until a state_dict() is
  /// loaded.
  std::int64_t train_step() const;
  /// Moves parameters, buffers and states to the device, where the graph runs from the next call on.
  void to(const Device& device, Location where = Location::current());
  /// As nn::Graph's: parameters and buffers; when training also optimizer state ("hidden.weight-momentum") and
  /// "train_step".
  StateDict state_dict() const;
  /// All or nothing.
  LoadReport load_state_dict(const StateDict& state, bool strict = true, Location where = Location::current());

  /// As nn::Graph's.
  void debug(int v_level = 0);
  /// Threads of the program; 0: all. Before the first call.
  void set_threads(int threads);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace graven::nn
