// LAMB (You et al. 2020): Adam's direction, each tensor's step in proportion to the tensor's norm.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct lamb_config {
  double beta1;  ///< decay of the mean of gradients
  double beta2;  ///< decay of the mean of squared gradients
  double eps;    ///< added to the root
  double weight_decay;
  bool decoupled;  ///< weight_decay * parameter is added to the direction, as in the paper; otherwise to the gradient
  bool do_bias_correction;  ///< divides the means by 1 - beta^step
  bool maximize;            ///< climbs: the gradient's sign is turned
};

/// Tensors are summed up in pieces of so many elements, in this order, whatever the number of threads.
inline constexpr std::int64_t kLambPiece = 16384;

constexpr std::int64_t lamb_pieces(std::int64_t size) { return (size + kLambPiece - 1) / kLambPiece; }

/// For tensors that make `pieces` pieces together: two sums a piece, one ratio a tensor.
constexpr std::int64_t lamb_workspace_bytes(std::int64_t pieces, std::int64_t tensors) {
  return (2 * pieces + tensors) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace graven::kernels
