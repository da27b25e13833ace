// Recurrent layers: one layer in one direction, over all steps of x[steps, batch, gates * hidden], which is W_ih of the
// layer's input + b_ih: one product of all steps, made before. h is [batch, state], W_hh is [gates * hidden, state].
//
//   rnn:  h = tanh(x + W_hh h + b_hh), or relu (Elman 1990) lstm: i, f, g, o = the rows of x + W_hh h + b_hh, of which
//   i, f, o through sigmoid and g through tanh;
//         c = f c + i g;  h = o tanh(c), or W_hr (o tanh(c)), where h is smaller than c        (Hochreiter and
//         Schmidhuber 1997; Sak et al. 2014)
//   gru:  r, z = sigmoid of their rows of x + W_hh h + b_hh;  n = tanh(x_n + r m), m = W_hn h + b_hn;  h = n + z (h -
//   n)  (Cho et al. 2014)
//
// Sequences may have lengths of their own: one whose length is l has steps 0 to l - 1, in either direction; in those
// behind them y is 0, and states are what they were (PyTorch's packed sequences, padded).
//
//   inline constexpr recurrent_config encoder{.steps = 200, .batch = 16, .hidden = 128, .state = 128, .reverse = false,
//   .relu = false};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct recurrent_config {
  std::int64_t steps;    ///< at least 1
  std::int64_t batch;    ///< sequences side by side
  std::int64_t hidden;   ///< numbers in c, and in each gate
  std::int64_t state;    ///< numbers in h: `hidden`, or less where W_hr projects it (lstm alone)
  bool reverse = false;  ///< from the last step to the first
  bool relu = false;     ///< rnn alone: instead of tanh
  bool padded = false;   ///< sequences have lengths, which are an argument
};

namespace recurrent_sizes {

/// Floats of a part of the workspace: whole panels of 16.
[[gnu::always_inline]] constexpr std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace recurrent_sizes

/// Scratch of the fast kernels of a layer of `gates` gates: W_hh in panels and b_hh likewise; c of the last step; where
/// h is projected, o tanh(c), and W_hr in panels.
[[gnu::always_inline]] constexpr std::int64_t recurrent_workspace_bytes(const recurrent_config& c, std::int64_t gates) {
  using recurrent_sizes::padded;
  const std::int64_t weights = gates * padded(c.hidden) * (c.state + 1),
                     cells = gates == 4 ? padded(c.batch * c.hidden) : 0;
  const std::int64_t projection = c.state == c.hidden ? 0 : padded(c.batch * c.hidden) + padded(c.state) * c.hidden;
  return (weights + cells + projection) * 4;
}
/// Scratch of their gradients: W_hh transposed, in panels; what goes to the step before besides; where h is projected,
/// its gradient, and W_hr transposed, in panels; of sequences with lengths from the last to the first step, the sums'
/// gradients in each one's first.
[[gnu::always_inline]] constexpr std::int64_t recurrent_backward_workspace_bytes(const recurrent_config& c,
                                                                                 std::int64_t gates) {
  using recurrent_sizes::padded;
  const std::int64_t weights = padded(c.state) * gates * c.hidden,
                     carried = gates == 1 ? 0 : padded(c.batch * c.hidden);
  const std::int64_t projection = c.state == c.hidden ? 0 : padded(c.batch * c.state) + padded(c.hidden) * c.state;
  const std::int64_t firsts = c.padded && c.reverse ? padded(c.batch * gates * c.hidden) : 0;
  return (weights + carried + projection + firsts) * 4;
}

}  // namespace graven::kernels
