// What a GradScaler's handles refer to; a graph that has one keeps its scale there, too.
#pragma once

#include <cstdint>
#include <map>

#include "frontend/optim_state.h"
#include "graven/grad_scaler.h"

namespace graven::amp {

struct GradScaler::State {
  GradScalerOptions options;
  bool is_static = false;
  Tensor scale, tracker;  ///< f32[] and i64[]: how many steps in a row it has held
  /// Since the last update(), by optimizer.
  struct Seen {
    bool unscaled = false, stepped = false, finite = true;
    std::int64_t gradients = 0;
  };
  std::map<const optim::Optimizer::State*, Seen> seen = {};
};

}  // namespace graven::amp
