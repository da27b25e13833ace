// layer_norm and rms_norm over rows: x[rows, size], each row normalised by itself.
//
//   layer_norm: y = (x - mean) * rstd * gamma + beta,  rstd = 1 / sqrt(var + eps), mean and var (biased) of the row
//               (Ba, Kiros and Hinton 2016)
//   rms_norm:   y = x * rstd * gamma,                  rstd = 1 / sqrt(mean of x^2 + eps)
//               (Zhang and Sennrich 2019)
//
//   inline constexpr layer_norm_config norm{.rows = 8 * 128, .size = 768, .eps = 1e-5};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct layer_norm_config {
  std::int64_t rows = 0, size = 0;
  double eps = 1e-5;
};

/// The gradients of gamma and beta are summed in this many pieces of rows, and those in order: the result does not
/// depend on the number of threads.
constexpr std::int64_t layer_norm_pieces(const layer_norm_config& config) {
  const std::int64_t pieces = config.rows * config.size / 16384;
  const std::int64_t most = config.rows < 16 ? config.rows : 16;
  return pieces > most ? most : pieces < 1 ? 1 : pieces;
}

/// Scratch of the backward kernels: a partial sum of each gradient for each piece.
constexpr std::int64_t layer_norm_backward_workspace_bytes(const layer_norm_config& config) {
  return layer_norm_pieces(config) * 2 * config.size * 4;
}

}  // namespace graven::kernels
