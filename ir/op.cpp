#include "ir/op.h"

#include <algorithm>
#include <unordered_map>

#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/ops/shared.h"
#include "ir/rates.h"

namespace graven::ir {

namespace {

const OpDef* const kOps[] = {
#define GRAVEN_OP(symbol) &symbol,
#include "ir/op_list.inc"
#undef GRAVEN_OP
};

const std::unordered_map<std::string_view, const OpDef*>& by_name() {
  static const auto* const map = [] {
    auto* m = new std::unordered_map<std::string_view, const OpDef*>;
    for (const OpDef* op : kOps) {
      const bool fresh = m->emplace(op->name, op).second;
      GRAVEN_CHECK(fresh, "two operators are named " + std::string(op->name));
    }
    return m;
  }();
  return *map;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// "x (f32)", of a list "xs[1] (f32)".
std::string described(const InputSpec& spec, std::size_t i, DType dtype) {
  return std::string(spec.name) + (spec.variadic ? "[" + std::to_string(i) + "]" : "") + " (" +
         std::string(name(dtype)) + ")";
}

/// User error unless each input is of its own dtype, or else of one that the operator takes, and all of the same, sums
/// aside.
void check_dtypes(const OpDef& op, InputTypes inputs) {
  std::optional<DType> common;
  std::pair<const InputSpec*, std::size_t> first;  // that has it
  for (const InputSpec& spec : op.inputs) {
    const InputRange range = input_range(op, inputs.size(), static_cast<std::size_t>(&spec - op.inputs.data()));
    for (std::size_t i = 0; i < range.count && range.begin + i < inputs.size(); ++i) {
      if (!inputs[range.begin + i]) continue;
      const DType found = inputs[range.begin + i]->dtype;
      const std::optional<DType> own =
          spec.is_sum && common ? std::optional(ops::dtype_of_sums(*common)) : spec.own_dtype();
      if (own) {
        if (found != *own)
          throw UserError(std::string(spec.name) + " must be " + std::string(name(*own)) + ", got " +
                          std::string(name(found)));
        continue;
      }
      if (common && found != *common)
        throw UserError("expects inputs of one dtype, got " + described(*first.first, first.second, *common) + " and " +
                        described(spec, i, found));
      if (!op.dtypes.contains(found))
        throw UserError("expects " + op.dtypes.to_string() + ", got " + std::string(name(found)));
      if (common || spec.role == InputRole::operand) continue;
      common = found;
      first = {&spec, i};
    }
  }
}

/// Sizes that PyTorch users would write as integers are accepted where a number is due; nothing else is converted.
bool coerce(Attribute& value, AttributeType wanted) {
  if (type_of(value) == wanted) return true;
  if (wanted == AttributeType::number && type_of(value) == AttributeType::integer) {
    value = static_cast<double>(std::get<std::int64_t>(value));
    return true;
  }
  if (wanted == AttributeType::shape && type_of(value) == AttributeType::integers) {
    value = Shape::of(std::get<Ints>(value));
    return true;
  }
  return false;
}

}  // namespace

std::span<const OpDef* const> all_ops() { return kOps; }

const OpDef* find_op(std::string_view name) {
  const auto it = by_name().find(name);
  return it == by_name().end() ? nullptr : it->second;
}

const OpDef& get_op(std::string_view name) {
  if (const OpDef* op = find_op(name)) return *op;
  UserError error("unknown operator '" + std::string(name.substr(0, 100)) + "'");
  const OpDef* closest = nullptr;
  std::size_t best = name.size() / 2 + 1;
  if (name.size() <= 64)
    for (const OpDef* op : kOps)
      if (const std::size_t d = edit_distance(name, op->name); d < best) best = d, closest = op;
  if (closest) error.note("did you mean '" + std::string(closest->name) + "'?");
  throw error;
}

const OpDef& lowered(const OpDef& op) {
  static const auto forms = [] {
    std::unordered_map<const OpDef*, const OpDef*> found;
    for (const OpDef* o : kOps)
      if (o->lowers != nullptr) found.emplace(o->lowers, o);
    return found;
  }();
  const auto found = forms.find(&op);
  return found == forms.end() ? op : *found->second;
}

std::size_t input_of(const OpDef& op, InputRole role) {
  const auto found =
      std::find_if(op.inputs.begin(), op.inputs.end(), [role](const InputSpec& i) { return i.role == role; });
  return static_cast<std::size_t>(found - op.inputs.begin());
}

std::string NumberRange::to_string() const {
  return (excludes_least ? "(" : "[") + ops::text_of(least) + ", " + ops::text_of(most) + (excludes_most ? ")" : "]");
}

std::optional<TensorType> state_type(StateShape shape, const TensorType& parameter) {
  const std::size_t rank = parameter.shape.rank();
  if (shape == StateShape::parameter) return parameter;
  if ((shape == StateShape::unfactored) != (rank < 2)) return std::nullopt;
  TensorType type = parameter;
  if (shape == StateShape::rows) type.shape[rank - 1] = 1;
  if (shape == StateShape::columns) type.shape[rank - 2] = 1;
  return type;
}

bool is_used(const InputSpec& input, const Attributes& attributes) {
  const Attribute* value = attributes.find(input.option);
  if (value == nullptr) return input.option.empty();
  return number_of(*value).value() != 0;
}

bool is_update(const OpDef& op) { return input_of(op, InputRole::gradient) < op.inputs.size(); }

bool updates_parameter(const OpDef& op) {
  return input_of(op, InputRole::parameter) < op.inputs.size() && !is_update(op);
}

/// How many inputs are lists, and how many one value each.
static std::pair<std::size_t, std::size_t> counts_of(const OpDef& op, std::size_t flat_count) {
  std::size_t variadic = 0;
  for (const InputSpec& i : op.inputs) variadic += i.variadic;
  const std::size_t fixed = op.inputs.size() - variadic;
  // Lists are equally long, so that what is left over tells whether the last input is there.
  const bool is_left_out = variadic > 1 && op.inputs.back().optional && !op.inputs.back().variadic &&
                           flat_count + 1 >= fixed && (flat_count + 1 - fixed) % variadic == 0;
  return {variadic, fixed - is_left_out};
}

InputRange input_range(const Node& node, InputRole role) {
  return input_range(*node.op, node.inputs.size(), input_of(*node.op, role));
}

InputRange input_range(const OpDef& op, std::size_t flat_count, std::size_t spec) {
  const auto [variadic, fixed] = counts_of(op, flat_count);
  const std::size_t each = variadic && flat_count > fixed ? (flat_count - fixed) / variadic : 0;
  std::size_t begin = 0;
  for (std::size_t s = 0; s < spec; ++s) begin += op.inputs[s].variadic ? each : 1;
  return {begin, op.inputs[spec].variadic ? each : 1};
}

std::vector<std::size_t> donated_inputs(const OpDef& op, std::span<const ValueId> inputs) {
  std::vector<std::size_t> found;
  if (!op.donates()) return found;
  for (std::size_t s = 0; s < op.inputs.size(); ++s) {
    if (!op.inputs[s].donated()) continue;
    const InputRange range = input_range(op, inputs.size(), s);
    for (std::size_t i = range.begin; i < range.begin + range.count && i < inputs.size(); ++i)
      if (inputs[i] != kNone) found.push_back(i);
  }
  return found;
}

std::vector<InPlace> donated_by(const Node& node) {
  const std::vector<std::size_t> inputs = donated_inputs(*node.op, node.inputs);
  std::vector<InPlace> pairs;
  for (std::size_t k = 0; k < inputs.size(); ++k) pairs.push_back({inputs[k], node.outputs.size() - inputs.size() + k});
  return pairs;
}

std::span<const ValueId> own_outputs(const Node& node) {
  return std::span(node.outputs).first(node.outputs.size() - donated_inputs(*node.op, node.inputs).size());
}

void InferContext::fail(const std::string& message) const { throw UserError(message); }

std::vector<TensorType> infer(const OpDef& op, const std::vector<std::optional<TensorType>>& inputs,
                              Attributes& attributes) {
  std::vector<const TensorType*> types;
  types.reserve(inputs.size());
  for (const std::optional<TensorType>& type : inputs) types.push_back(type ? &*type : nullptr);
  return infer(op, types, attributes);
}

std::vector<TensorType> infer(const OpDef& op, InputTypes inputs, Attributes& attributes) {
  // ---- inputs ----
  std::size_t required = 0;
  for (const InputSpec& i : op.inputs) required += !i.variadic && !i.optional;
  const auto [variadic, fixed] = counts_of(op, inputs.size());
  if (inputs.size() < required || (!variadic && inputs.size() > fixed) ||
      (variadic && (inputs.size() < fixed || (inputs.size() - fixed) % variadic != 0)))
    throw UserError("expects " + std::to_string(required) +
                    (variadic            ? " or more"
                     : required != fixed ? " to " + std::to_string(fixed)
                                         : "") +
                    (required == 1 && fixed == 1 && !variadic ? " input, got " : " inputs, got ") +
                    std::to_string(inputs.size()));
  for (std::size_t s = 0; s < op.inputs.size(); ++s) {
    const InputRange range = input_range(op, inputs.size(), s);
    // A list that ends early lacks what stands behind its end: with optional inputs in the middle it may still be long
    // enough.
    for (std::size_t i = range.begin; i < range.begin + range.count; ++i)
      if (!op.inputs[s].optional && (i >= inputs.size() || !inputs[i]))
        throw UserError("the input '" + std::string(op.inputs[s].name) + "' is missing");
  }
  check_dtypes(op, inputs);
  // ---- attributes ----
  std::vector<std::pair<std::string, Attribute>> changed;
  for (const auto& [key, value] : attributes) {
    const AttributeSpec* const spec = op.find_attribute(key);
    if (spec == nullptr) throw UserError("has no attribute '" + key + "'");
    if (type_of(value) == spec->type) continue;
    Attribute converted = value;
    if (!coerce(converted, spec->type))
      throw UserError("the attribute '" + key + "' must be of type " + std::string(name(spec->type)) + ", got " +
                      std::string(name(type_of(value))));
    changed.emplace_back(key, std::move(converted));
  }
  for (auto& [key, value] : changed) attributes.set(key, std::move(value));
  for (const AttributeSpec& spec : op.attributes) {
    if (attributes.find(spec.name)) continue;
    if (!spec.fallback) throw UserError("the attribute '" + std::string(spec.name) + "' is required");
    attributes.set(spec.name, *spec.fallback);
  }
  if (const Attribute* dtype = attributes.find("dtype"); dtype && !op.dtypes.contains(std::get<DType>(*dtype)))
    throw UserError("expects " + op.dtypes.to_string() + " as 'dtype', got " +
                    std::string(name(std::get<DType>(*dtype))));
  // ---- outputs ----
  InferContext context(op, inputs, attributes);
  (op.infer != nullptr ? op.infer : ops::infer_elementwise)(context);
  if (op.donates()) {
    std::vector<ValueId> present;
    for (const TensorType* input : inputs) present.push_back(input != nullptr ? 0 : kNone);
    for (const std::size_t i : donated_inputs(op, present)) context.outputs.push_back(*inputs[i]);
  }
  return std::move(context.outputs);
}

Cost cost_of(const NodeView& node) {
  const OpDef& op = *node.node.op;
  Cost cost;
  if (op.cost) {
    cost = op.cost(node);
  } else if (!op.alias) {
    for (std::size_t i = 0; i < node.node.outputs.size(); ++i)
      cost.flops += static_cast<double>(node.output(i).shape.numel().maximum());
  }
  if (cost.bytes < 0) {
    cost.bytes = 0;
    if (op.alias) return cost;
    auto bytes = [](const TensorType& t) {
      return static_cast<double>(t.shape.numel().maximum()) * static_cast<double>(size_of(t.dtype));
    };
    for (std::size_t i = 0; i < node.node.inputs.size(); ++i)
      if (node.has_input(i)) cost.bytes += bytes(node.input(i));
    for (std::size_t i = 0; i < node.node.outputs.size(); ++i) cost.bytes += bytes(node.output(i));
  }
  return cost;
}

double seconds_of(const Cost& cost, const Rates& rates) {
  const double arithmetic = cost.flops / rates.flops, traffic = cost.bytes / rates.bytes;
  return rates.call + (rates.at_once ? std::max(arithmetic, traffic) : arithmetic + traffic);
}

double seconds_of(const Cost& cost) { return seconds_of(cost, Rates{}); }

// ---- gradients ------------------------------------------------------------------------------------------------------

std::vector<ValueId> GradientBuilder::call_many(std::string_view op, std::vector<ValueId> inputs,
                                                Attributes attributes) {
  std::string base = graph_.value(node_.outputs.empty() ? node_.inputs[0] : node_.outputs[0]).name;
  return graph_.add_node(get_op(op), std::move(inputs), std::move(attributes), node_.origins, Phase::backward,
                         "grad(" + base + ")." + std::string(op));
}

ValueId GradientBuilder::call(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
  return call_many(op, std::move(inputs), std::move(attributes)).at(0);
}

ValueId GradientBuilder::scalar(double value, ValueId like) {
  return call("full", {}, {{"shape", Shape{}}, {"value", value}, {"dtype", graph_.type(like).dtype}});
}

void GradientBuilder::set(std::size_t i, ValueId gradient) {
  const bool given = gradient != kNone && has_input(i);
  gradients_[i] = given && type(gradient).dtype != type(input(i)).dtype
                      ? call("cast", {gradient}, {{"dtype", type(input(i)).dtype}})
                      : gradient;
}

void GradientBuilder::set_reduced(std::size_t i, ValueId gradient) {
  const TensorType target = graph_.type(node_.inputs[i]);
  const TensorType from = graph_.type(gradient);
  if (from.shape != target.shape) {
    const std::size_t extra = from.shape.rank() - target.shape.rank();
    Ints dims;
    for (std::size_t d = 0; d < from.shape.rank(); ++d)
      if (d < extra || (target.shape[d - extra] == Dim(1) && from.shape[d] != Dim(1)))
        dims.push_back(static_cast<std::int64_t>(d));
    if (!dims.empty()) gradient = call("sum", {gradient}, {{"dims", dims}, {"keepdim", false}});
    if (graph_.type(gradient).shape != target.shape) gradient = call("reshape", {gradient}, {{"shape", target.shape}});
  }
  if (from.dtype != target.dtype) gradient = call("cast", {gradient}, {{"dtype", target.dtype}});
  set(i, gradient);
}

}  // namespace graven::ir
