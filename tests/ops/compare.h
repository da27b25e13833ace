// Test cases on backends: what goes in, and how what comes out is compared with the reference kernels in double.
#pragma once

#include <functional>
#include <vector>

#include "tests/ops/backends.h"
#include "tests/ops/case_graph.h"

namespace graven::tests {

/// Contents for every input of the graph: the case's own limits, [-1, 1) for gradients of outputs.
std::vector<ir::TensorData> random_inputs(const CaseGraph& made, const ir::OpDef& op, const ir::TestCase& test_case);

/// Runs one case's graph.
void compare(const Backend& backend, const CaseGraph& made, const std::vector<ir::TensorData>& inputs,
             const ir::TestCase& test_case);

/// A gradient is a longer computation than the operator.
ir::TestCase looser(const ir::TestCase& test_case);

/// The operators that a rule picks: what it leaves out has no test that says it passed.
std::vector<const ir::OpDef*> operators(const std::function<bool(const ir::OpDef&)>& rule);

/// What a user's graph may hold: the layout is chosen, and weights are packed, by passes.
std::vector<NamedCase> cases_to_compile();

/// All cases, or their gradients, in one graph: one compilation.
void compare_batch(const Backend& backend, const std::vector<NamedCase>& cases, bool gradients);

}  // namespace graven::tests
