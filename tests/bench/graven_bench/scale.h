// How the generator itself scales: a synthetic network of many operators.
#pragma once

namespace graven::bench {

/// Prints a line for 1k, 10k and 100k recorded nodes, and for LeNet's training step: seconds of trace, passes, plan and
/// emission. Returns the exit status.
int measure_scale();

}  // namespace graven::bench
