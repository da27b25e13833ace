// What an entry declares is what there is: each form of an operator in each dtype that it takes runs eagerly as the
// oracle computes it, test cases reach no kernel that no form does, and any other dtype is refused in so many words.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "frontend/eager/executor.h"
#include "frontend/eager/table.h"
#include "ir/diagnostic.h"
#include "ir/forms.h"
#include "ir/passes/passes.h"
#include "tests/ops/backends.h"
#include "tests/ops/case_graph.h"
#include "tests/ops/compare.h"

namespace graven::tests {
namespace {

using ir::DType;
using ir::OpDef;

class FormsOfOperator : public testing::TestWithParam<const OpDef*> {};
class CasesOfOperator : public testing::TestWithParam<const OpDef*> {};
class SelectiveOperator : public testing::TestWithParam<const OpDef*> {};

TEST_P(FormsOfOperator, ComputeWhatTheOracleDoes) {
  const OpDef& op = *GetParam();
  const std::vector<ir::TestCase> cases = cases_of_forms(op);
  EXPECT_FALSE(cases.empty());
  for (const ir::TestCase& c : cases)
    for (const Backend& backend : backends()) {
      if (backend.compiles) continue;
      SCOPED_TRACE(c.note + " on " + backend.name);
      const CaseGraph forward = make_forward(op, c);
      compare(backend, forward, random_inputs(forward, op, c), c);
      if (!c.gradient) continue;
      const CaseGraph backward = make_gradient(op, c);
      compare(backend, backward, random_inputs(backward, op, c), looser(c));
    }
}

/// Looks up every kernel, and runs none.
void find_kernels(const ir::Graph& graph) {
  ir::Graph lowered = graph;
  eager::lower_for_eager(lowered);
  EXPECT_NO_THROW(eager::Executor(std::move(lowered), {}));
  ir::Graph taken_apart = graph;
  ir::decompose_reductions(taken_apart, {});
  ir::decompose_matmuls(taken_apart, {});
  for (const eager::Oracle oracle : {eager::Oracle::reference, eager::Oracle::double_reference})
    EXPECT_NO_THROW(eager::Executor(taken_apart, {.oracle = oracle}));
}

TEST_P(CasesOfOperator, ReachNoKernelThatNoFormDoes) {
  const OpDef& op = *GetParam();
  for (const ir::TestCase& c : op.cases()) {
    SCOPED_TRACE(c.note);
    const CaseGraph forward = make_forward(op, c);
    find_kernels(forward.graph);
    const std::vector<ir::ValueId>& outputs = forward.graph.outputs;
    if (op.gradient && !outputs.empty() && ir::is_floating(forward.graph.type(outputs[0]).dtype))
      find_kernels(make_gradient(op, c).graph);
  }
}

/// What an operator's form says to a dtype that the entry does not declare: the node of one that it does, with another.
std::string refusal_of(const ir::Graph& declared, DType other) {
  const ir::Node& node = declared.nodes[0];
  ir::Graph graph;
  std::vector<ir::ValueId> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == ir::kNone) {
      inputs.push_back(ir::kNone);
      continue;
    }
    const ir::TensorType& type = declared.type(node.inputs[i]);
    inputs.push_back(graph.add_input("x", {node.op->inputs[i].own_dtype().value_or(other), type.shape}));
  }
  ir::Attributes attributes = node.attributes;
  if (attributes.find("dtype")) attributes.set("dtype", other);
  try {
    (void)graph.add_node(*node.op, inputs, attributes, {});
  } catch (const UserError& e) {
    return e.message();
  }
  return "none";
}

TEST_P(SelectiveOperator, RefusesWhatItDoesNotDeclare) {
  const OpDef& op = *GetParam();
  const DType* const declared = std::find_if(std::begin(ir::kAllDTypes), std::end(ir::kAllDTypes),
                                             [&](DType d) { return op.dtypes.contains(d); });
  const ir::Graph graph = ir::graphs_of_forms(op, *declared)[0];
  const char* const where = op.find_attribute("dtype") ? " as 'dtype'" : "";
  for (const DType other : ir::kAllDTypes) {
    if (op.dtypes.contains(other)) continue;
    EXPECT_EQ(refusal_of(graph, other), std::string(op.name) + ": expects " + op.dtypes.to_string() + where + ", got " +
                                            std::string(ir::name(other)));
  }
}

// Where a kernel takes scratch memory at some sizes alone, it is given that at those: a thunk is for all of them.
TEST(Workspaces, AreGivenAtSizesThatNoFormHas) {
  for (const auto& [op, c] :
       {std::pair{"matmul",
                  ir::TestCase{.note = "many rows",
                               .inputs = {{.type = {DType::f32, {1024, 256}}}, {.type = {DType::f32, {256, 256}}}}}},
        std::pair{"linear_backward_weight",
                  ir::TestCase{.note = "many rows",
                               .inputs = {{.type = {DType::f32, {1300, 24}}}, {.type = {DType::f32, {1300, 40}}}}}}}) {
    SCOPED_TRACE(op);
    const CaseGraph made = make_forward(ir::get_op(op), c);
    const ir::KernelCall call = ir::lower({made.graph, made.graph.nodes[0]});
    EXPECT_GT(call.workspace_bytes.value_or(0), 0);
    for (const Backend& backend : backends())
      if (!backend.compiles) compare(backend, made, random_inputs(made, ir::get_op(op), c), c);
  }
}

const auto kNameOfOperator = [](const auto& info) { return std::string(info.param->name); };
INSTANTIATE_TEST_SUITE_P(Entries, FormsOfOperator,
                         testing::ValuesIn(operators([](const OpDef& op) { return !op.packs; })), kNameOfOperator);
INSTANTIATE_TEST_SUITE_P(Entries, CasesOfOperator, testing::ValuesIn(ir::all_ops()), kNameOfOperator);
INSTANTIATE_TEST_SUITE_P(Entries, SelectiveOperator,
                         testing::ValuesIn(operators([](const OpDef& op) { return op.dtypes != ir::kAnyDType; })),
                         kNameOfOperator);

}  // namespace
}  // namespace graven::tests
