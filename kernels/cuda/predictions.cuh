// argmax_of_team: which class has the largest score of its row, where ranks have some of the classes each, one rank's
// behind another's (Team). As torch.argmax has it: of the largest the first, and NaN is larger than any number.
//
//   argmax_of_team(context, reduce_config{.outer = 512, .size = 1000 / 2, .inner = 1}, found, scores);
//
// Each rank sends the largest score of each row, and which one it is. All have the result.
#pragma once

#include "../config/reduce.h"
#include "reduce.cuh"

namespace graven::kernels {

struct best_of_rank {
  double score;
  std::int64_t of;
};

/// `first`: of the rank's classes; own [rows]: which of these is the largest.
template <class T>
__global__ void best_of_rank_kernel(std::int64_t rows, std::int64_t classes, std::int64_t first, best_of_rank* best,
                                    const std::int64_t* own, const T* scores) {
  for (std::int64_t row = first_item(); row < rows; row += item_stride())
    best[row] = {static_cast<double>(scores[row * classes + own[row]]), first + own[row]};
}

/// all [ranks, rows]
template <class Index>
__global__ void best_of_team_kernel(std::int64_t rows, int ranks, Index* found, const best_of_rank* all) {
  for (std::int64_t row = first_item(); row < rows; row += item_stride()) {
    best_of_rank best = all[row];
    for (int r = 1; r < ranks; ++r) {
      const best_of_rank other = all[r * rows + row];
      if (best.score == best.score && !(other.score <= best.score)) best = other;
    }
    found[row] = static_cast<Index>(best.of);
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void argmax_of_team(CudaContext& context, const reduce_config& config, std::int64_t* found, const T* scores) {
  argmax(context, config, found, scores);
  Team* const team = context.team();
  if (team == nullptr || config.outer == 0) return;
  const std::int64_t rows = config.outer;
  auto* const own = static_cast<best_of_rank*>(
      context.workspace(static_cast<std::size_t>((1 + team->size()) * rows) * sizeof(best_of_rank)));
  launch(context, "argmax_of_team", &best_of_rank_kernel<T>, launch_shape(rows), rows, config.size,
         team->rank() * config.size, own, found, scores);
  if (!context.rehearses()) team->gather(own, own + rows, rows * static_cast<std::int64_t>(sizeof(best_of_rank)));
  launch(context, "argmax_of_team", &best_of_team_kernel<std::int64_t>, launch_shape(rows), rows, team->size(), found,
         own + rows);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
