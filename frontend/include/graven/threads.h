// The threads of eager mode: one pool for the process. Results do not depend on their number.
//
//   graven::set_num_threads(1);
//
// A compiled graph has threads of its own (Graph::set_threads).
#pragma once

namespace graven {

/// Replaces the pool: `count` threads in all, the caller's included; 0: as many as the process may run on. Waits for
/// what runs eagerly on another thread. UserError when negative.
void set_num_threads(int count);

/// Threads in all.
int get_num_threads();

}  // namespace graven
