// Small tensors as numbers in double: what the passes compute while they rewrite. Not an interpreter of graphs:
// constants only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graven::ir {

/// `value` as `dtype` holds it: rounded to nearest even for floating dtypes, towards zero for integers, != 0 for bool.
double round_to(DType dtype, double value);
/// Whether converting `value` to `dtype` is well defined (integers: in range; whole numbers above 2^53 are not
/// trusted).
bool can_hold(DType dtype, double value);

/// Elements of a constant; nothing when an i64 element exceeds 2^53.
std::optional<std::vector<double>> elements_of(const TensorData& data);
/// The reverse; values are rounded to the dtype.
std::shared_ptr<const TensorData> tensor_data(const TensorType& type, const std::vector<double>& elements);

}  // namespace graven::ir
