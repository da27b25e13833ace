// What the self-test of a project compares with: inputs made up from a formula, and what the graph makes of them, computed by plain loops in
// double precision when the project is generated.
#pragma once

#include <map>
#include <string>

#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"

namespace graven::codegen {

/// "input.<member>", and "output.<member>" (inference) or "loss" and "gradient.<path>" (training): contents of selftest.safetensors.
std::map<std::string, ir::TensorData> record(const ir::Graph& graph, const Plan& plan, const EmitOptions& options);

/// A tensor for a parameter that nobody gave: uniform in [-b, b] with b = 1 / sqrt(elements of an output), from its name alone.
ir::TensorData made_up_weight(const std::string& name, const ir::TensorType& type);

}  // namespace graven::codegen
