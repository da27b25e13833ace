#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/module_state.h"
#include "frontend/optim_state.h"
#include "frontend/trace.h"
#include "graven/functional.h"
#include "graven/optim.h"

namespace graven::optim {

struct LBFGS::State {
  std::vector<Tensor> parameters;
  LBFGSOptions options;
  std::int64_t directions = 0, evaluations = 0;
  Tensor direction, last_gradient;  ///< of all parameters as one vector; undefined before the first step
  double length = 0, last_loss = 0, scale = 1;
  /// Of the last changes, the oldest first: of the gradient, of the parameters, and one over their product.
  std::vector<Tensor> gradient_changes, parameter_changes;
  std::vector<double> curvatures;
};

namespace {

double dot_of(const Tensor& a, const Tensor& b) { return dot(a, b).item<double>(); }
double largest(const Tensor& t) { return t.numel() == 0 ? 0 : abs(t).amax().item<double>(); }

/// The gradients as one vector; zeros where there is none.
Tensor gathered(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> parts;
  for (const Tensor& t : parameters)
    parts.push_back((t.grad().defined() ? t.grad().detach() : zeros_like(t)).reshape({-1}));
  return cat(parts);
}

/// Adds factor * direction to the parameters.
void go_along(const std::vector<Tensor>& parameters, const Tensor& direction, double factor) {
  NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (Tensor t : parameters) {
    t.add_(direction.slice(0, begin, begin + t.numel()).reshape(t.shape()), factor);
    begin += t.numel();
  }
}

/// The loss along a direction: at a distance from where the search began, with its gradient and its slope.
struct Point {
  double at = 0, loss = 0;
  Tensor gradient;
  double slope = 0;
};

/// The minimum, within [low, high], of the cubic through two points with their slopes; the middle where there is none.
double cubic_minimum(const Point& a, const Point& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at), square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const Point &left = a.at <= b.at ? a : b, &right = a.at <= b.at ? b : a;
  const double minimum =
      right.at - (right.at - left.at) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2));
  return std::min(std::max(minimum, low), high);
}

/// A point where the loss has fallen enough (c1) and is flat enough (c2). `evaluate(t)` gives the point at t. First
/// points further and further out, until one is behind a minimum; then the bracket around that is made narrower. No
/// more than `most` points beside the first one.
template <class Evaluate>
Point strong_wolfe(const Evaluate& evaluate, double first, const Point& start, double reach, double tolerance_change,
                   std::int64_t most, std::int64_t& evaluations) {
  constexpr double c1 = 1e-4, c2 = 0.9;
  const auto too_high = [&](const Point& p) { return p.loss > start.loss + c1 * p.at * start.slope; };
  const auto flat = [&](const Point& p) { return std::abs(p.slope) <= -c2 * start.slope; };
  const auto look = [&](double t) {
    ++evaluations;
    return evaluate(t);
  };
  Point before = start, now = look(first);
  std::array<Point, 2> bracket;
  std::int64_t steps = 0;
  bool found = false;
  for (; steps < most; ++steps) {
    if (too_high(now) || (steps > 1 && now.loss >= before.loss)) break;
    if (flat(now)) return now;
    if (now.slope >= 0) break;
    const double next = cubic_minimum(before, now, now.at + 0.01 * (now.at - before.at), now.at * 10);
    before = now;
    now = look(next);
  }
  bracket = steps == most ? std::array<Point, 2>{start, now} : std::array<Point, 2>{before, now};
  bool stuck = false;
  std::size_t low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
  for (; !found && steps < most; ++steps) {
    const double left = std::min(bracket[0].at, bracket[1].at), right = std::max(bracket[0].at, bracket[1].at);
    if ((right - left) * reach < tolerance_change) break;
    double t = cubic_minimum(bracket[0], bracket[1], left, right);
    // Too near to an end twice in a row, or at it: a tenth of the way from there.
    const double margin = 0.1 * (right - left);
    const bool near_end = std::min(right - t, t - left) < margin;
    if (near_end && (stuck || t >= right || t <= left)) {
      t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
      stuck = false;
    } else {
      stuck = near_end;
    }
    now = look(t);
    if (too_high(now) || now.loss >= bracket[low].loss) {
      bracket[1 - low] = now;
      low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
      continue;
    }
    found = flat(now);
    if (!found && now.slope * (bracket[1 - low].at - bracket[low].at) >= 0) bracket[1 - low] = bracket[low];
    bracket[low] = now;
  }
  return bracket[low];
}

void check_lbfgs_options(const LBFGSOptions& o) {
  const auto expect = [](bool holds, const char* name, const char* what, double found) {
    if (!holds) throw UserError(fmt::format("lbfgs: {} must be {}, got {}", name, what, found));
  };
  expect(o.lr >= 0 && std::isfinite(o.lr), "lr", "finite and not negative", o.lr);
  expect(o.max_iter >= 1, "max_iter", "positive", static_cast<double>(o.max_iter));
  expect(!o.max_eval || *o.max_eval >= 1, "max_eval", "positive", static_cast<double>(o.max_eval.value_or(1)));
  expect(o.tolerance_grad >= 0, "tolerance_grad", "a number from 0", o.tolerance_grad);
  expect(o.tolerance_change >= 0, "tolerance_change", "a number from 0", o.tolerance_change);
  expect(o.history_size >= 1, "history_size", "positive", static_cast<double>(o.history_size));
}

}  // namespace

LBFGS::LBFGS(const std::vector<Tensor>& parameters, LBFGSOptions options, Location where)
    : state_(std::make_shared<State>()) {
  detail::located(where, [&] { check_lbfgs_options(options); });
  GivenParameters given("lbfgs", 1, where);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& t = parameters[i];
    given.add(t, 0, i);
    if (t.dtype() != DType::f32 && t.dtype() != DType::f64)
      detail::fail_at(fmt::format("lbfgs: parameter {} must be f32 or f64, got {}", i, t.describe()), where);
    if (t.dtype() != parameters[0].dtype())
      detail::fail_at(fmt::format("lbfgs: the parameters must have one dtype, got {} and, as parameter {}, {}",
                                  parameters[0].describe(), i, t.describe()),
                      where);
  }
  given.require_some();
  state_->parameters = parameters;
  state_->options = options;
}

std::vector<Tensor> LBFGS::parameters() const { return state_->parameters; }
const LBFGSOptions& LBFGS::options() const { return state_->options; }
void LBFGS::set_learning_rate(double lr, Location where) {
  detail::refuse_within_build("set_learning_rate()", where);
  LBFGSOptions changed = state_->options;
  changed.lr = lr;
  detail::located(where, [&] { check_lbfgs_options(changed); });
  state_->options = changed;
}
void LBFGS::zero_grad(bool set_to_none, Location where) {
  if (detail::Trace* trace = detail::active_trace()) return trace->zero_grad(where);
  for (Tensor& t : state_->parameters) {
    if (set_to_none)
      t.set_grad({});
    else if (t.grad().defined())
      t.grad().zero_();
  }
}

Tensor LBFGS::step(const std::function<Tensor()>& closure, Location where) {
  if (detail::active_trace())
    detail::fail_at(
        "step() of LBFGS within build(): it evaluates its closure as often as it needs, and a graph's call is one "
        "evaluation",
        where);
  if (!closure) detail::fail_at("step() of LBFGS: the closure, which computes the loss, is empty", where);
  State& s = *state_;
  const LBFGSOptions& o = s.options;
  const auto evaluated = [&] {
    const Tensor loss = closure();
    if (!loss.defined() || loss.numel(where) != 1)
      detail::fail_at("step() of LBFGS: the closure must return the loss, a tensor of one element, got " +
                          (loss.defined() ? loss.describe() : std::string("none")),
                      where);
    ++s.evaluations;
    return loss;
  };
  const Tensor first = evaluated();
  double loss = first.item<double>();
  Tensor gradient = gathered(s.parameters);
  std::int64_t evaluations = 1;
  const std::int64_t most_evaluations = o.max_eval.value_or(o.max_iter * 5 / 4);
  if (largest(gradient) <= o.tolerance_grad) return first.detach();
  for (std::int64_t iteration = 1; iteration <= o.max_iter; ++iteration) {
    ++s.directions;
    if (s.directions == 1) {
      s.direction = neg(gradient);
      s.scale = 1;
    } else {
      const Tensor of_gradient = gradient - s.last_gradient, of_parameters = s.direction * s.length;
      const double product = dot_of(of_gradient, of_parameters);
      if (product > 1e-10) {
        if (static_cast<std::int64_t>(s.curvatures.size()) == o.history_size) {
          s.gradient_changes.erase(s.gradient_changes.begin());
          s.parameter_changes.erase(s.parameter_changes.begin());
          s.curvatures.erase(s.curvatures.begin());
        }
        s.gradient_changes.push_back(of_gradient);
        s.parameter_changes.push_back(of_parameters);
        s.curvatures.push_back(1 / product);
        s.scale = product / dot_of(of_gradient, of_gradient);
      }
      // The product of the inverse curvature and the gradient, by the changes back and forth (the two-loop recursion).
      Tensor q = neg(gradient);
      std::vector<double> alphas(s.curvatures.size());
      for (std::size_t i = alphas.size(); i-- > 0;) {
        alphas[i] = dot_of(s.parameter_changes[i], q) * s.curvatures[i];
        q = q - s.gradient_changes[i] * alphas[i];
      }
      s.direction = q * s.scale;
      for (std::size_t i = 0; i < alphas.size(); ++i) {
        const double beta = dot_of(s.gradient_changes[i], s.direction) * s.curvatures[i];
        s.direction = s.direction + s.parameter_changes[i] * (alphas[i] - beta);
      }
    }
    s.last_gradient = gradient;
    s.last_loss = loss;
    s.length = s.directions == 1 ? std::min(1.0, 1 / abs(gradient).sum().item<double>()) * o.lr : o.lr;
    const double slope = dot_of(gradient, s.direction);
    if (slope > -o.tolerance_change) break;
    if (o.line_search_fn == LineSearch::strong_wolfe) {
      std::vector<Tensor> began;
      for (const Tensor& t : s.parameters) began.push_back(t.detach().clone());
      const auto go_back = [&] {
        NoGradGuard no_grad;
        for (std::size_t i = 0; i < began.size(); ++i) s.parameters[i].copy_(began[i]);
      };
      const auto evaluate = [&](double t) {
        go_along(s.parameters, s.direction, t);
        const double value = evaluated().item<double>();
        Tensor there = gathered(s.parameters);
        go_back();
        const double along = dot_of(there, s.direction);
        return Point{t, value, std::move(there), along};
      };
      const Point found = strong_wolfe(evaluate, s.length, {0, loss, gradient, slope}, largest(s.direction),
                                       o.tolerance_change, most_evaluations - evaluations, evaluations);
      loss = found.loss;
      gradient = found.gradient;
      s.length = found.at;
      go_along(s.parameters, s.direction, s.length);
    } else {
      go_along(s.parameters, s.direction, s.length);
      if (iteration != o.max_iter) {
        loss = evaluated().item<double>();
        gradient = gathered(s.parameters);
        ++evaluations;
      }
    }
    if (iteration == o.max_iter || evaluations >= most_evaluations || largest(gradient) <= o.tolerance_grad) break;
    if (largest(s.direction) * std::abs(s.length) <= o.tolerance_change ||
        std::abs(loss - s.last_loss) < o.tolerance_change)
      break;
  }
  return first.detach();
}

// ---- state ----------------------------------------------------------------------------------------------------------

nn::StateDict LBFGS::state_dict() const {
  const State& s = *state_;
  nn::StateDict result{{"n_iter", tensor(s.directions, DType::i64)}, {"func_evals", tensor(s.evaluations, DType::i64)}};
  if (!s.direction.defined()) return result;
  for (const auto& [name, value] :
       {std::pair("t", s.length), std::pair("prev_loss", s.last_loss), std::pair("H_diag", s.scale)})
    result.emplace_back(name, tensor(value, DType::f64));
  result.emplace_back("d", s.direction);
  result.emplace_back("prev_flat_grad", s.last_gradient);
  if (s.curvatures.empty()) return result;
  result.emplace_back("old_dirs", stack(s.gradient_changes));
  result.emplace_back("old_stps", stack(s.parameter_changes));
  result.emplace_back("ro", from_data(s.curvatures, {static_cast<std::int64_t>(s.curvatures.size())}));
  return result;
}

nn::LoadReport LBFGS::load_state_dict(const nn::StateDict& state, bool strict, Location where) {
  detail::refuse_within_build("load_state_dict() of an optimizer", where);
  const std::string what = "load_state_dict of lbfgs";
  const std::map<std::string, Tensor> given(state.begin(), state.end());
  State next = *state_;
  std::int64_t n = 0;
  for (const Tensor& t : next.parameters) n += t.numel();
  const DType dtype = next.parameters[0].dtype();
  std::vector<nn::LoadTarget> expected{{"n_iter", {DType::i64, Shape{}}}, {"func_evals", {DType::i64, Shape{}}}};
  const auto has = [&](const char* name) { return given.count(name) != 0 && given.at(name).defined(); };
  if (has("d")) {
    for (const char* name : {"t", "prev_loss", "H_diag"}) expected.push_back({name, {DType::f64, Shape{}}});
    for (const char* name : {"d", "prev_flat_grad"}) expected.push_back({name, {dtype, Shape{n}}});
  }
  if (has("ro") && given.at("ro").dim() == 1) {
    const std::int64_t changes = given.at("ro").size(0);
    expected.push_back({"ro", {DType::f64, Shape{changes}}});
    for (const char* name : {"old_dirs", "old_stps"}) expected.push_back({name, {dtype, Shape{changes, n}}});
  }
  nn::LoadReport report = nn::check_entries(expected, state, strict, what, where);
  const auto read = [&](const char* name, auto&& take) {
    if (has(name)) take(given.at(name).detach());
  };
  read("n_iter", [&](const Tensor& t) { next.directions = t.item<std::int64_t>(); });
  read("func_evals", [&](const Tensor& t) { next.evaluations = t.item<std::int64_t>(); });
  if (next.directions < 0 || next.evaluations < 0)
    detail::fail_at(what + ": n_iter and func_evals must not be negative; nothing was loaded", where);
  if (next.directions > 0 && !(has("d") && has("prev_flat_grad")) && !next.direction.defined())
    detail::fail_at(what + ": after the first step there must be d and prev_flat_grad; nothing was loaded", where);
  read("t", [&](const Tensor& t) { next.length = t.item<double>(); });
  read("prev_loss", [&](const Tensor& t) { next.last_loss = t.item<double>(); });
  read("H_diag", [&](const Tensor& t) { next.scale = t.item<double>(); });
  read("d", [&](const Tensor& t) { next.direction = t.to(dtype).clone(); });
  read("prev_flat_grad", [&](const Tensor& t) { next.last_gradient = t.to(dtype).clone(); });
  if (has("ro") && has("old_dirs") && has("old_stps")) {
    next.curvatures = given.at("ro").to_vector<double>();
    next.gradient_changes = unbind(given.at("old_dirs").detach().to(dtype).clone());
    next.parameter_changes = unbind(given.at("old_stps").detach().to(dtype).clone());
  } else if (strict) {
    next.curvatures.clear();
    next.gradient_changes.clear();
    next.parameter_changes.clear();
  }
  *state_ = std::move(next);
  return report;
}

}  // namespace graven::optim
