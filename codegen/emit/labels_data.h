// What the training program does with labels of a loss and with gradients of a scaled one, read off the graph.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "codegen/emit/project_data.h"
#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

/// Of a scaled loss: the gradients that the host sees without the scale. Those of several parts are unscaled where they
/// are added up, those that are clipped by their norm or by their magnitude before that; others by the update.
void list_unscaled_gradients(const ir::Graph& graph, TrainingText& training);

/// The input of the labels of the losses, where a sample whose labels are the ignored one leaves the losses as they are
/// without that sample: of all that depends on the batch they are made of losses that operators compute of labels,
/// which the forward phase reads nowhere else but element by element. `batched`: by input, whether it has rows of
/// samples.
std::optional<std::size_t> ignorable_labels(const ir::Graph& graph, const Plan& plan,
                                            const std::vector<ir::ValueId>& losses, const std::vector<bool>& batched);

}  // namespace graven::codegen
