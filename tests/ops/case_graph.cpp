#include "tests/ops/case_graph.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "ir/forms.h"

namespace graven::tests {

using ir::GradientBuilder;
using ir::kNone;
using ir::ValueId;

namespace {

std::vector<ValueId> add_operator(CaseGraph& made, const ir::OpDef& op, const ir::TestCase& test_case) {
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < test_case.inputs.size(); ++i) {
    if (test_case.inputs[i].absent) {
      inputs.push_back(kNone);
      continue;
    }
    inputs.push_back(made.graph.add_input(fmt::format("x{}", i), test_case.inputs[i].type));
    made.input_of.push_back(static_cast<int>(i));
  }
  return made.graph.add_node(op, inputs, test_case.attributes, {}, ir::Phase::forward, "y");
}

}  // namespace

CaseGraph make_forward(const ir::OpDef& op, const ir::TestCase& test_case) {
  CaseGraph made;
  made.graph.name = "Forward";
  made.graph.outputs = add_operator(made, op, test_case);
  // Without running statistics there are no new ones.
  if (op.name == "batch_norm_training" && test_case.inputs[3].absent) made.graph.outputs.resize(3);
  for (std::size_t i = 0; i < made.graph.outputs.size(); ++i) made.output_of.push_back(static_cast<int>(i));
  return made;
}

std::vector<ir::TestCase> cases_of_forms(const ir::OpDef& op) {
  // An index that is 1 is in range, a step that is 1 the first; a mean of squares is more than the mean's square.
  const auto input = [](const ir::InputSpec& spec, const ir::TensorType& type) -> ir::TestCase::Input {
    if (spec.role == ir::InputRole::state) return {.type = type, .low = 0.5, .high = 0.7};
    if (ir::is_floating(type.dtype)) return {.type = type, .low = 0.1, .high = 0.9};
    return {.type = type, .low = type.dtype == ir::DType::boolean ? 0.0 : 1.0, .high = 2};
  };
  std::vector<ir::TestCase> cases;
  for (const ir::DType d : ir::kAllDTypes) {
    if (!op.dtypes.contains(d)) continue;
    for (const ir::Graph& graph : ir::graphs_of_forms(op, d)) {
      const ir::Node& node = graph.nodes[0];
      if (node.attributes.flag_or("packed", false)) continue;
      ir::TestCase c{.note = fmt::format("{}, form {}", ir::name(d), cases.size()),
                     .attributes = node.attributes,
                     .gradient = op.gradient != nullptr && ir::is_floating(d)};
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        c.inputs.push_back(node.inputs[i] == kNone ? ir::TestCase::Input{.absent = true}
                                                   : input(op.inputs[i], graph.type(node.inputs[i])));
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

CaseGraph make_gradient(const ir::OpDef& op, const ir::TestCase& test_case, bool all_outputs) {
  CaseGraph made;
  made.graph.name = "Gradient";
  const std::vector<ValueId> outputs = add_operator(made, op, test_case);
  std::vector<ValueId> gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ir::TensorType type = made.graph.type(outputs[i]);
    const bool flows = ir::is_floating(type.dtype) && (i < op.gradient_outputs || all_outputs);
    gradients.push_back(flows ? made.graph.add_input(fmt::format("dy{}", i), type) : kNone);
    if (flows) made.input_of.push_back(-1 - static_cast<int>(i));
  }
  const ir::Node node = made.graph.nodes.back();
  std::vector<bool> needed;
  for (ValueId v : node.inputs) needed.push_back(v != kNone && ir::is_floating(made.graph.type(v).dtype));
  GradientBuilder builder(made.graph, node, gradients, needed);
  op.gradient(builder);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i] || builder.gradients()[i] == kNone) continue;
    made.graph.outputs.push_back(builder.gradients()[i]);
    made.output_of.push_back(static_cast<int>(i));
  }
  return made;
}

std::string test_name(const ir::OpDef& op, const ir::TestCase& test_case, std::size_t index) {
  std::string name = fmt::format("{}_{}_", op.name, index);
  for (const char c : test_case.note) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

std::vector<NamedCase> all_cases() {
  std::vector<NamedCase> all;
  for (const ir::OpDef* op : ir::all_ops()) {
    if (!op->cases) continue;
    std::size_t index = 0;
    for (ir::TestCase& c : op->cases()) {
      std::string name = test_name(*op, c, index++);
      all.push_back({op, std::move(c), std::move(name)});
    }
  }
  return all;
}

Batch make_batch(const std::vector<NamedCase>& cases, bool gradients) {
  Batch batch;
  batch.graph.name = gradients ? "Gradients" : "Forward";
  for (const NamedCase& c : cases) {
    if (gradients && !c.test_case.gradient) continue;
    Batch::Part part{c.op, c.test_case, c.name, batch.graph.inputs.size(), batch.graph.outputs.size(), {}};
    part.alone = gradients ? make_gradient(*c.op, c.test_case) : make_forward(*c.op, c.test_case);
    const ir::Graph& from = part.alone.graph;
    std::vector<ValueId> moved(from.values.size(), kNone);
    const auto at = [&](ValueId v) -> ValueId& { return moved[static_cast<std::size_t>(v)]; };
    for (ValueId v : from.inputs)
      at(v) = batch.graph.add_input(fmt::format("{}.{}", c.name, from.value(v).name), from.type(v));
    for (const ir::Node& n : from.nodes) {
      std::vector<ValueId> inputs;
      for (ValueId v : n.inputs) inputs.push_back(v == kNone ? kNone : at(v));
      const std::vector<ValueId> outputs = batch.graph.add_node(*n.op, inputs, n.attributes, {{c.name, {}, 0}});
      for (std::size_t i = 0; i < outputs.size(); ++i) at(n.outputs[i]) = outputs[i];
    }
    for (ValueId v : from.outputs) batch.graph.outputs.push_back(at(v));
    batch.parts.push_back(std::move(part));
  }
  return batch;
}

}  // namespace graven::tests
