#include "ir/forms.h"

#include <optional>
#include <string>
#include <utility>

#include "ir/diagnostic.h"
#include "ir/ops/shared.h"

namespace graven::ir {

namespace {

/// The attributes with each of the options that ask for states off and on.
std::vector<Attributes> choices_of_states(const OpDef& op, const Attributes& given) {
  std::vector<Attributes> choices{given};
  for (const InputSpec& spec : op.inputs) {
    if (spec.option.empty()) continue;
    const bool is_flag = op.find_attribute(spec.option)->type == AttributeType::boolean;
    std::vector<Attributes> both;
    for (Attributes& choice : choices)
      for (const bool on : {false, true}) {
        choice.set(spec.option, is_flag ? Attribute(on) : Attribute(on ? 0.5 : 0.0));
        both.push_back(choice);
      }
    choices = std::move(both);
  }
  return choices;
}

/// The type of an input; none where the form leaves it out.
std::optional<TensorType> type_of(const OpDef& op, std::size_t input, const std::vector<Shape>& shapes,
                                  const Attributes& attributes, DType dtype) {
  const InputSpec& spec = op.inputs[input];
  if (!is_used(spec, attributes)) return std::nullopt;
  const DType others = spec.is_sum ? ops::dtype_of_sums(dtype) : dtype;
  TensorType type{spec.own_dtype().value_or(others), spec.number() ? Shape{} : Shape{4, 4}};
  if (input < shapes.size())
    type.shape = shapes[input];
  else if (spec.role == InputRole::state)
    return state_type(spec.shape, type);
  else if (spec.optional)
    return std::nullopt;
  return type;
}

void set_dtypes(const OpDef& op, Attributes& attributes, DType dtype) {
  for (const AttributeSpec& spec : op.attributes) {
    const Attribute* const given = attributes.find(spec.name);
    if (spec.name == "dtype") attributes.set(spec.name, dtype);
    if (given == nullptr || spec.type != AttributeType::program) continue;
    ScalarProgram program = std::get<ScalarProgram>(*given);
    for (ScalarProgram::Step& step : program.steps)
      if (step.dtype != DType::boolean) step.dtype = dtype;
    attributes.set(spec.name, std::move(program));
  }
}

}  // namespace

std::vector<Graph> graphs_of_forms(const OpDef& op, DType dtype) {
  std::vector<Graph> graphs;
  for (const Form& form : op.forms)
    for (Attributes& attributes : choices_of_states(op, form.attributes)) {
      Graph graph;
      std::vector<ValueId> inputs;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const std::optional<TensorType> type = type_of(op, i, form.shapes, attributes, dtype);
        inputs.push_back(type ? graph.add_input(std::string(op.inputs[i].name), *type) : kNone);
      }
      while (!inputs.empty() && inputs.back() == kNone) inputs.pop_back();
      set_dtypes(op, attributes, dtype);
      try {
        graph.outputs = graph.add_node(op, inputs, attributes, {});
      } catch (const UserError&) {
        continue;
      }
      graphs.push_back(std::move(graph));
    }
  GRAVEN_CHECK(!graphs.empty() || !op.dtypes.contains(dtype),
               std::string(op.name) + " declares " + std::string(name(dtype)) + ", and no form of it takes that");
  return graphs;
}

}  // namespace graven::ir
