// The network of a training graph as it is evaluated: forward only, in evaluation mode.
#pragma once

#include "ir/graph.h"

namespace graven::ir {

/// From a traced training graph (stage "trace"), the graph that a training program's evaluate() runs: batch norms use their running statistics,
/// nothing is written into parameters or buffers, there is no backward pass and no optimizer. Inputs and parameters are those of `traced`.
/// Outputs: the first loss; then, when a cross_entropy is part of it, that node's logits ([rows, classes]), so that accuracy can be counted.
/// User error when `traced` has no loss.
Graph evaluation_graph(const Graph& traced);

/// The labels that belong to the logits of evaluation_graph: the value `cross_entropy` of the traced graph reads, kNone when there is none or
/// when it is no input of the graph.
ValueId evaluation_labels(const Graph& evaluation);

}  // namespace graven::ir
