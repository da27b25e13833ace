// One test case of an operator as a graph of its own: what every backend runs.
//
//   const CaseGraph forward = make_forward(op, test_case);     // inputs -> the operator -> outputs
//   const CaseGraph backward = make_gradient(op, test_case);   // inputs, then gradients of the floating outputs ->
//                                                              // gradients of the floating inputs
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace graven::tests {

struct CaseGraph {
  ir::Graph graph;
  /// By graph input: the input of the operator that it is, or -1 - i for the gradient of output i.
  std::vector<int> input_of;
  /// By graph output: the output of the operator that it is; of a gradient graph: the input whose gradient it is.
  std::vector<int> output_of;
};

/// The operator alone. Throws what inference throws.
CaseGraph make_forward(const ir::OpDef& op, const ir::TestCase& test_case);

/// Small cases made of the entry's forms, in each of the dtypes that it declares. Packed weights are left out: packing
/// stands before what reads them.
std::vector<ir::TestCase> cases_of_forms(const ir::OpDef& op);

/// The gradient rule. Gradients flow into the outputs that have them, and into the others that are floating when
/// `all_outputs`.
CaseGraph make_gradient(const ir::OpDef& op, const ir::TestCase& test_case, bool all_outputs = false);

/// "conv2d/stride 2", spaces and the like replaced: a name that GoogleTest takes.
std::string test_name(const ir::OpDef& op, const ir::TestCase& test_case, std::size_t index);

/// Several cases side by side in one graph, for backends that compile: forward only, or with the gradients behind each
/// case's results.
struct Batch {
  struct Part {
    const ir::OpDef* op;
    ir::TestCase test_case;
    std::string name;
    std::size_t first_input, first_output;  ///< in the graph's lists
    CaseGraph alone;                        ///< the same inputs and outputs as a graph of its own
  };
  ir::Graph graph;
  std::vector<Part> parts;
};

/// Every case of every operator.
struct NamedCase {
  const ir::OpDef* op;
  ir::TestCase test_case;
  std::string name;
};
std::vector<NamedCase> all_cases();
/// Copies each case's graph (make_forward, or make_gradient where the case asks for one and `gradients` is set) into
/// one.
Batch make_batch(const std::vector<NamedCase>& cases, bool gradients);

}  // namespace graven::tests
