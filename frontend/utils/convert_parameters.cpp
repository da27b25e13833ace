#include "graven/utils/convert_parameters.h"

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "graven/functional.h"

namespace graven::nn::utils {

Tensor parameters_to_vector(const std::vector<Tensor>& parameters, Location where) {
  const Location at = where.in("parameters_to_vector");
  graven::detail::require_defined(parameters, "parameters_to_vector", at);
  std::vector<Tensor> flat;
  for (const Tensor& p : parameters) flat.push_back(p.reshape({-1}, at));
  return cat(flat, 0, at);
}

void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters, Location where) {
  const Location at = where.in("vector_to_parameters");
  graven::detail::require_defined({vector}, "vector_to_parameters", at);
  graven::detail::require_defined(parameters, "vector_to_parameters", at);
  std::int64_t count = 0;
  for (const Tensor& p : parameters) count += p.numel();
  if (vector.dim() != 1 || vector.shape()[0] != Dim(count))
    graven::detail::fail("vector_to_parameters",
                         fmt::format("expects a vector of {} elements, got {}", count, vector.describe()), at);
  const NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (const Tensor& p : parameters) {
    Tensor own = p;
    own.copy_(vector.slice(0, begin, begin + p.numel(), 1, at).reshape(p.shape(), at), at);
    begin += p.numel();
  }
}

}  // namespace graven::nn::utils
