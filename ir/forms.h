// An operator's forms as graphs. What eager mode compiles is read off them (codegen/eager_table/main.cpp), and tests
// run each of them in each dtype that the entry declares.
//
//   for (const Graph& graph : graphs_of_forms(kSoftmax, DType::f16)) ... graph.nodes[0] ...
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace graven::ir {

/// The operator alone, once in each of its forms; of an optimizer, with each choice of the states that its options ask
/// for. What the entry leaves open is of this dtype: inputs that have none of their own, the attribute 'dtype', the
/// steps of a program. Forms that inference refuses are left out: weights are packed in f32 alone. Internal error where
/// it refuses all of them, and the entry declares the dtype.
std::vector<Graph> graphs_of_forms(const OpDef& op, DType dtype);

}  // namespace graven::ir
