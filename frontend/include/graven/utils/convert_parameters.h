// Parameters as one vector, and back.
//
//   Tensor weights = nn::utils::parameters_to_vector(model.parameters());     // f32[n]
//   nn::utils::vector_to_parameters(weights * 0.5, model.parameters());
#pragma once

#include <vector>

#include "graven/tensor.h"

namespace graven::nn::utils {

/// The elements of all of them, one behind the other: [n]. User error where there are none, and where their dtypes or
/// devices differ.
Tensor parameters_to_vector(const std::vector<Tensor>& parameters, Location where = Location::current());
/// Writes the vector's elements into them, without a history. User error where it is no vector of as many elements.
void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters,
                          Location where = Location::current());

}  // namespace graven::nn::utils
