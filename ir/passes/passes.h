// Every pass by name; pipeline.inc puts them in order and says why. Each is documented where it is defined:
// ir/passes/<name>.cpp.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "ir/graph.h"
#include "ir/passes/pass.h"
#include "ir/tuning.h"

namespace graven::ir {

#define GRAVEN_PASS(name, ...) void name(Graph& graph, const PassOptions& options);
#include "ir/passes/pipeline.inc"
#undef GRAVEN_PASS

/// Names of the parameters that get a gradient: those that an optimizer trains and a loss depends on. Only these have
/// optimizer state in the program.
std::set<std::string> parameters_with_gradients(const Graph& graph);

/// Whether an optimizer's group asks for it.
bool clips_gradients(const Graph& graph);

/// The dtype that the graph asks to compute in where it may (kAmp); none: it does not. User error where that is no half
/// type.
std::optional<DType> amp_dtype(const Graph& graph);
/// Whether the graph asks for recomputation, by modules or a memory budget, and has a backward phase.
/// Of the parameters of which a rank has its shard; the pass of that name, of those that the graph's config says.
void gather_parameters(Graph& graph, const ByValue<bool>& is_shard);
bool recomputes_activations(const Graph& graph);

/// Whether the graph asks for update_in_backward and has an update.
bool updates_in_backward(const Graph& graph);

/// How many parts of a batch the graph makes one step of; 1: a step is a call. User error where its config says nothing
/// that could be done.
std::int64_t accumulation_steps(const Graph& graph);
/// Whether a step may have several parts: the graph asks for them, or for ranks, which may share a step in any number,
/// or has stages.
bool has_parts(const Graph& graph);

/// Whether the graph scales its losses. User error where its config says nothing that could be done.
bool scales_losses(const Graph& graph);

/// The state in which a graph keeps what its losses are scaled by; kNone where it scales none, or not yet.
ValueId loss_scale(const Graph& graph);
/// The number of the step of optimizer `index`, which is 0 where its gradients are not finite; kNone where nobody looks
/// (ir/passes/unscale_gradients.cpp).
ValueId finite_step_of(const Graph& graph, std::size_t index);

/// Adds the choices that a graph behind all passes has been through: of the passes of these names.
void list_winograd_choices(const Graph& graph, std::vector<Choice>& choices);
void list_inverted_residual_choices(const Graph& graph, std::vector<Choice>& choices);
void list_packing_choices(const Graph& graph, std::vector<Choice>& choices);

}  // namespace graven::ir
