// Optimizers, with PyTorch's formulas and defaults.
//
//   optim::SGD optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9});
//   loss.backward();
//   optimizer.step();
//   optimizer.zero_grad();
//
//   optim::AdamW optimizer({{decayed, {.lr = 3e-4, .weight_decay = 0.1}}, {others, {.lr = 3e-4, .weight_decay = 0}}});   // groups
//
// clip_grad_max_norm, an option of every optimizer and group: before the update, the gradients of the group are scaled down to that norm, as one
// vector, by nn::utils::clip_grad_norm_'s formula; within a graph too. clip_grad_norm_type: 2, another positive order, or infinity.
//
// An optimizer is a handle, like a module. Within a graph, add_optimizer(optimizer) makes it part of the program.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graven/tensor.h"
#include "ir/graph.h"

namespace graven::optim {

class Optimizer {
 public:
  /// One update from grad() of each parameter; parameters without a gradient are left alone.
  void step();
  /// set_to_none: forget the gradients, as PyTorch does by default; otherwise fill them with zeros.
  void zero_grad(bool set_to_none = true);
  /// By group.
  std::vector<double> learning_rates() const;
  void set_learning_rate(double lr);
  std::vector<Tensor> parameters() const;
  /// Optimizer state by "<group>.<index>.<name>", "momentum", "m", "v", "max_v", and "step".
  std::vector<std::pair<std::string, Tensor>> state_dict() const;
  void load_state_dict(const std::vector<std::pair<std::string, Tensor>>& state);
  /// "sgd", "adam", "adamw"
  const std::string& kind() const;

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 protected:
  using Options = std::map<std::string, double>;
  Optimizer(std::string kind, std::vector<std::pair<std::vector<Tensor>, Options>> groups);

 private:
  std::shared_ptr<State> state_;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
};

template <class OptimizerOptions>
struct Group {
  std::vector<Tensor> parameters;
  OptimizerOptions options = {};
};

/// b <- momentum b + (1 - dampening) g, first b = g; p <- p - lr (nesterov ? g + momentum b : b), with g including weight_decay p.
class SGD : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> parameters, SGDOptions options = {});
  explicit SGD(const std::vector<Group<SGDOptions>>& groups);
};

struct AdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
};

/// Kingma and Ba 2015, with bias correction; weight decay is added to the gradient.
class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, AdamOptions options = {});
  explicit Adam(const std::vector<Group<AdamOptions>>& groups);
};

struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
};

/// Loshchilov and Hutter 2019: p <- p (1 - lr weight_decay) first.
class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<Tensor> parameters, AdamWOptions options = {});
  explicit AdamW(const std::vector<Group<AdamWOptions>>& groups);
};

}  // namespace graven::optim
