// Optimizers, with PyTorch's formulas and defaults (LAMB, LARS and Lion, which PyTorch does not have: the papers', and
// the defaults of OneFlow, of common implementations and of the paper).
//
//   optim::SGD optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9});
//   loss.backward();
//   optimizer.step();
//   optimizer.zero_grad();
//
//   optim::AdamW optimizer({{decayed, {.lr = 3e-4, .weight_decay = 0.1}}, {others, {.lr = 3e-4, .weight_decay = 0}}});
//   // groups
//
// Options are numbers from 0 to 1e300 where nothing else is said behind them. One that is out of its range is a user
// error with the range and the group when the optimizer is made, whether or not the other options make use of it; so is
// a parameter that is undefined, is given twice, or is no leaf of floating-point numbers, with its index, and an
// optimizer without parameters.
//
// clip_grad_max_norm, an option of every optimizer and group: before the update, the gradients of the group are scaled
// down to that norm, as one vector, by nn::utils::clip_grad_norm_'s formula; within a graph too. Infinity, the default:
// there is no clipping. clip_grad_norm_type: 2, another positive order, or infinity.
//
// Eagerly each parameter counts its own updates: one that has no gradient in a step is left alone, and where its
// gradients begin later, or it is frozen for a while, its bias corrections are those of its own steps, as in PyTorch.
// A graph counts its steps once: it is a user error to train in one what its optimizers have updated different numbers
// of times.
//
// LBFGS, which evaluates the loss as often as it needs, has a class of its own at the end of this file.
//
// An optimizer is a handle, like a module. Within a graph, add_optimizer(optimizer) makes it part of the program.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graven/state_dict.h"
#include "graven/tensor.h"
#include "ir/graph.h"

namespace graven::detail {

/// The options of a kind by the operator's names: `own` and those that many have.
template <class AnyOptions>
std::map<std::string, double> option_values(const AnyOptions& o, std::map<std::string, double> own = {}) {
  own.insert({{"lr", o.lr}, {"maximize", o.maximize ? 1 : 0}});
  if constexpr (requires { o.weight_decay; }) own.emplace("weight_decay", o.weight_decay);
  if constexpr (requires { double{o.eps}; }) own.emplace("eps", o.eps);
  if constexpr (requires { o.betas; }) own.insert({{"beta1", o.betas.first}, {"beta2", o.betas.second}});
  if constexpr (requires { o.momentum; }) own.emplace("momentum", o.momentum);
  if constexpr (requires { o.dampening; }) own.insert({{"dampening", o.dampening}, {"nesterov", o.nesterov ? 1 : 0}});
  if constexpr (requires { o.amsgrad; }) own.emplace("amsgrad", o.amsgrad ? 1 : 0);
  if constexpr (requires { o.do_bias_correction; }) own.emplace("do_bias_correction", o.do_bias_correction ? 1 : 0);
  if constexpr (requires { o.decoupled_weight_decay; })
    own.emplace("decoupled_weight_decay", o.decoupled_weight_decay ? 1 : 0);
  own.emplace("clip_grad_max_norm", o.clip_grad_max_norm);
  own.emplace("clip_grad_norm_type", o.clip_grad_norm_type);
  return own;
}

}  // namespace graven::detail

namespace graven::optim {

class Optimizer {
 public:
  /// One update from grad() of each parameter; parameters without a gradient are left alone. User error within build():
  /// the graph's step updates.
  void step(Location where = Location::current());
  /// set_to_none: forget the gradients, as PyTorch does by default; otherwise fill them with zeros. Within build()
  /// nothing before backward(), where each call begins without gradients anyway, and a user error behind it.
  void zero_grad(bool set_to_none = true, Location where = Location::current());
  /// By group.
  std::vector<double> learning_rates() const;
  /// The rate of all groups, whatever ratio they had. Schedules of the optimizer start from it: the next step has this
  /// rate, and from the schedule's next step() on it is the schedule's of this initial rate. User error where it is
  /// negative, no number or above 1e300.
  void set_learning_rate(double lr, Location where = Location::current());
  /// The same, one for each group. User error where there are not as many as groups.
  void set_learning_rates(const std::vector<double>& rates, Location where = Location::current());
  /// An option of a group by the name that state_dict() has it under, "weight_decay", flags as 0 or 1: PyTorch's
  /// `param_groups[group]["weight_decay"]`. User error where there is no such group or option.
  double option(std::size_t group, const std::string& name, Location where = Location::current()) const;
  /// Changes it from the next step on; "lr" as set_learning_rate() does. User error where it is out of range, and
  /// within build(); a graph that was recorded takes another "lr" alone, and says so at its next call.
  void set_option(std::size_t group, const std::string& name, double value, Location where = Location::current());
  std::vector<Tensor> parameters() const;
  /// Optimizer state by "<group>.<index of the parameter>.<name>", "0.0.momentum", and of each parameter its number of
  /// updates, "0.0.step" (i64[]). Names: "momentum" (SGD, RMSprop, LARS); "m", "v", "max_v"
  /// (Adam, AdamW; LAMB without the last); "exp_avg" (NAdam, RAdam, Adamax, Lion), "exp_avg_sq" (NAdam, RAdam),
  /// "exp_inf" (Adamax); "square_avg" (RMSprop, Adadelta), "grad_avg" (RMSprop), "acc_delta" (Adadelta), "sum"
  /// (Adagrad); "prev", "step_size" (Rprop); "row_var" and "col_var", or "variance" (Adafactor). What the options do
  /// not use is left out, and so is what no step has made yet. Then the options, "<group>.<option>" (f64[], flags 0 or
  /// 1), by the names that they have here, but for "beta1", "beta2" (betas), "eps1", "eps2" (Adafactor's eps; eps1 is
  /// -1 where it is none), "etaminus", "etaplus" (etas), "step_size_min", "step_size_max" (step_sizes) and "decoupled"
  /// (LAMB's adam_w_mode); and "initial_lr", what schedules start from.
  nn::StateDict state_dict() const;
  /// State and options become those of the dictionary. All or nothing: when anything has the wrong shape or an option
  /// is out of range, or strict and anything is missing that the options call for, or unexpected, a user error lists it
  /// and nothing is changed. Where not strict, what is missing stays as it is.
  nn::LoadReport load_state_dict(const nn::StateDict& state, bool strict = true, Location where = Location::current());
  /// "sgd", "adam", "adamw", "rmsprop", ...: the class's name in small letters.
  const std::string& kind() const;

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 protected:
  using Options = std::map<std::string, double>;
  /// The options of each are asked for where their errors are told which group it is.
  using Given = std::vector<std::pair<std::vector<Tensor>, std::function<Options()>>>;
  Optimizer(std::string kind, const Given& groups, Location where);
  void add_groups(const Given& groups, Location where);

 private:
  std::shared_ptr<State> state_;
};

template <class OptimizerOptions>
struct Group {
  std::vector<Tensor> parameters;
  OptimizerOptions options = {};
};

/// Groups, and the line that they are written on, which errors name: a list of them, or a vector. Made implicitly.
template <class OptimizerOptions>
class Groups {
 public:
  Groups(std::initializer_list<Group<OptimizerOptions>> groups, Location where = Location::current())  // NOLINT
      : groups_(groups), where_(where) {}
  Groups(std::vector<Group<OptimizerOptions>> groups, Location where = Location::current())  // NOLINT
      : groups_(std::move(groups)), where_(where) {}

  const std::vector<Group<OptimizerOptions>>& groups() const { return groups_; }
  Location where() const { return where_; }

 private:
  std::vector<Group<OptimizerOptions>> groups_;
  Location where_;
};

/// Of all parameters with the same options, or of groups. The options say which update operator of ir/ops it is, and
/// their values by its names.
template <class OptimizerOptions>
class OptimizerOf : public Optimizer {
 public:
  /// One group more, from the next step on: what was frozen, say, with options of its own. User error where one of the
  /// parameters is another group's already, where a schedule stands on the optimizer (make it behind this; those of
  /// PyTorch differ in what becomes of such a group), within build(), and at the next call of a graph that has been
  /// recorded with the optimizer.
  void add_param_group(std::vector<Tensor> parameters, OptimizerOptions options = {},
                       Location where = Location::current()) {
    add_groups({{std::move(parameters), values_of(options)}}, where);
  }

 protected:
  OptimizerOf(std::vector<Tensor> parameters, OptimizerOptions options, Location where)
      : Optimizer(OptimizerOptions::kind, {{std::move(parameters), values_of(options)}}, where) {}
  explicit OptimizerOf(const Groups<OptimizerOptions>& groups)
      : Optimizer(OptimizerOptions::kind, values_of(groups.groups()), groups.where()) {}

 private:
  static std::function<Options()> values_of(const OptimizerOptions& options) {
    return [options] { return options.values(); };
  }
  static Given values_of(const std::vector<Group<OptimizerOptions>>& groups) {
    Given values;
    for (const auto& group : groups) values.emplace_back(group.parameters, values_of(group.options));
    return values;
  }
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;  ///< from -1e300 to 1e300
  double weight_decay = 0;
  bool nesterov = false;  ///< needs momentum above 0 and dampening 0
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "sgd";
  std::map<std::string, double> values() const { return detail::option_values(*this); }
};

/// b <- momentum b + (1 - dampening) g, first b = g; p <- p - lr (nesterov ? g + momentum b : b), with g including
/// weight_decay p.
class SGD : public OptimizerOf<SGDOptions> {
 public:
  explicit SGD(std::vector<Tensor> parameters, SGDOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit SGD(const Groups<SGDOptions>& groups) : OptimizerOf(groups) {}
};

struct AdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};  ///< [0, 1) both
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  bool do_bias_correction = true;  ///< false: the means are not divided by 1 - beta^t
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "adam";
  std::map<std::string, double> values() const { return detail::option_values(*this); }
};

/// Kingma and Ba 2015, with bias correction; weight decay is added to the gradient.
class Adam : public OptimizerOf<AdamOptions> {
 public:
  explicit Adam(std::vector<Tensor> parameters, AdamOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit Adam(const Groups<AdamOptions>& groups) : OptimizerOf(groups) {}
};

struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};  ///< [0, 1) both
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
  bool do_bias_correction = true;  ///< false: the means are not divided by 1 - beta^t
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "adamw";
  std::map<std::string, double> values() const { return detail::option_values(*this); }
};

/// Loshchilov and Hutter 2019: p <- p (1 - lr weight_decay) first.
class AdamW : public OptimizerOf<AdamWOptions> {
 public:
  explicit AdamW(std::vector<Tensor> parameters, AdamWOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit AdamW(const Groups<AdamWOptions>& groups) : OptimizerOf(groups) {}
};

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  ///< [0, 1]
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "rmsprop";
  std::map<std::string, double> values() const {
    return detail::option_values(*this, {{"alpha", alpha}, {"centered", centered ? 1 : 0}});
  }
};

/// Hinton 2012; centered: Graves 2013. s <- alpha s + (1 - alpha) g^2; p <- p - lr g / (sqrt(s) + eps); centered: the
/// root of s - a^2 with a <- a + (1 - alpha) (g - a), 0 where rounding makes it negative (PyTorch: NaN); momentum: b <-
/// momentum b + g / (...); p <- p - lr b.
class RMSprop : public OptimizerOf<RMSpropOptions> {
 public:
  explicit RMSprop(std::vector<Tensor> parameters, RMSpropOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit RMSprop(const Groups<RMSpropOptions>& groups) : OptimizerOf(groups) {}
};

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "adagrad";
  std::map<std::string, double> values() const {
    return detail::option_values(*this,
                                 {{"lr_decay", lr_decay}, {"initial_accumulator_value", initial_accumulator_value}});
  }
};

/// Duchi, Hazan and Singer 2011: s <- s + g^2; p <- p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps).
class Adagrad : public OptimizerOf<AdagradOptions> {
 public:
  explicit Adagrad(std::vector<Tensor> parameters, AdagradOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit Adagrad(const Groups<AdagradOptions>& groups) : OptimizerOf(groups) {}
};

struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;  ///< [0, 1]
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "adadelta";
  std::map<std::string, double> values() const { return detail::option_values(*this, {{"rho", rho}}); }
};

/// Zeiler 2012: s <- rho s + (1 - rho) g^2; d = sqrt(a + eps) / sqrt(s + eps) g; a <- rho a + (1 - rho) d^2; p <- p -
/// lr d.
class Adadelta : public OptimizerOf<AdadeltaOptions> {
 public:
  explicit Adadelta(std::vector<Tensor> parameters, AdadeltaOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit Adadelta(const Groups<AdadeltaOptions>& groups) : OptimizerOf(groups) {}
};

struct LAMBOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};  ///< [0, 1) both
  double eps = 1e-8;
  double weight_decay = 0;
  bool adam_w_mode = true;         ///< false: weight_decay p is added to the gradient
  bool do_bias_correction = true;  ///< false: the means are not divided by 1 - beta^t
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "lamb";
  std::map<std::string, double> values() const {
    return detail::option_values(*this, {{"decoupled", adam_w_mode ? 1 : 0}});
  }
};

/// You et al. 2020, algorithm 2: r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p, with Adam's
/// means m and v; p <- p - lr |p| / |r| r, where the norms are of the whole tensor, and their ratio is 1 if either is
/// 0.
class LAMB : public OptimizerOf<LAMBOptions> {
 public:
  explicit LAMB(std::vector<Tensor> parameters, LAMBOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit LAMB(const Groups<LAMBOptions>& groups) : OptimizerOf(groups) {}
};

struct NAdamOptions {
  double lr = 2e-3;
  std::pair<double, double> betas = {0.9, 0.999};  ///< [0, 1) both
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;  ///< true: p <- p (1 - lr weight_decay) first, as AdamW
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "nadam";
  std::map<std::string, double> values() const {
    return detail::option_values(*this, {{"momentum_decay", momentum_decay}});
  }
};

/// Dozat 2016: Adam with Nesterov's momentum, which grows towards betas.first. mu_t = betas.first (1 - 0.96^(t
/// momentum_decay) / 2); p <- p - (lr (1 - mu_t) / (1 - mu_1 ... mu_t) g + lr mu_t+1 / (1 - mu_1 ... mu_t+1) m) /
/// (sqrt(v / (1 - beta2^t)) + eps). The product of the mu is computed from the step, and is no state.
class NAdam : public OptimizerOf<NAdamOptions> {
 public:
  explicit NAdam(std::vector<Tensor> parameters, NAdamOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit NAdam(const Groups<NAdamOptions>& groups) : OptimizerOf(groups) {}
};

struct RAdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};  ///< [0, 1) both
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  ///< true: p <- p (1 - lr weight_decay) first, as AdamW
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "radam";
  std::map<std::string, double> values() const { return detail::option_values(*this); }
};

/// Liu et al. 2019: Adam without its adaptive rate in the first steps, where v says little, and with a factor that
/// rectifies its variance later.
class RAdam : public OptimizerOf<RAdamOptions> {
 public:
  explicit RAdam(std::vector<Tensor> parameters, RAdamOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit RAdam(const Groups<RAdamOptions>& groups) : OptimizerOf(groups) {}
};

struct AdamaxOptions {
  double lr = 2e-3;
  std::pair<double, double> betas = {0.9, 0.999};  ///< [0, 1) both
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "adamax";
  std::map<std::string, double> values() const { return detail::option_values(*this); }
};

/// Kingma and Ba 2015: u <- max(beta2 u, |g| + eps); p <- p - lr / (1 - beta1^t) m / u.
class Adamax : public OptimizerOf<AdamaxOptions> {
 public:
  explicit Adamax(std::vector<Tensor> parameters, AdamaxOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit Adamax(const Groups<AdamaxOptions>& groups) : OptimizerOf(groups) {}
};

struct RpropOptions {
  double lr = 1e-2;  ///< the first step
  /// Factors of a step that went too far, in (0, 1), and of one that did not, above 1.
  std::pair<double, double> etas = {0.5, 1.2};
  std::pair<double, double> step_sizes = {1e-6, 50};  ///< the least and the largest step
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "rprop";
  std::map<std::string, double> values() const {
    return detail::option_values(*this, {{"etaminus", etas.first},
                                         {"etaplus", etas.second},
                                         {"step_size_min", step_sizes.first},
                                         {"step_size_max", step_sizes.second}});
  }
};

/// Riedmiller and Braun 1993: each element has a step of its own, which grows while the gradient keeps its sign; p <- p
/// - sign(g) step. Where the sign turns, the element stays. For gradients of all data.
class Rprop : public OptimizerOf<RpropOptions> {
 public:
  explicit Rprop(std::vector<Tensor> parameters, RpropOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit Rprop(const Groups<RpropOptions>& groups) : OptimizerOf(groups) {}
};

struct LionOptions {
  double lr = 1e-4;
  std::pair<double, double> betas = {0.9, 0.99};  ///< [0, 1) both
  double weight_decay = 0;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "lion";
  std::map<std::string, double> values() const { return detail::option_values(*this); }
};

/// Chen et al. 2023: p <- p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g); m <- beta2 m + (1 - beta2) g.
class Lion : public OptimizerOf<LionOptions> {
 public:
  explicit Lion(std::vector<Tensor> parameters, LionOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit Lion(const Groups<LionOptions>& groups) : OptimizerOf(groups) {}
};

struct AdafactorOptions {
  double lr = 1e-2;
  double beta2_decay = -0.8;  ///< [-1e300, 0]: the means move by t^beta2_decay
  std::pair<std::optional<double>, double> eps = {std::nullopt, 1e-3};  ///< none: the epsilon of the parameter's dtype
  /// Changes with a larger root mean square are shortened. [1, 1e300]: an infinite one, which PyTorch takes for changes
  /// that are never shortened, is refused; 1e30 does the same.
  double d = 1;
  double weight_decay = 0;
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "adafactor";
  std::map<std::string, double> values() const;
};

/// Shazeer and Stern 2018: of the last two dimensions only the means of squares of rows and of columns are kept, R and
/// C, and v = R C / max(mean(R), eps.first); parameters of fewer dimensions keep v. u = g / sqrt(max(v, eps.first^2));
/// p <- p (1 - lr weight_decay) - min(lr, 1 / sqrt(t)) max(eps.second, rms(p)) / max(1, rms(u) / d) u.
class Adafactor : public OptimizerOf<AdafactorOptions> {
 public:
  explicit Adafactor(std::vector<Tensor> parameters, AdafactorOptions options = {},
                     Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit Adafactor(const Groups<AdafactorOptions>& groups) : OptimizerOf(groups) {}
};

struct LARSOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;  ///< from -1e300 to 1e300
  double weight_decay = 0;
  double trust_coefficient = 1e-3;
  double eps = 1e-8;
  bool nesterov = false;  ///< needs momentum above 0 and dampening 0
  bool maximize = false;
  double clip_grad_max_norm = std::numeric_limits<double>::infinity();
  double clip_grad_norm_type = 2;
  static constexpr const char* kind = "lars";
  std::map<std::string, double> values() const {
    return detail::option_values(*this, {{"trust_coefficient", trust_coefficient}});
  }
};

/// You, Gitman and Ginsburg 2017: SGD whose g, with weight_decay p, is first scaled by trust_coefficient |p| / (|g| +
/// weight_decay |p| + eps), the norms being the whole tensor's; by 1 if either is 0.
class LARS : public OptimizerOf<LARSOptions> {
 public:
  explicit LARS(std::vector<Tensor> parameters, LARSOptions options = {}, Location where = Location::current())
      : OptimizerOf(std::move(parameters), options, where) {}
  explicit LARS(const Groups<LARSOptions>& groups) : OptimizerOf(groups) {}
};

enum class LineSearch : std::uint8_t { none, strong_wolfe };
struct LBFGSOptions {
  double lr = 1;               ///< finite
  std::int64_t max_iter = 20;  ///< directions of a step; at least 1
  /// Calls of the closure in a step, at least 1; none: max_iter * 5 / 4.
  std::optional<std::int64_t> max_eval = std::nullopt;
  double tolerance_grad = 1e-7;                  ///< it ends where no gradient's magnitude is above
  double tolerance_change = 1e-9;                ///< it ends where neither the loss nor a parameter changes by more
  std::int64_t history_size = 100;               ///< changes that the curvature is estimated from; at least 1
  LineSearch line_search_fn = LineSearch::none;  ///< none: steps of lr
};

/// Limited-memory BFGS (Liu and Nocedal 1989), with steps of lr or by a search for the strong Wolfe conditions (Nocedal
/// and Wright 2006, 3.5):
///
///   optim::LBFGS optimizer(model.parameters(), {.line_search_fn = optim::LineSearch::strong_wolfe});
///   optimizer.step([&] {
///     optimizer.zero_grad();
///     Tensor loss = mse_loss(model(x), y);
///     loss.backward();
///     return loss;
///   });
///
/// Eager only: a graph's call is one evaluation and one update, and this takes as many as the loss asks for.
class LBFGS {
 public:
  /// User error when there are no parameters, they differ in their dtype, one is undefined, no leaf of f32 or f64, or
  /// given twice, or an option is out of range.
  explicit LBFGS(const std::vector<Tensor>& parameters, LBFGSOptions options = {},
                 Location where = Location::current());
  /// The closure forgets the gradients, computes the loss, calls its backward() and returns it. Gives the loss of the
  /// first evaluation. Parameters without a gradient are left where they are.
  Tensor step(const std::function<Tensor()>& closure, Location where = Location::current());
  void zero_grad(bool set_to_none = true, Location where = Location::current());
  std::vector<Tensor> parameters() const;
  const LBFGSOptions& options() const;
  double learning_rate() const { return options().lr; }
  /// User error where it is negative or not finite.
  void set_learning_rate(double lr, Location where = Location::current());
  /// What it has learnt of the curvature, and how far it has come; not the options.
  nn::StateDict state_dict() const;
  /// All or nothing.
  nn::LoadReport load_state_dict(const nn::StateDict& state, bool strict = true, Location where = Location::current());

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace graven::optim
