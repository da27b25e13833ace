// Every pass by name; pipeline.cpp puts them in order and says why. Each is documented where it is defined:
// ir/passes/<name>.cpp.
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"
#include "ir/passes/pass.h"

namespace graven::ir {

void remove_dead_nodes(Graph& graph, const PassOptions& options);
void trim_kernels(Graph& graph, const PassOptions& options);
void recognize_causal_softmax(Graph& graph, const PassOptions& options);
void differentiate(Graph& graph, const PassOptions& options);
void clip_gradients(Graph& graph, const PassOptions& options);
void add_optimizer_updates(Graph& graph, const PassOptions& options);
void fold_batch_norm(Graph& graph, const PassOptions& options);
void fold_constants(Graph& graph, const PassOptions& options);
void simplify_algebra(Graph& graph, const PassOptions& options);
void merge_common_subexpressions(Graph& graph, const PassOptions& options);
void recognize_linear(Graph& graph, const PassOptions& options);
void choose_layout(Graph& graph, const PassOptions& options);
void decompose_reductions(Graph& graph, const PassOptions& options);
void decompose_matmuls(Graph& graph, const PassOptions& options);
void choose_winograd(Graph& graph, const PassOptions& options);
void pack_weights(Graph& graph, const PassOptions& options);
void prepare_weights(Graph& graph, const PassOptions& options);
void fuse_epilogues(Graph& graph, const PassOptions& options);
void fuse_inverted_residuals(Graph& graph, const PassOptions& options);
void fuse_elementwise(Graph& graph, const PassOptions& options);
void fuse_reductions(Graph& graph, const PassOptions& options);
void update_in_backward(Graph& graph, const PassOptions& options);
void fuse_clipping(Graph& graph, const PassOptions& options);
void fuse_updates(Graph& graph, const PassOptions& options);
void insert_copies(Graph& graph, const PassOptions& options);

/// Names of the parameters that get a gradient: those that an optimizer trains and a loss depends on. Only these have
/// optimizer state in the program.
std::set<std::string> parameters_with_gradients(const Graph& graph);

/// Whether an optimizer's group asks for it.
bool clips_gradients(const Graph& graph);

/// Whether the graph asks for update_in_backward and has an update.
bool updates_in_backward(const Graph& graph);

}  // namespace graven::ir
