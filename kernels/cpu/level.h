// The instruction-set level that this translation unit is compiled for.
//
// A project compiles the fast kernels once for each level that it supports and picks one when it starts. Everything
// that is compiled more than once therefore lives in an inline namespace named after the level, so that the linker can
// never merge functions of two levels:
//
//   namespace graven::kernels {
//   inline namespace GRAVEN_LEVEL_NAMESPACE {
//   inline void scale(...) { ... }          // graven::kernels::scale to its callers, graven::kernels::level_v4::scale
//                                           // to the linker
//   }
//   }
//
// What must be one type in all levels (Threads, half, the configs) stands outside and has only GRAVEN_ALWAYS_INLINE
// functions, or functions that no kernel calls directly. Define GRAVEN_LEVEL_NAMESPACE before the first include to
// choose another name.
#pragma once

#ifndef GRAVEN_LEVEL_NAMESPACE
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define GRAVEN_LEVEL_NAMESPACE level_v4
#elif defined(__AVX2__) && defined(__FMA__)
#define GRAVEN_LEVEL_NAMESPACE level_v3
#elif defined(__SSE4_2__)
#define GRAVEN_LEVEL_NAMESPACE level_v2
#elif defined(__x86_64__)
#define GRAVEN_LEVEL_NAMESPACE level_v1
#elif defined(__ARM_NEON)
#define GRAVEN_LEVEL_NAMESPACE level_neon
#else
#define GRAVEN_LEVEL_NAMESPACE level_scalar
#endif
#endif

#define GRAVEN_ALWAYS_INLINE [[gnu::always_inline]] inline

/// Behind the parameters of a lambda that is the body of a loop: without it a loop may not become vectors.
#define GRAVEN_INLINE_LAMBDA __attribute__((always_inline))

/// Whether the processor has an instruction that multiplies and adds and rounds once.
#if defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMAF)
#define GRAVEN_HAS_FMA 1
#else
#define GRAVEN_HAS_FMA 0
#endif

/// Before a loop whose iterations do not depend on each other through memory, so that it is vectorised without checks
/// for overlap.
#if defined(__clang__)
#define GRAVEN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
// clang takes this for a demand and would warn where a loop calls a function; the loop then runs as it stands.
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define GRAVEN_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// a * b + c, rounded once where the processor has an instruction for it; else the product is rounded, too. Kernels are
/// compiled with -ffp-contract=off: this is the only way to ask for that instruction.
#if GRAVEN_HAS_FMA
GRAVEN_ALWAYS_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GRAVEN_ALWAYS_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
GRAVEN_ALWAYS_INLINE float fma(float a, float b, float c) { return a * b + c; }
GRAVEN_ALWAYS_INLINE double fma(double a, double b, double c) { return a * b + c; }
#endif

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
