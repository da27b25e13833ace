// Computes nodes whose inputs are all known: constants of the graph, and `full`. A result that is one number everywhere
// becomes `full`, which broadcasts and fuses for free; another one a constant, when it is small. Parameters are not
// constants: they stay replaceable, and what depends on them alone is moved to the prepare phase (prepare_weights).
#include <cmath>
#include <functional>
#include <unordered_map>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/passes/tensor_value.h"

namespace graven::ir {

namespace {

constexpr std::int64_t kMostElements = 65536;

/// Known contents: one number everywhere, or all elements in row-major order.
struct Known {
  bool uniform = true;
  double value = 0;
  std::vector<double> elements = {};
};

using Unary = double (*)(double);
using Binary = double (*)(double, double);

double sign(double x) { return static_cast<double>((x > 0) - (x < 0)); }  // of NaN and both zeros 0
double maximum(double x, double y) { return std::isnan(x) || x > y ? x : y; }
double minimum(double x, double y) { return std::isnan(x) || x < y ? x : y; }

const std::unordered_map<std::string_view, Unary>& unary_table() {
  static const std::unordered_map<std::string_view, Unary> table = {
      {"neg", [](double x) { return -x; }},
      {"abs", [](double x) { return std::abs(x); }},
      {"sign", sign},
      {"relu", [](double x) { return x < 0 ? 0 : x; }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"log1p", [](double x) { return std::log1p(x); }},
      {"expm1", [](double x) { return std::expm1(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"square", [](double x) { return x * x; }},
      {"reciprocal", [](double x) { return 1 / x; }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"floor", [](double x) { return std::floor(x); }},
      {"ceil", [](double x) { return std::ceil(x); }},
      {"round", [](double x) { return std::nearbyint(x); }},
      {"logical_not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
      {"cast", [](double x) { return x; }},
  };
  return table;
}

const std::unordered_map<std::string_view, Binary>& binary_table() {
  static const std::unordered_map<std::string_view, Binary> table = {
      {"add", [](double x, double y) { return x + y; }},
      {"sub", [](double x, double y) { return x - y; }},
      {"mul", [](double x, double y) { return x * y; }},
      {"div", [](double x, double y) { return x / y; }},
      {"pow", [](double x, double y) { return std::pow(x, y); }},
      {"maximum", maximum},
      {"minimum", minimum},
      {"eq", [](double x, double y) { return x == y ? 1.0 : 0.0; }},
      {"ne", [](double x, double y) { return x != y ? 1.0 : 0.0; }},
      {"lt", [](double x, double y) { return x < y ? 1.0 : 0.0; }},
      {"le", [](double x, double y) { return x <= y ? 1.0 : 0.0; }},
      {"gt", [](double x, double y) { return x > y ? 1.0 : 0.0; }},
      {"ge", [](double x, double y) { return x >= y ? 1.0 : 0.0; }},
      {"logical_and", [](double x, double y) { return x != 0 && y != 0 ? 1.0 : 0.0; }},
      {"logical_or", [](double x, double y) { return x != 0 || y != 0 ? 1.0 : 0.0; }},
  };
  return table;
}

/// Calls visit(index of the result, index in an input of these strides) over a static shape.
template <class Visit>
void walk(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides, std::int64_t offset,
          Visit visit) {
  std::int64_t count = 1;
  for (std::int64_t d : shape) count *= d;
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    visit(i, offset);
    for (std::size_t d = shape.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < shape[d]) break;
      offset -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

/// Strides with which a tensor of shape `from` is read when it is broadcast to `to`.
std::vector<std::int64_t> broadcast_strides(const std::vector<std::int64_t>& from,
                                            const std::vector<std::int64_t>& to) {
  const std::vector<std::int64_t> own = strides_of(from);
  std::vector<std::int64_t> strides(to.size(), 0);
  const std::size_t extra = to.size() - from.size();
  for (std::size_t d = 0; d < from.size(); ++d) strides[d + extra] = from[d] == to[d + extra] ? own[d] : 0;
  return strides;
}

class ConstantFolder {
 public:
  explicit ConstantFolder(Graph& graph) : rewriter_(graph), graph_(graph) {}

  void run() {
    for (Node& node : rewriter_.old()) {
      rewriter_.forward_inputs(node);
      if (node.op->name == "full") {
        known_[node.outputs[0]] = {true, node.attributes.number("value"), {}};
        rewriter_.keep(std::move(node));
        continue;
      }
      Known result;
      if (node.outputs.size() == 1 && !node.op->has_effect() && !node.op->random && !node.inputs.empty() &&
          evaluate(node, result)) {
        replace(node, std::move(result));
        continue;
      }
      rewriter_.keep(std::move(node));
    }
    rewriter_.finish();
  }

 private:
  const Known* known(ValueId v) {
    if (v == kNone) return nullptr;
    if (const auto found = known_.find(v); found != known_.end()) return &found->second;
    const auto constant = graph_.constants.find(v);
    if (constant == graph_.constants.end() || constant->second->type.shape.numel().value() > kMostElements)
      return nullptr;
    auto elements = elements_of(*constant->second);
    if (!elements) return nullptr;
    return &known_.emplace(v, Known{false, 0, std::move(*elements)}).first->second;
  }

  bool evaluate(const Node& node, Known& result) {
    std::vector<const Known*> inputs;
    for (ValueId v : node.inputs)
      if (!known(v)) return false;
    bool uniform = true;
    for (ValueId v : node.inputs) {
      inputs.push_back(known(v));  // once all are in the table, which keeps its elements in place
      uniform = uniform && inputs.back()->uniform;
    }
    const TensorType& type = graph_.type(node.outputs[0]);
    if (!uniform && (!type.shape.is_static() || type.shape.numel().value() > kMostElements)) return false;
    return node.op->elementwise() ? evaluate_elementwise(node, inputs, uniform, type, result)
                                  : evaluate_movement(node, inputs, uniform, type, result);
  }

  bool evaluate_elementwise(const Node& node, const std::vector<const Known*>& inputs, bool uniform,
                            const TensorType& type, Known& result) {
    std::function<double(double, double, double)> function;
    const std::string_view op = node.op->name;
    // Powers of integers wrap around in the kernels; those are left to them.
    const bool integral = is_integral(type.dtype);
    if (inputs.size() == 1) {
      const auto found = unary_table().find(op);
      if (found == unary_table().end()) return false;
      function = [f = found->second](double x, double, double) { return f(x); };
    } else if (inputs.size() == 2) {
      const auto found = binary_table().find(op);
      if (found == binary_table().end() || (integral && op == "pow")) return false;
      function = [f = found->second](double x, double y, double) { return f(x, y); };
    } else if (op == "where") {
      function = [](double c, double x, double y) { return c != 0 ? x : y; };
    } else {
      return false;
    }
    bool valid = true;
    auto round = [&](double x) {
      valid = valid && can_hold(type.dtype, x);
      return valid ? round_to(type.dtype, x) : 0;
    };
    result.uniform = uniform;
    auto first = [&](std::size_t i) { return i < inputs.size() && inputs[i]->uniform ? inputs[i]->value : 0.0; };
    if (uniform) {
      result.value = round(function(first(0), first(1), first(2)));
      return valid;
    }
    const std::vector<std::int64_t> shape = type.shape.values();
    const auto count = static_cast<std::size_t>(type.shape.numel().value());
    std::vector<std::vector<double>> arguments(3, std::vector<double>(count, 0));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]->uniform) {
        arguments[i].assign(count, inputs[i]->value);
        continue;
      }
      walk(shape, broadcast_strides(graph_.type(node.inputs[i]).shape.values(), shape), 0,
           [&](std::int64_t to, std::int64_t from) {
             arguments[i][static_cast<std::size_t>(to)] = inputs[i]->elements[static_cast<std::size_t>(from)];
           });
    }
    result.elements.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      result.elements[i] = round(function(arguments[0][i], arguments[1][i], arguments[2][i]));
    return valid;
  }

  bool evaluate_movement(const Node& node, const std::vector<const Known*>& inputs, bool uniform,
                         const TensorType& type, Known& result) {
    const std::string_view op = node.op->name;
    if (op != "reshape" && op != "permute" && op != "expand" && op != "slice") return false;
    result.uniform = uniform;
    result.value = inputs[0]->value;
    if (uniform) return true;
    const std::vector<double>& x = inputs[0]->elements;
    if (op == "reshape") {
      result.elements = x;
      return true;
    }
    const std::vector<std::int64_t> from = graph_.type(node.inputs[0]).shape.values(), shape = type.shape.values();
    std::vector<std::int64_t> strides;
    std::int64_t offset = 0;
    if (op == "permute") {
      const std::vector<std::int64_t> own = strides_of(from);
      for (std::int64_t d : node.attributes.integers("dims")) strides.push_back(own[static_cast<std::size_t>(d)]);
    } else if (op == "expand") {
      strides = broadcast_strides(from, shape);
    } else {
      strides = strides_of(from);
      const auto dim = static_cast<std::size_t>(node.attributes.integer("dim"));
      offset = strides[dim] * node.attributes.integer("start");
      strides[dim] *= node.attributes.integer("step");
    }
    result.elements.resize(static_cast<std::size_t>(type.shape.numel().value()));
    walk(shape, strides, offset, [&](std::int64_t to, std::int64_t at) {
      result.elements[static_cast<std::size_t>(to)] = x[static_cast<std::size_t>(at)];
    });
    return true;
  }

  void replace(Node& node, Known result) {
    const ValueId y = node.outputs[0];
    const TensorType type = graph_.type(y);
    if (!result.uniform && !result.elements.empty()) {
      const double first = result.elements[0];
      bool same = true;
      for (double e : result.elements) same = same && e == first && std::signbit(e) == std::signbit(first);
      if (same) result = {true, first, {}};
    }
    if (result.uniform) {
      node.op = &get_op("full");
      node.inputs.clear();
      node.attributes = {{"shape", type.shape}, {"value", result.value}, {"dtype", type.dtype}};
      rewriter_.keep(std::move(node));
      known_[y] = std::move(result);
      return;
    }
    const ValueId constant = graph_.add_constant(graph_.value(y).name + ".folded", tensor_data(type, result.elements));
    known_[constant] = std::move(result);
    rewriter_.replace(y, constant);
  }

  Rewriter rewriter_;
  Graph& graph_;
  std::unordered_map<ValueId, Known> known_;
};

}  // namespace

void fold_constants(Graph& graph, const PassOptions& options) {
  ConstantFolder(graph).run();
  remove_dead_nodes(graph, options);
}

}  // namespace graven::ir
