// What the self-test of a project compares with: inputs made up from a formula, and what the graph makes of them,
// computed by plain loops in double precision when the project is generated; and how far rounding may lead from there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codegen/emit/evaluation.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"

namespace graven::codegen {

/// The learning rates of the self-test: large, so that rounding hides little of what is added to a parameter, and one
/// unlike the next.
inline double test_rate(std::int64_t group) { return 1.0 / static_cast<double>(2 + group % 8); }

/// How much of a graph the self-test is recorded of: all of it, a smaller batch, or nothing.
struct Extent {
  bool recorded = false;
  bool reduced = false;                         ///< a symbol stands for less than it may
  std::map<std::string, std::int64_t> symbols;  ///< by name: the sizes that the self-test runs with
  double bytes = 0;                             ///< what the reference takes in memory, at those sizes
};

/// The largest that EmitOptions::selftest allows: symbols are halved until the reference fits. Nothing where it does
/// not fit even so, or where there is no `options.execute`. It depends on nothing else, so that the same graph is
/// emitted alike on any machine.
Extent extent_of(const ir::Graph& graph, const Evaluation* evaluation, const EmitOptions& options);

/// The contents of selftest.safetensors:
///   "input.<member>"                        what is made up: in [-1, 1), or in [0, 1) where the graph cannot compute
///                                           with that or makes NaN of it
///   "output.<member>"                       of an inference
///   "loss", "gradient.<path>"               of a training; "evaluation.loss" and "evaluation.scores" of an evaluation
///                                           of its own
///   "parameter.<path>", "state.<path>"      after two updates by the recorded gradients at test_rate(); buffers that
///                                           a step writes, after it
///   "tolerance.<any of these but inputs>"   f64[]: the difference that rounding explains
/// Where backward updates the parameters, no gradient outlives it: "parameter." and "state." are those after one step,
/// the former only where they change in proportion to their gradients (signs of gradients near 0 are rounding's), and
/// "later.parameter." and "later.state." those after a step from the same parameters with states that are |state| + max
/// |state|.
///
/// Everything is computed twice: in double precision, and by the same loops in the graph's own dtypes, where what is
/// given and every result are moved by some roundings. How far these two are apart, times 4, is the tolerance, and 8
/// roundings. A tensor of which such a difference is a thousandth and more (the gradient of a bias before a norm, which
/// is 0) is what is left of larger terms: there it is 32 times as much, and a share of the largest of its kind. Of
/// updates, whose gradients are given, the second run has the rounding of the dtypes alone.
std::map<std::string, ir::TensorData> record(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation,
                                             const EmitOptions& options);

/// User error where record() would need more memory than this machine has to give.
void require_memory_to_record(const ir::Graph& graph, const Evaluation* evaluation, const EmitOptions& options);
/// The same of made_up_weight() of all of `values`, for the graph named `name`.
void require_memory_to_make_up(const std::string& name, const std::vector<const ir::Value*>& values);

/// A tensor for a parameter or buffer that nobody gave, from its name alone: uniform in [-b, b] with b = 1 /
/// sqrt(elements of an output); buffers, which may be variances, in [0.5, 1.5].
ir::TensorData made_up_weight(const ir::Value& value);

}  // namespace graven::codegen
