// What the generator of the table and its users must agree on.
#include <algorithm>

#include "frontend/eager/table.h"
#include "ir/diagnostic.h"
#include "ir/passes/pass.h"

namespace graven::eager {

namespace {

std::string types_text(const std::vector<ir::DType>& outputs, const std::vector<ir::DType>& inputs) {
  std::string text = "(";
  for (std::size_t i = 0; i < outputs.size(); ++i) text.append(i ? "," : "").append(ir::name(outputs[i]));
  text += ';';
  for (std::size_t i = 0; i < inputs.size(); ++i) text.append(i ? "," : "").append(ir::name(inputs[i]));
  return text + ")";
}

}  // namespace

std::string kernel_key(const ir::KernelCall& call, const std::vector<ir::DType>& outputs,
                       const std::vector<ir::DType>& inputs) {
  std::string text = call.reference ? "reference/" : "cpu/";
  text += call.name;
  for (const std::string& a : call.template_arguments) text.append("<").append(a).append(">");
  return text + types_text(outputs, inputs);
}

std::string elementwise_key(std::string_view op, ir::DType output, const std::vector<ir::DType>& inputs) {
  std::string text = "elementwise/";
  text += op;
  return text + types_text({output}, inputs);
}

std::vector<const ir::AttributeSpec*> scalar_attributes(const ir::OpDef& op) {
  std::vector<const ir::AttributeSpec*> result;
  for (const ir::AttributeSpec& spec : op.attributes)
    if (spec.type == ir::AttributeType::boolean || spec.type == ir::AttributeType::integer ||
        spec.type == ir::AttributeType::number)
      result.push_back(&spec);
  return result;
}

Signature signature_of(const ir::Node& node, const std::function<ir::DType(ir::ValueId)>& dtype) {
  Signature s;
  for (ir::ValueId v : ir::own_outputs(node)) s.outputs.push_back(dtype(v));
  std::optional<ir::DType> computed;
  const auto consider = [&](ir::ValueId v) {
    if (!computed && v != ir::kNone && ir::is_floating(dtype(v))) computed = dtype(v);
  };
  for (ir::ValueId v : node.outputs) consider(v);
  for (ir::ValueId v : node.inputs) consider(v);
  if (!computed) computed = s.outputs.empty() ? ir::DType::f32 : s.outputs[0];
  const ir::OpDef& op = ir::lowered(*node.op);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const ir::InputRange range = ir::input_range(op, node.inputs.size(), i);
    const ir::ValueId v = range.count && range.begin < node.inputs.size() ? node.inputs[range.begin] : ir::kNone;
    s.inputs.push_back(v == ir::kNone ? op.inputs[i].own_dtype().value_or(*computed) : dtype(v));
  }
  return s;
}

void lower_for_eager(ir::Graph& graph) {
  // By name, in the order of the pipeline: what makes the fast kernels applicable, and what kernels need.
  constexpr std::string_view kWanted[] = {"choose_layout", "decompose_reductions", "decompose_matmuls",
                                          "widen_half_types", "pack_weights"};
  ir::TargetTraits host = ir::kHost;
  host.takes_half = ir::takes_half;
  ir::PassOptions options;
  options.target = &host;
  for (const ir::Pass& pass : ir::pipeline()) {
    if (std::find(std::begin(kWanted), std::end(kWanted), pass.name) == std::end(kWanted)) continue;
    if (pass.applies && !pass.applies(graph, options)) continue;
    pass.run(graph, options);
  }
}

}  // namespace graven::eager
