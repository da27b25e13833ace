// Config of clip_factor, and how it cuts up its tensors.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct clip_factor_config {
  double max_norm;       ///< what the norm may be
  double norm_type = 2;  ///< the order: positive, or infinity: the largest magnitude
};

/// Terms are added up in pieces of so many elements, in this order, whatever the number of threads.
inline constexpr std::int64_t kClipPiece = 16384;

constexpr std::int64_t clip_pieces(std::int64_t size) { return (size + kClipPiece - 1) / kClipPiece; }

/// A sum a piece.
constexpr std::int64_t clip_factor_workspace_bytes(std::int64_t pieces) {
  return (pieces > 0 ? pieces : 1) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace graven::kernels
