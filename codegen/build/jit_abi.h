// What a shared library made of an emitted project offers to the process that loads it: C functions of fixed names,
// defined by jit.cpp of the project. Functions that can fail return 0 for success; graven_jit_error says why not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graven::codegen {

extern "C" {
/// "graven_jit_create": a new instance on `threads` threads (0: all); nullptr when it fails (graven_jit_error(nullptr)
/// says why).
typedef void* (*JitCreate)(int threads);
/// "graven_jit_destroy".
typedef void (*JitDestroy)(void* instance);
/// "graven_jit_bind": parameter, buffer, large constant or optimizer state `name` lives in the caller's memory from now
/// on.
typedef int (*JitBind)(void* instance, const char* name, void* data, std::size_t bytes);
/// "graven_jit_weights_changed": recomputes the results of the prepare phase.
typedef int (*JitWeightsChanged)(void* instance);
/// "graven_jit_gradient": where the gradient of parameter `name` lies; nullptr where there is none.
typedef const void* (*JitGradient)(void* instance, const char* name);
/// "graven_jit_run": one call: inference, or one training step. Inputs and outputs in the graph's order; `symbols` in
/// the order of Graph::symbols(); `learning_rates` one per parameter group; `counts` the step, from 1, the seed of
/// random operators, the part of the step, how many it has, and the count of parts of all steps, from 1 (unused by
/// inference).
typedef int (*JitRun)(void* instance, const void* const* inputs, void* const* outputs, const std::int64_t* symbols,
                      const double* learning_rates, const std::int64_t* counts);
/// "graven_jit_listen": `listener`, a kernels::CallListener, is told of each call from now on; nullptr: nobody is.
typedef void (*JitListen)(void* instance, void* listener);
/// "graven_jit_limits": FLOP and bytes a second that the instance's threads reach, measured now.
typedef void (*JitLimits)(void* instance, double* flops, double* bytes);
/// "graven_jit_error": the last error's text, valid until the next call.
typedef const char* (*JitError)(void* instance);
}

}  // namespace graven::codegen
