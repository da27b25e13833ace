// What the kernels of optimizers share: how tensors are cut up whose norms an update asks for. The config of an update
// is a struct of the optimizer's options, which stands with the configs of a project.
#pragma once

#include <cstdint>

namespace graven::kernels {

/// Squares are added up in pieces of so many elements, in this order, whatever the number of threads.
inline constexpr std::int64_t kNormPiece = 16384;

constexpr std::int64_t norm_pieces(std::int64_t size) { return (size + kNormPiece - 1) / kNormPiece; }

/// For tensors that make `pieces` pieces together: a sum of each norm a piece.
constexpr std::int64_t update_workspace_bytes(std::int64_t pieces, std::int64_t norms) {
  return pieces * norms * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace graven::kernels
