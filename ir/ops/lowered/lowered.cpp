#include "ir/ops/lowered/lowered.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace graven::ir::ops {

std::vector<AttributeSpec> packing_attributes() {
  return {{"packed", AttributeType::boolean, false, "the weight is packed for the kernel"},
          {"weight_shape", AttributeType::integers, Ints{}, "the layer's, of a packed weight"}};
}

AttributeSpec epilogue_attribute() {
  return {"epilogue", AttributeType::program, ScalarProgram{},
          "applied to each element of the result; its second input is the residual"};
}

TensorType checked_weight(const InferContext& c, std::size_t weight) {
  const TensorType& given = c.input(weight);
  if (has_weight_by_channels(c.attributes)) {
    c.require(!c.attributes.flag("packed"), "a weight is packed or by channels, not both");
    require_rank(c, weight, 4, "weight");
    return {given.dtype, weight_by_taps(given.shape)};
  }
  if (!c.attributes.flag("packed")) return given;
  const Ints& list = c.attributes.integers("weight_shape");
  const Shape shape = Shape::of(checked_list(c, "weight_shape", list.size(), 0));
  (void)shape.numel();  // an overflow is the user's error here, not later
  c.require(c.attributes.flag_or("channels_last", true), "packed weights need channels_last");
  Packing packing = c.op().packing(c.attributes);
  const TensorType layer{given.dtype == DType::bf16 ? DType::bf16 : DType::f32, shape},
      packed = infer(*packing.op, {layer}, packing.attributes).at(0);
  c.require(given == packed,
            [&] { return "the packed weight must be " + packed.to_string() + ", got " + given.to_string(); });
  return layer;
}

void check_epilogue(const InferContext& c, std::size_t i, const TensorType& result) {
  const ScalarProgram& epilogue = c.attributes.program("epilogue");
  if (c.has_input(i))
    c.require(c.input(i) == result,
              [&] { return "the residual must be " + result.to_string() + ", got " + c.input(i).to_string(); });
  const std::int32_t given = c.has_input(i) ? 2 : 1, takes = epilogue.empty() ? 1 : epilogue.inputs;
  c.require(takes == given, [&] {
    return "the epilogue takes " + count_of(takes, "input") + ", " + std::to_string(given) +
           (given == 1 ? " is" : " are") + " given";
  });
  check_program(c, epilogue, std::vector<DType>(static_cast<std::size_t>(takes), result.dtype));
  c.require(epilogue.empty() || epilogue.steps.back().dtype == result.dtype, [&] {
    return "the epilogue must give " + std::string(name(result.dtype)) + ", got " +
           std::string(name(epilogue.steps.back().dtype));
  });
}

namespace {

/// As `lowers` infers it of the layer's weight.
void infer_lowered(InferContext& c) {
  const OpDef& op = *c.op().lowers;
  const std::size_t weight = input_of(op, InputRole::weight), residual = op.inputs.size();
  std::vector<std::optional<TensorType>> inputs(std::min(c.input_count(), residual));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (c.has_input(i)) inputs[i] = i == weight ? checked_weight(c, i) : c.input(i);
  Attributes attributes;
  for (const AttributeSpec& spec : op.attributes) attributes.set(spec.name, c.attributes.at(spec.name));
  const TensorType y = infer(op, inputs, attributes).at(0);
  for (const auto& [key, value] : attributes) c.attributes.set(key, value);
  check_epilogue(c, residual, y);
  c.output(y.dtype, y.shape);
}

Cost cost_lowered(const NodeView& node) { return node.node.op->lowers->cost(node); }

/// The cases of `op` of each dtype but f32 and of small sizes, finished by relu(y + residual). Its images lie as
/// [n, h, w, c].
std::vector<TestCase> finished_cases(const OpDef& op) {
  std::vector<TestCase> cases;
  for (TestCase& c : op.cases()) {
    const auto is_small = [](const Dim& d) { return d.maximum() <= 1; };
    std::vector<std::optional<TensorType>> inputs;
    bool wanted = false;
    for (const TestCase::Input& i : c.inputs) {
      inputs.push_back(i.absent ? std::nullopt : std::optional(i.type));
      wanted = wanted || i.type.dtype != DType::f32 || std::any_of(i.type.shape.begin(), i.type.shape.end(), is_small);
    }
    if (!wanted) continue;
    if (op.layout.rule == ir::ImageLayout::Rule::leads) {
      const Shape nchw = c.inputs[0].type.shape;
      inputs[0]->shape = c.inputs[0].type.shape = {nchw[0], nchw[2], nchw[3], nchw[1]};
      c.attributes.set("channels_last", true);
    }
    Attributes attributes = c.attributes;
    const TensorType y = infer(op, inputs, attributes).at(0);
    c.inputs.resize(op.inputs.size(), absent());
    c.inputs.push_back(random(y.dtype, y.shape));
    c.attributes.set("epilogue", ScalarProgram{.inputs = 2,
                                               .steps = {{.op = "add", .arguments = {0, 1}, .dtype = y.dtype},
                                                         {.op = "relu", .arguments = {2}, .dtype = y.dtype}}});
    c.gradient = false;
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace

OpDef lowered(OpDef entry) {
  entry.inputs.push_back(kResidual);
  if (entry.packing != nullptr) entry.attributes = join(std::move(entry.attributes), packing_attributes());
  entry.attributes.push_back(epilogue_attribute());
  entry.infer = infer_lowered;
  entry.lowered = true;
  entry.cost = cost_lowered;
  entry.amp = AmpClass::white;
  entry.cases = [op = entry.lowers] { return finished_cases(*op); };
  return entry;
}

}  // namespace graven::ir::ops
