// Which labels of classes a value is read as: itself, or what it becomes before a loss takes it (flatten, permute, a
// cast to i64, the part behind a slice), as GPT-2's targets do. Each element of these is an element of the value.
#pragma once

#include <cstdint>
#include <optional>

#include "codegen/plan/plan.h"
#include "ir/analysis.h"

namespace graven::codegen {

enum class Moves {
  in_order,  ///< all elements in their order: views, copies, casts of integers
  all,       ///< all elements
  any,       ///< perhaps a part of them
};

/// By value of the graph: whether its elements are those of `source`, by such moves.
ir::ByValue<bool> elements_of(const ir::Graph& graph, const Plan& plan, ir::ValueId source, Moves moves);

/// Whether the node takes such elements as labels of classes that several ranks have.
bool takes_labels_of_ranks(const ir::Node& node, const ir::ByValue<bool>& elements);
/// Whether the node's input of that number is labels.
bool is_labels(const ir::Node& node, std::size_t input);

/// How many classes the labels in `value` choose from, at most; 0: no operator takes all of it as labels.
std::int64_t classes_of(const ir::Graph& graph, const Plan& plan, ir::ValueId value);

/// A label beside the classes that the operators taking elements of `value` as labels pass over: their ignore_index.
/// None where there are no such operators, where it is one of the classes, or where they do not agree.
std::optional<std::int64_t> ignored_label(const ir::Graph& graph, const Plan& plan, ir::ValueId value);

}  // namespace graven::codegen
