// The network of a training graph as it is evaluated: forward only, in evaluation mode.
#pragma once

#include "ir/graph.h"

namespace graven::ir {

/// From a traced training graph (stage "trace"), the graph that a training program's evaluate() runs: batch norms use
/// their running statistics, dropout is the identity, other random numbers are those of seed 0 and step 0, nothing is
/// written into parameters or buffers, there is no backward pass and no optimizer. Inputs and parameters are those of
/// `traced`. Outputs: the scalar losses ("loss", "loss_2", ...); then, when a cross_entropy is part of them, its logits
/// ("scores", [rows, classes]), so that accuracy can be counted. User error when `traced` has no scalar loss.
Graph evaluation_graph(const Graph& traced);

/// The logits among the outputs of an evaluation graph; kNone where it has none. Ranks that have some of the classes
/// each have theirs alone.
ValueId scores_of(const Graph& evaluation);

/// Whether a training graph, at any stage, computes something else in its forward phase than its evaluation would:
/// random operators, batch statistics. Otherwise the forward phase is the evaluation.
bool evaluation_differs(const Graph& graph);

}  // namespace graven::ir
