// Configs of clip_factor and gradient_norm. Tensors are cut up as those whose norms an update asks for.
#pragma once

#include <cstdint>

#include "update.h"

namespace graven::kernels {

struct clip_factor_config {
  double max_norm;          ///< what the norm may be
  double norm_type = 2;     ///< the order: positive, or infinity: the largest magnitude
  bool over_ranks = false;  ///< each rank has its shards of the tensors alone
};

struct gradient_norm_config {
  double norm_type = 2;  ///< likewise
};

/// For tensors that make `pieces` pieces together: a sum a piece.
constexpr std::int64_t clip_factor_workspace_bytes(std::int64_t pieces) {
  return (pieces > 0 ? pieces : 1) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace graven::kernels
