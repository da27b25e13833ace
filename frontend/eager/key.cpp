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

std::string kernel_key(bool reference, const ir::KernelCall& call, const std::vector<ir::DType>& outputs, const std::vector<ir::DType>& inputs) {
  std::string text = reference ? "reference/" : "cpu/";
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
    if (spec.type == ir::AttributeType::boolean || spec.type == ir::AttributeType::integer || spec.type == ir::AttributeType::number)
      result.push_back(&spec);
  return result;
}

Signature signature_of(const ir::Node& node, const std::function<ir::DType(ir::ValueId)>& dtype) {
  Signature s;
  for (ir::ValueId v : node.outputs) s.outputs.push_back(dtype(v));
  std::optional<ir::DType> computed;
  const auto consider = [&](ir::ValueId v) {
    if (!computed && v != ir::kNone && ir::is_floating(dtype(v))) computed = dtype(v);
  };
  for (ir::ValueId v : node.outputs) consider(v);
  for (ir::ValueId v : node.inputs) consider(v);
  if (!computed) computed = s.outputs.empty() ? ir::DType::f32 : s.outputs[0];
  for (std::size_t i = 0; i < node.op->inputs.size(); ++i) {
    const ir::InputRange range = ir::input_range(*node.op, node.inputs.size(), i);
    const ir::ValueId v = range.count && range.begin < node.inputs.size() ? node.inputs[range.begin] : ir::kNone;
    s.inputs.push_back(v == ir::kNone ? *computed : dtype(v));
  }
  return s;
}

namespace {

/// Kernels reduce over neighbouring dimensions: a reduction over separate ones becomes several, innermost first. (A mean of means of equal counts
/// is the mean.)
void split_reductions(ir::Graph& graph) {
  constexpr std::string_view kReductions[] = {"sum", "mean", "amax", "amin", "prod"};
  const auto runs_of = [](const ir::Ints& dims) {
    std::vector<ir::Ints> runs;
    for (std::int64_t d : dims) {
      if (runs.empty() || runs.back().back() + 1 != d) runs.emplace_back();
      runs.back().push_back(d);
    }
    return runs;
  };
  const auto splits = [&](const ir::Node& n) {
    return std::find(std::begin(kReductions), std::end(kReductions), n.op->name) != std::end(kReductions) &&
           runs_of(n.attributes.integers("dims")).size() > 1;
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), splits)) return;
  std::vector<ir::Node> old = std::move(graph.nodes);
  graph.nodes.clear();
  for (ir::Node& n : old) {
    if (!splits(n)) {
      graph.nodes.push_back(std::move(n));
      continue;
    }
    std::vector<ir::Ints> runs = runs_of(n.attributes.integers("dims"));
    ir::ValueId v = n.inputs.at(0);
    for (std::size_t r = runs.size(); r-- > 0;) v = graph.call(n.op->name, {v}, {{"dims", runs[r]}, {"keepdim", true}}, n.origins, n.phase);
    // The result keeps its id: an alias of the last one under the shape that was asked for.
    ir::Node shape = n;
    shape.op = &ir::get_op("reshape");
    shape.inputs = {v};
    shape.attributes = {{"shape", graph.type(n.outputs[0]).shape}};
    graph.nodes.push_back(std::move(shape));
  }
}

}  // namespace

void lower_for_eager(ir::Graph& graph) {
  // By name, in the order of the pipeline: what makes the fast kernels applicable, and what kernels need.
  constexpr std::string_view kWanted[] = {"choose_layout", "pack_weights", "decompose", "decompose_reductions", "decompose_operators"};
  const ir::PassOptions options;
  for (const ir::Pass& pass : ir::pipeline()) {
    if (std::find(std::begin(kWanted), std::end(kWanted), pass.name) == std::end(kWanted)) continue;
    if (pass.applies && !pass.applies(graph, options)) continue;
    pass.run(graph, options);
  }
  split_reductions(graph);
}

}  // namespace graven::eager
