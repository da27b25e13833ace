// Configs of the kernels that see to it that gradients of a scaled loss are finite.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct finite_step_config {
  bool over_ranks = false;  ///< each rank has its shards of the tensors alone
};

struct update_loss_scale_config {
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  ///< steps in a row after which the scale grows
};

}  // namespace graven::kernels
