#include "graven/optim.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/eager/program.h"
#include "frontend/module_state.h"
#include "frontend/optim_state.h"
#include "frontend/trace.h"
#include "graven/utils/clip_grad.h"
#include "ir/optimizer_kind.h"

namespace graven::optim {

std::vector<std::string> Optimizer::State::state_names() const {
  std::vector<std::string> names;
  for (const ir::OptimizerState& state : ir::optimizer_kind(kind).states) names.emplace_back(state.name);
  return names;
}

std::string GivenParameters::place(std::size_t group, std::size_t index) const {
  return groups_ > 1 ? fmt::format("parameter {} of group {}", index, group) : fmt::format("parameter {}", index);
}

void GivenParameters::add(const Tensor& t, std::size_t group, std::size_t index) {
  const std::string here = place(group, index);
  const auto refuse = [&](const std::string& what) { detail::fail_at(kind_ + ": " + here + " " + what, where_); };
  if (!t.defined()) refuse("must be a tensor, got an undefined one: leave out what a layer does not have");
  if (!t.is_leaf()) refuse("must be a leaf, got the result of an operator, " + t.describe());
  if (!ir::is_floating(t.dtype())) refuse("must be floating-point, got " + t.describe());
  if (const auto [first, is_new] = places_.emplace(t.impl().get(), here); !is_new)
    refuse("is given twice: " + t.describe() + " is " + first->second + ", too");
}

void GivenParameters::require_some() const {
  if (places_.empty()) detail::fail_at(kind_ + ": there are no parameters to optimise", where_);
}

namespace {

/// Checks all options, those of clipping too where there is none, and gives the group those that count: graphs are
/// written with the options that they have.
void take_options(const std::string& kind, Optimizer::State::Group& group, std::map<std::string, double> options) {
  const std::string norm(ir::kClipMaxNorm), type(ir::kClipNormType);
  const auto clips = options.find(norm);
  const bool is_clipped = clips != options.end() && clips->second != std::numeric_limits<double>::infinity();
  if (!is_clipped) options.erase(norm);
  ir::check_options(kind, options);
  if (!is_clipped) options.erase(type);
  group.options = std::move(options);
}

}  // namespace

Optimizer::Optimizer(std::string kind, const Given& groups, Location where) : state_(std::make_shared<State>()) {
  state_->kind = std::move(kind);
  add_groups(groups, where);
}

void Optimizer::add_groups(const Given& groups, Location where) {
  const std::size_t before = state_->groups.size(), all = before + groups.size();
  if (before > 0) {
    detail::refuse_within_build("add_param_group()", where);
    if (!state_->schedule.expired())
      detail::fail_at("add_param_group: a schedule stands on the " + state_->kind +
                          " already; add the group first, and make the schedule behind it",
                      where);
  }
  GivenParameters given(state_->kind, all, where);
  for (std::size_t g = 0; g < before; ++g)
    for (std::size_t i = 0; i < state_->groups[g].parameters.size(); ++i)
      given.add(state_->groups[g].parameters[i], g, i);
  std::vector<State::Group> added;
  for (std::size_t g = before; g < all; ++g) {
    const auto& [parameters, options] = groups[g - before];
    State::Group group;
    try {
      take_options(state_->kind, group, options());
    } catch (UserError& e) {
      if (all > 1) e.note(fmt::format("in group {} of {}", g, all));
      e.at(where.file_name(), where.line);
      throw;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) given.add(parameters[i], g, i);
    group.parameters = parameters;
    group.base_lr = group.options.at("lr");
    group.steps.assign(group.parameters.size(), 0);
    for (const std::string& name : state_->state_names()) group.states[name].resize(group.parameters.size());
    added.push_back(std::move(group));
  }
  given.require_some();
  for (State::Group& group : added) state_->groups.push_back(std::move(group));
  if (before > 0) ++state_->loads;
}

const std::string& Optimizer::kind() const { return state_->kind; }

std::vector<double> Optimizer::learning_rates() const {
  std::vector<double> rates;
  for (const auto& g : state_->groups) rates.push_back(g.options.at("lr"));
  return rates;
}

void Optimizer::set_learning_rate(double lr, Location where) {
  detail::refuse_within_build("set_learning_rate()", where);
  detail::located(where, [&] { ir::check_options(state_->kind, {{"lr", lr}}); });
  for (auto& g : state_->groups) g.options["lr"] = g.base_lr = lr;
}

void Optimizer::set_learning_rates(const std::vector<double>& rates, Location where) {
  detail::refuse_within_build("set_learning_rates()", where);
  if (rates.size() != state_->groups.size())
    detail::fail_at(fmt::format("set_learning_rates: the {} has {} groups, got {} rates", state_->kind,
                                state_->groups.size(), rates.size()),
                    where);
  for (const double lr : rates) detail::located(where, [&] { ir::check_options(state_->kind, {{"lr", lr}}); });
  for (std::size_t g = 0; g < rates.size(); ++g) state_->groups[g].options["lr"] = state_->groups[g].base_lr = rates[g];
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const auto& g : state_->groups) all.insert(all.end(), g.parameters.begin(), g.parameters.end());
  return all;
}

void Optimizer::zero_grad(bool set_to_none, Location where) {
  if (detail::Trace* trace = detail::active_trace()) return trace->zero_grad(where);
  for (Tensor& t : parameters()) {
    if (set_to_none)
      t.set_grad({});
    else if (t.grad().defined())
      t.grad().zero_();
  }
}

static ir::TensorType type_of(const Tensor& t) { return {t.dtype(), t.shape()}; }

namespace {

/// Whether a state of the parameter is yet to be made of the gradient that it sees first, however many steps the
/// parameter has done: momentum that set_option() has switched on, as torch.optim.SGD's momentum_buffer.
bool begins_with_gradient(const Optimizer::State::Group& group, const ir::OptimizerKind& kind, std::size_t parameter) {
  for (const ir::OptimizerState& state : kind.states)
    if (state.begins_with_gradient && !group.states.at(std::string(state.name))[parameter].defined() &&
        ir::state_type(state, group.options, type_of(group.parameters[parameter])))
      return true;
  return false;
}

}  // namespace

void Optimizer::step(Location where) {
  if (detail::active_trace())
    detail::fail_at(
        "step() within build(): the graph itself updates after build(), at the end of each call; leave it out, and "
        "add_optimizer()",
        where);
  NoGradGuard no_grad;
  const ir::OptimizerKind& kind = ir::optimizer_kind(state_->kind);
  const ir::OpDef& op = ir::get_op(kind.op);
  for (auto& g : state_->groups) {
    if (g.options.count("clip_grad_max_norm"))
      nn::utils::clip_grad_norm_(g.parameters, g.options.at("clip_grad_max_norm"), g.options.at("clip_grad_norm_type"));
    const ir::Attributes attributes = ir::update_attributes(kind, g.options);
    // One operator call updates all parameters that have done the same number of steps and share a dtype and a device:
    // normally all of them.
    std::map<std::tuple<std::int64_t, DType, std::string>, std::vector<std::size_t>> batches;
    for (std::size_t i = 0; i < g.parameters.size(); ++i)
      if (const Tensor& p = g.parameters[i]; p.grad().defined())
        batches[{begins_with_gradient(g, kind, i) ? 0 : g.steps[i], p.dtype(), p.device().to_string()}].push_back(i);
    for (const auto& [key, indices] : batches) {
      std::vector<Tensor> inputs;
      for (const ir::InputSpec& spec : op.inputs) {
        if (spec.role == ir::InputRole::factor) continue;  // gradients are clipped where they lie
        if (!spec.variadic) {
          inputs.push_back(spec.role == ir::InputRole::rate ? tensor(g.options.at("lr"), DType::f64)
                                                            : tensor(std::get<0>(key) + 1, DType::i64));
          continue;
        }
        const ir::OptimizerState* state = ir::state_of(kind, spec.name);
        for (std::size_t i : indices) {
          if (!state) {
            inputs.push_back(spec.role == ir::InputRole::parameter ? g.parameters[i] : g.parameters[i].grad());
          } else if (const auto type = ir::state_type(*state, g.options, type_of(g.parameters[i]))) {
            Tensor& own = g.states.at(std::string(state->name))[i];
            const Device device = g.parameters[i].device();
            if (!own.defined()) own = zeros(type->shape, {type->dtype, device});
            if (own.dtype() != type->dtype)
              detail::fail_at(fmt::format("step: parameter {} is {}, and its state {} is {}, of an earlier step: make "
                                          "another optimizer behind module.to({})",
                                          i, g.parameters[i].describe(), state->name, own.describe(),
                                          ir::name(g.parameters[i].dtype())),
                              where);
            detail::move_to(*own.impl(), device);  // of a module that has moved since
            inputs.push_back(own);
          } else {
            inputs.emplace_back();  // absent; the operator's inputs keep their places
          }
        }
      }
      (void)eager::run(op, inputs, attributes);
      for (std::size_t i : indices) ++g.steps[i];
    }
  }
}

namespace {

/// Every option, also where there is no clipping, and the rate that schedules start from: what state_dict() has of a
/// group.
std::map<std::string, double> written_options(const Optimizer::State::Group& group) {
  std::map<std::string, double> options = group.options;
  options.emplace(ir::kClipMaxNorm, std::numeric_limits<double>::infinity());
  options.emplace(ir::kClipNormType, 2);
  options.emplace("initial_lr", group.base_lr);
  return options;
}

}  // namespace

double Optimizer::option(std::size_t group, const std::string& name, Location where) const {
  if (group >= state_->groups.size())
    detail::fail_at(
        fmt::format("the {} has {} groups, there is no group {}", state_->kind, state_->groups.size(), group), where);
  const std::map<std::string, double> options = written_options(state_->groups[group]);
  const auto found = options.find(name);
  if (found == options.end() || name == "initial_lr") {
    std::string known;
    for (const auto& entry : options)
      if (entry.first != "initial_lr") known += (known.empty() ? "" : ", ") + entry.first;
    detail::fail_at(fmt::format("the {} has no option '{}'; it has {}", state_->kind, name, known), where);
  }
  return found->second;
}

void Optimizer::set_option(std::size_t group, const std::string& name, double value, Location where) {
  detail::refuse_within_build("set_option()", where);
  (void)option(group, name, where);  // there is one
  State::Group next = state_->groups[group];
  std::map<std::string, double> options = written_options(next);
  options.erase("initial_lr");
  options[name] = value;
  detail::located(where, [&] { take_options(state_->kind, next, std::move(options)); });
  if (name == "lr") next.base_lr = value;
  state_->groups[group] = std::move(next);
  if (name != "lr") ++state_->loads;
}

nn::StateDict Optimizer::state_dict() const {
  nn::StateDict result;
  for (std::size_t g = 0; g < state_->groups.size(); ++g) {
    const State::Group& group = state_->groups[g];
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const std::string prefix = fmt::format("{}.{}.", g, i);
      for (const std::string& name : state_->state_names())
        if (group.states.at(name)[i].defined()) result.emplace_back(prefix + name, group.states.at(name)[i]);
      result.emplace_back(prefix + "step", tensor(group.steps[i], DType::i64));
    }
    for (const auto& [name, value] : written_options(group))
      result.emplace_back(fmt::format("{}.{}", g, name), tensor(value, DType::f64));
  }
  return result;
}

nn::LoadReport Optimizer::load_state_dict(const nn::StateDict& state, bool strict, Location where) {
  detail::refuse_within_build("load_state_dict() of an optimizer", where);
  const std::string what = "load_state_dict of " + state_->kind;
  const std::map<std::string, Tensor> given(state.begin(), state.end());
  std::vector<State::Group> next = state_->groups;
  std::vector<nn::LoadTarget> expected;
  struct Buffer {
    Tensor* own;
    const Tensor* given;
    DType dtype;
  };
  std::vector<Buffer> buffers;
  // A scalar, if there is one that fits: check_entries() reports the others.
  const auto scalar = [&](const std::string& name, DType dtype) -> const Tensor* {
    expected.push_back({name, {dtype, Shape{}}});
    const auto it = given.find(name);
    if (it == given.end() || !it->second.defined() || !it->second.sizes().empty()) return nullptr;
    return ir::is_floating(it->second.dtype()) == ir::is_floating(dtype) && it->second.dtype() != DType::boolean
               ? &it->second
               : nullptr;
  };
  for (std::size_t g = 0; g < next.size(); ++g) {
    State::Group& group = next[g];
    // Which states there are follows from the options, which are checked once all entries are known to fit.
    group.options = written_options(group);
    for (auto& [name, value] : group.options)
      if (const Tensor* t = scalar(fmt::format("{}.{}", g, name), DType::f64)) value = t->item<double>();
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const std::string prefix = fmt::format("{}.{}.", g, i);
      const Tensor* step = scalar(prefix + "step", DType::i64);
      if (step) group.steps[i] = step->item<std::int64_t>();
      for (const ir::OptimizerState& known : ir::optimizer_kind(state_->kind).states) {
        const std::string name(known.name);
        Tensor& own = group.states.at(name)[i];
        const std::optional<ir::TensorType> type = ir::state_type(known, group.options, type_of(group.parameters[i]));
        const bool found = given.count(prefix + name) != 0;
        // Before its first step a parameter has none.
        if (!type || (step && group.steps[i] == 0 && !found)) {
          own = {};
        } else if (found || group.steps[i] > 0) {
          expected.push_back({prefix + name, *type});
          if (found) buffers.push_back({&own, &given.at(prefix + name), type->dtype});
        }
      }
    }
  }
  nn::LoadReport report = nn::check_entries(expected, state, strict, what, where);
  for (std::size_t g = 0; g < next.size(); ++g) {
    try {
      ir::check_options(state_->kind, {{"initial_lr", next[g].options.at("initial_lr")}});
      next[g].base_lr = next[g].options.at("initial_lr");
      next[g].options.erase("initial_lr");
      take_options(state_->kind, next[g], std::move(next[g].options));
    } catch (UserError& e) {
      e.note(fmt::format("load_state_dict: in group {}; nothing was loaded", g)).at(where.file_name(), where.line);
      throw;
    }
    for (std::size_t i = 0; i < next[g].steps.size(); ++i)
      nn::check_step(next[g].steps[i], fmt::format("{}: {}.{}.step", what, g, i), where);
  }
  for (const Buffer& b : buffers) *b.own = b.given->detach().to(b.dtype).clone();
  state_->groups = std::move(next);
  ++state_->loads;
  return report;
}

std::map<std::string, double> AdafactorOptions::values() const {
  if (eps.first && !(*eps.first >= 0))
    throw UserError(fmt::format("adafactor: the option eps[0] must lie in [0, 1e+300], got {}", *eps.first));
  return detail::option_values(
      *this,
      {{"beta2_decay", beta2_decay}, {"eps1", eps.first.value_or(ir::kEpsilonOfType)}, {"eps2", eps.second}, {"d", d}});
}

}  // namespace graven::optim
