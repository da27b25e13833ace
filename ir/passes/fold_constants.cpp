// Computes nodes whose inputs are all known: constants of the graph, and `full`. A result that is one number everywhere
// becomes `full`, which broadcasts and fuses for free; another one a constant, when it is small. Parameters are not
// constants: they stay replaceable, and what depends on them alone is moved to the prepare phase (prepare_weights).
#include <cmath>
#include <unordered_map>

#include "ir/element_rule.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/tensor_value.h"

namespace graven::ir {

namespace {

constexpr std::int64_t kMostElements = 65536;

/// Known contents: one number everywhere, or all elements in row-major order.
struct Known {
  bool uniform = true;
  double value = 0;
  std::vector<double> elements = {};
};

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
      if (node.is(kFull)) {
        known_[node.outputs[0]] = {true, node.attributes.number("value"), {}};
        rewriter_.keep(std::move(node));
        continue;
      }
      Known result;
      if (node.outputs.size() == 1 && !is_random(node) && !node.op->by_rank && !node.inputs.empty() &&
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
    // Powers of integers wrap around in the kernels; those are left to them.
    if (is_integral(type.dtype) && node.is(kPow)) return false;
    const ElementRule& rule = element_rule(*node.op);
    const auto attribute = [&](std::string_view name) { return number_of(node.attributes.at(name)).value(); };
    const DType computed = graph_.type(node.inputs.back()).dtype;  // the first may be a condition
    bool valid = true;
    const auto made_of = [&](std::span<const double> x) {
      const std::optional<double> value = rule.evaluate(x, attribute, computed);
      valid = valid && value && can_hold(type.dtype, *value);
      return valid ? round_to(type.dtype, *value) : 0;
    };
    result.uniform = uniform;
    std::vector<double> x;  // one element of each input
    for (const Known* input : inputs) x.push_back(input->value);
    if (uniform) {
      result.value = made_of(x);
      return valid;
    }
    const std::vector<std::int64_t> shape = type.shape.values();
    const auto count = at(type.shape.numel().value());
    std::vector<std::vector<double>> arguments(inputs.size(), std::vector<double>(count, 0));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]->uniform) {
        arguments[i].assign(count, inputs[i]->value);
        continue;
      }
      walk(shape, broadcast_strides(graph_.type(node.inputs[i]).shape.values(), shape), 0,
           [&](std::int64_t to, std::int64_t from) { arguments[i][at(to)] = inputs[i]->elements[at(from)]; });
    }
    result.elements.resize(count);
    for (std::size_t e = 0; e < count; ++e) {
      for (std::size_t i = 0; i < inputs.size(); ++i) x[i] = arguments[i][e];
      result.elements[e] = made_of(x);
    }
    return valid;
  }

  bool evaluate_movement(const Node& node, const std::vector<const Known*>& inputs, bool uniform,
                         const TensorType& type, Known& result) {
    if (!node.is(kReshape, kPermute, kExpand, kSlice)) return false;
    result.uniform = uniform;
    result.value = inputs[0]->value;
    if (uniform) return true;
    if (!depends_on_inputs_alone(node)) return false;  // a part that is another one at each size
    const std::vector<double>& x = inputs[0]->elements;
    if (node.is(kReshape)) {
      result.elements = x;
      return true;
    }
    const std::vector<std::int64_t> from = graph_.type(node.inputs[0]).shape.values(), shape = type.shape.values();
    std::vector<std::int64_t> strides;
    std::int64_t offset = 0;
    if (node.is(kPermute)) {
      const std::vector<std::int64_t> own = strides_of(from);
      for (std::int64_t d : node.attributes.integers("dims")) strides.push_back(own[at(d)]);
    } else if (node.is(kExpand)) {
      strides = broadcast_strides(from, shape);
    } else {
      strides = strides_of(from);
      const auto dim = static_cast<std::size_t>(node.attributes.integer("dim"));
      offset = strides[dim] * node.attributes.integer("start");
      strides[dim] *= node.attributes.integer("step");
    }
    result.elements.resize(at(type.shape.numel().value()));
    walk(shape, strides, offset, [&](std::int64_t to, std::int64_t of) { result.elements[at(to)] = x[at(of)]; });
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
      node.op = &kFull;
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
