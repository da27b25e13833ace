#include "tests/ops/case_graph.h"

#include <cctype>

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
    inputs.push_back(made.graph.add_input("x" + std::to_string(i), test_case.inputs[i].type));
    made.input_of.push_back(static_cast<int>(i));
  }
  return made.graph.add_node(op, inputs, test_case.attributes, {}, ir::Phase::forward, "y");
}

}  // namespace

CaseGraph make_forward(const ir::OpDef& op, const ir::TestCase& test_case) {
  CaseGraph made;
  made.graph.name = "Forward";
  made.graph.outputs = add_operator(made, op, test_case);
  for (std::size_t i = 0; i < made.graph.outputs.size(); ++i) made.output_of.push_back(static_cast<int>(i));
  return made;
}

CaseGraph make_gradient(const ir::OpDef& op, const ir::TestCase& test_case, bool all_outputs) {
  CaseGraph made;
  made.graph.name = "Gradient";
  const std::vector<ValueId> outputs = add_operator(made, op, test_case);
  std::vector<ValueId> gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ir::TensorType type = made.graph.type(outputs[i]);
    const bool flows = ir::is_floating(type.dtype) && (i == 0 || all_outputs);
    gradients.push_back(flows ? made.graph.add_input("dy" + std::to_string(i), type) : kNone);
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
  std::string name = std::string(op.name) + "_" + std::to_string(index) + "_";
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

ir::TestCase with_floating(const ir::TestCase& test_case, ir::DType dtype) {
  ir::TestCase changed = test_case;
  for (ir::TestCase::Input& i : changed.inputs)
    if (ir::is_floating(i.type.dtype)) i.type.dtype = dtype;
  for (const auto& [key, value] : test_case.attributes) {
    if (const auto* d = std::get_if<ir::DType>(&value); d && ir::is_floating(*d)) changed.attributes.set(key, dtype);
    if (const auto* p = std::get_if<ir::ScalarProgram>(&value)) {
      ir::ScalarProgram program = *p;
      for (ir::ScalarProgram::Step& s : program.steps)
        if (ir::is_floating(s.dtype)) s.dtype = dtype;
      changed.attributes.set(key, program);
    }
  }
  return changed;
}

}  // namespace graven::tests
