#include "ir/ops/optimizer_shared.h"

#include <algorithm>
#include <deque>

#include "ir/analysis.h"
#include "ir/ops/linear_shared.h"

namespace graven::ir::ops {

namespace {

void check_options(const InferContext& c) {
  for (const AttributeSpec& a : c.op().attributes)
    if (a.range && a.type == AttributeType::number)
      c.require(a.range->contains(c.attributes.number(a.name)), [&] {
        return "'" + std::string(a.name) + "' must lie in " + a.range->to_string() + ", got " +
               text_of(c.attributes.number(a.name));
      });
  if (c.op().refusal == nullptr) return;
  const std::string_view refusal =
      c.op().refusal([&](std::string_view name) { return number_of(c.attributes.at(name)).value(); });
  c.require(refusal.empty(), refusal);
}

/// The inputs of a role, which stand one by one behind `begin`, each like the parameter `parameter`.
void check_state(const InferContext& c, const InputSpec& input, std::size_t at, std::size_t parameter,
                 const std::string& which) {
  const TensorType& of_parameter = c.input(parameter);
  std::optional<TensorType> expected = of_parameter;
  if (input.role == InputRole::state) {
    expected = state_type(input.shape, of_parameter);
    if (!is_used(input, c.attributes)) return c.require(!c.has_input(at), "is given state that its options do not use");
    if (!expected)
      return c.require(!c.has_input(at),
                       [&] { return which + " is given, which a parameter " + of_parameter.to_string() + " has not"; });
  }
  c.require(c.has_input(at), [&] { return which + " is missing"; });
  c.require(c.input(at) == *expected, [&] {
    return which + " must be " + expected->to_string() +
           (*expected == of_parameter ? " like its parameter" : " for its parameter " + of_parameter.to_string()) +
           ", got " + c.input(at).to_string();
  });
}

void check_number(const InferContext& c, std::size_t at, const char* name, DType dtype) {
  const TensorType type{dtype, {}};
  c.require(c.input(at) == type,
            [&] { return std::string(name) + " must be " + type.to_string() + ", got " + c.input(at).to_string(); });
}

void check_factor(const InferContext& c, std::size_t at) {
  if (c.has_input(at)) check_number(c, at, "factor", c.input(0).dtype);
}

void infer_optimizer(InferContext& c) {
  check_options(c);
  c.require(input_range(c.op(), c.input_count(), 0).count > 0, "has no parameter to update");
  for (std::size_t s = 0; s < c.op().inputs.size(); ++s) {
    const InputSpec& input = c.op().inputs[s];
    const InputRange range = input_range(c.op(), c.input_count(), s);
    for (std::size_t i = 0; i < range.count; ++i) {
      const std::size_t at = range.begin + i;
      if (input.role == InputRole::rate)
        check_number(c, at, "lr", DType::f64);
      else if (input.role == InputRole::step)
        check_number(c, at, "step", DType::i64);
      else if (input.role == InputRole::factor)
        check_factor(c, at);
      else if (input.role != InputRole::parameter)
        check_state(c, input, at, i, std::string(input.name) + "[" + std::to_string(i) + "]");
    }
  }
}

/// Operations that the rule applies to an element.
double operations(const NodeView& node) {
  const UpdateRule rule(*node.node.op, node.attributes(), true);
  const std::vector<bool> needed = rule.needed();
  double count = 0;
  for (std::size_t t = 0; t < needed.size(); ++t) {
    const FormulaTerm& term = rule.terms()[t];
    if (needed[t] && term.level == FormulaTerm::Level::element && !term.arguments.empty())
      count += term.name == "fma" ? 2 : 1;
  }
  return count;
}

/// Parameters and state are read and written, what else there is read.
double bytes_of_inputs(const NodeView& node, bool lists_only) {
  double bytes = 0;
  for (std::size_t spec = 0; spec < node.node.op->inputs.size(); ++spec) {
    const InputSpec& input = node.node.op->inputs[spec];
    if (lists_only && !input.variadic) continue;
    const InputRange range = input_range(*node.node.op, node.input_count(), spec);
    for (std::size_t i = range.begin; i < range.begin + range.count; ++i) {
      if (!node.has_input(i)) continue;
      const TensorType& t = node.input(i);
      bytes += static_cast<double>(t.shape.numel().maximum()) * static_cast<double>(size_of(t.dtype)) *
               (input.donated() ? 2 : 1);
    }
  }
  return bytes;
}

Cost optimizer_cost(const NodeView& node) { return update_cost(node, operations(node)); }

/// Six tensors in each group that is present, values in [0, 1) (averages of squares are not negative), a learning
/// rate, the step.
TestCase test_case(const Optimizer& o, const OptimizerCase& given) {
  TestCase c{.note = given.note, .attributes = given.attributes, .gradient = false};
  const auto add = [&](StateShape state, bool present) {
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{37}, Shape{0, 4}, Shape{1}, Shape{2, 19, 70}}) {
      const std::optional<TensorType> type = state_type(state, {given.dtype, shape});
      c.inputs.push_back(present && type ? random(given.dtype, type->shape, 0, 1) : absent());
    }
  };
  add(StateShape::parameter, true);
  add(StateShape::parameter, true);
  for (const InputSpec& state : o.states) add(state.shape, is_used(state, given.attributes));
  c.inputs.push_back(random(DType::f64, {}, 0.1, 0.2));
  c.inputs.push_back(random(DType::i64, {}, static_cast<double>(given.step), static_cast<double>(given.step) + 1));
  return c;
}

// ---- fused with the gradient of a linear layer ----

void infer_linear_update(InferContext& c) {
  check_options(c);
  const std::size_t dy = product_of_update(c.op()), x = dy + 1, lr = dy + 2, step = dy + 3;
  c.require(!c.input(dy).shape.empty() && !c.input(x).shape.empty() &&
                rows_of(c.input(dy).shape) == rows_of(c.input(x).shape),
            [&] {
              return "dy and x must have the same rows, got " + c.input(dy).to_string() + " and " +
                     c.input(x).to_string();
            });
  const std::int64_t n = fixed(c.input(dy).shape.back(), "the last dimension of dy"),
                     k = fixed(c.input(x).shape.back(), "the last dimension of x");
  const std::int64_t taps = c.attributes.integer("taps"), tap = c.attributes.integer("tap");
  c.require(taps >= 1 && taps <= kMostTaps && tap >= 0 && tap < taps, [&] {
    return "'taps' must be from 1 to " + std::to_string(kMostTaps) + " and 'tap' less, got " + std::to_string(taps) +
           " and " + std::to_string(tap);
  });
  const TensorType weight = c.input(0);
  for (std::size_t i = 1; i < dy; ++i) check_state(c, c.op().inputs[i], i, 0, std::string(c.op().inputs[i].name));
  c.require(!weight.shape.empty() && weight.shape[0] == n && weight.shape.numel() == Dim(n) * Dim(k) * Dim(taps), [&] {
    return "the parameter must have " + std::to_string(n) + " rows of " + std::to_string(k) + " x " +
           std::to_string(taps) + " elements, got " + weight.to_string();
  });
  check_number(c, lr, "lr", DType::f64);
  check_number(c, step, "step", DType::i64);
  c.output(weight.dtype, {n});
}

/// The product, and the operations of the update; the gradient is neither written nor read.
Cost linear_update_cost(const NodeView& node) {
  const double elements = static_cast<double>(node.input(0).shape.numel().maximum());
  const double of_product = elements / static_cast<double>(node.attributes().integer("taps"));
  const auto rows = static_cast<double>(rows_of(node.input(product_of_update(*node.node.op)).shape).maximum());
  return {.flops = of_product * 2.0 * rows + elements * operations(node),
          .bytes = bytes_of_inputs(node, false) + static_cast<double>(node.output().shape.numel().maximum()) *
                                                      static_cast<double>(size_of(node.output().dtype))};
}

std::vector<TestCase> linear_update_cases(const Optimizer& o) {
  std::vector<TestCase> cases;
  const auto add = [&](const std::string& note, const OptimizerCase& given, Shape dy, Shape x, std::int64_t taps = 1,
                       std::int64_t tap = 0) {
    TestCase c{.note = note + ", " + given.note, .attributes = given.attributes, .gradient = false};
    Shape weight{dy.back(), x.back()};
    if (taps > 1) {
      weight = Shape{dy.back(), x.back(), 1, taps};
      c.attributes.set("taps", taps);
      c.attributes.set("tap", tap);
    }
    c.inputs.push_back(random(given.dtype, weight, 0, 1));
    for (const InputSpec& state : o.states)
      c.inputs.push_back(is_used(state, given.attributes) ? random(given.dtype, weight, 0, 1) : absent());
    c.inputs.push_back(random(given.dtype, std::move(dy)));
    c.inputs.push_back(random(given.dtype, std::move(x)));
    c.inputs.push_back(random(DType::f64, {}, 0.1, 0.2));
    c.inputs.push_back(random(DType::i64, {}, static_cast<double>(given.step), static_cast<double>(given.step) + 1));
    cases.push_back(std::move(c));
  };
  for (const OptimizerCase& given : o.cases) {
    if (given.dtype != DType::f32) continue;
    add("small", given, {5, 3}, {5, 7});
    add("panels", given, {33, 48}, {33, 64});
    add("one tap of 9", given, {70, 20}, {70, 300}, 9, 4);
  }
  const OptimizerCase& last = o.cases.back();
  add("rank 3", last, {2, 3, 4}, {2, 3, 5});
  add("many columns", last, {40, 29}, {40, 1100});
  add("many rows", last, {1300, 70}, {1300, 300});
  add("no rows", last, {0, 4}, {0, 5});
  add("last tap of 2", last, {3, 4}, {3, 5}, 2, 1);
  add("one weight", last, {1, 1}, {1, 1});
  for (const DType d : kFloats) {
    OptimizerCase given = last;
    given.dtype = d;
    add(std::string(ir::name(d)), given, {4, 3}, {4, 6});
  }
  return cases;
}

/// An update by clipped gradients: these, and the update.
std::vector<Node> parts_of_optimizer(Graph& graph, const Node& node) {
  Node update = node;
  if (factor_of(node) == kNone) return {update};
  const InputRange gradients = input_range(node, InputRole::gradient);
  update.inputs.pop_back();
  std::vector<Node> parts;
  for (std::size_t i = gradients.begin; i < gradients.begin + gradients.count; ++i) {
    Node product;
    product.op = &kMul;
    product.inputs = {node.inputs[i], factor_of(node)};
    product.origins = node.origins;
    product.phase = node.phase;
    Value value;
    value.type = graph.type(node.inputs[i]);
    value.name = graph.value(node.inputs[i]).name + ".clipped";
    graph.values.push_back(std::move(value));
    product.outputs = {static_cast<ValueId>(graph.values.size()) - 1};
    update.inputs[i] = product.outputs[0];
    parts.push_back(std::move(product));
  }
  parts.push_back(std::move(update));
  return parts;
}

std::vector<InputSpec> states_of(const Optimizer& o, bool variadic) {
  std::vector<InputSpec> states = o.states;
  for (InputSpec& state : states) {
    state.role = InputRole::state;
    state.variadic = variadic;
    state.optional = !state.option.empty() || state.shape != StateShape::parameter;
  }
  return states;
}

/// What both forms of an optimizer have.
OpDef entry(const Optimizer& o) {
  return {.attributes = o.attributes,
          .amp = AmpClass::black,
          .change_is_proportional = o.change_is_proportional,
          .rule = o.rule,
          .refusal = o.refusal};
}

}  // namespace

Cost update_cost(const NodeView& node, double operations) {
  double elements = 0;
  for (std::size_t i = 0; i < input_range(node.node, InputRole::parameter).count; ++i)
    elements += static_cast<double>(node.input(i).shape.numel().maximum());
  return {.flops = operations * elements, .bytes = bytes_of_inputs(node, true)};
}

OpDef optimizer(Optimizer o) {
  OpDef op = entry(o);
  op.name = o.name;
  op.doc = o.doc;
  op.inputs = {{.name = "params", .role = InputRole::parameter, .variadic = true},
               {.name = "grads", .role = InputRole::gradient, .variadic = true}};
  op.infer = infer_optimizer;
  op.cost = o.cost != nullptr ? o.cost : optimizer_cost;
  for (InputSpec& state : states_of(o, true)) op.inputs.push_back(state);
  op.inputs.push_back({"lr", InputRole::rate});
  op.inputs.push_back({"step", InputRole::step});
  if (o.rule != nullptr) {
    op.inputs.push_back({.name = "factor", .role = InputRole::factor, .optional = true});
    op.parts = parts_of_optimizer;
  }
  op.cases = [o = std::move(o)] {
    std::vector<TestCase> cases;
    for (const OptimizerCase& c : o.cases) cases.push_back(test_case(o, c));
    if (o.rule == nullptr) return cases;
    cases.push_back(cases.front());
    cases.back().note = "by a factor";
    cases.back().inputs.push_back(random(o.cases.front().dtype, {}, 0.4, 0.6));
    return cases;
  };
  return op;
}

std::size_t product_of_update(const OpDef& op) {
  const auto dy = std::find_if(op.inputs.begin(), op.inputs.end(),
                               [](const InputSpec& i) { return i.role == InputRole::value && i.name == "dy"; });
  return static_cast<std::size_t>(dy - op.inputs.begin());
}

OpDef linear_update(std::string_view name, Optimizer o) {
  static std::deque<std::string> docs;  // an entry refers to its text
  docs.push_back(
      "linear_backward_weight and " + std::string(o.name) +
      " in one: dw[n, k] = dy[m, n]^T x[m, k] updates the parameter where it is computed and is not kept; db[n] = the "
      "sum of dy over rows. With taps the parameter is [n, k, taps], of which dw is one tap's gradient and 0 the "
      "others'. Made by the pass fuse_updates. The update: " +
      std::string(o.doc));
  OpDef op = entry(o);
  op.name = name;
  op.doc = docs.back();
  op.inputs = {{.name = "param", .role = InputRole::parameter}};
  op.attributes.push_back(
      {"taps", AttributeType::integer, std::int64_t{1}, "the parameter has so many elements for each of dw's"});
  op.attributes.push_back(
      {"tap", AttributeType::integer, std::int64_t{0}, "which of these dw belongs to; the others' gradients are 0"});
  op.outputs = {"db"};
  op.infer = infer_linear_update;
  op.lowered = true;
  op.cost = linear_update_cost;
  for (InputSpec& state : states_of(o, false)) op.inputs.push_back(state);
  for (const InputSpec& input :
       {InputSpec{"dy"}, InputSpec{"x"}, InputSpec{"lr", InputRole::rate}, InputSpec{"step", InputRole::step}})
    op.inputs.push_back(input);
  op.cases = [o = std::move(o)] { return linear_update_cases(o); };
  return op;
}

std::string_view refuse_nesterov(const std::function<double(std::string_view)>& option) {
  const bool refused = option("nesterov") != 0 && (option("momentum") <= 0 || option("dampening") != 0);
  return refused ? "nesterov needs momentum above 0 and dampening 0" : "";
}

Scalar ascent_or_descent(UpdateRule& r) { return r.named("given", r.when("maximize", -r.gradient(), r.gradient())); }

static Scalar penalised(UpdateRule& r, const Scalar& g) {
  return r.when("weight_decay", fma(r.attribute("weight_decay"), r.parameter(), g), g);
}

Scalar decayed(UpdateRule& r, std::string_view decoupled) {
  const Scalar g = ascent_or_descent(r);
  return r.named("g", r.when(decoupled, g, penalised(r, g)));
}

Scalar descent(UpdateRule& r) { return r.named("g", penalised(r, ascent_or_descent(r))); }

Moments moments(UpdateRule& r, std::string_view decoupled, std::string_view mean_state, std::string_view square_state) {
  const Scalar beta1 = r.attribute("beta1"), beta2 = r.attribute("beta2"), g = decayed(r, decoupled);
  const Scalar mean = r.named("mean", moved(r.state(mean_state), r.named("toward_gradient", 1 - beta1), g));
  const Scalar square =
      r.named("square", fma(r.named("toward_square", 1 - beta2) * g, g, beta2 * r.state(square_state)));
  r.set(mean_state, mean);
  r.set(square_state, square);
  return {g, mean, square};
}

Scalar shrunk(UpdateRule& r, std::string_view when) {
  return r.parameter() * r.named("shrink", r.when(when, 1 - r.rate() * r.attribute("weight_decay"), 1));
}

}  // namespace graven::ir::ops
