// Vectors of the processor's natural width through the compilers' own vector extension: no intrinsics, no other header,
// arithmetic with operators. Sixteen floats are a panel (kernels/README.md, "Packed weights"): 1 vector on AVX-512, 2
// on AVX2, 4 on SSE and NEON.
//
//   vec a = load(x), b = broadcast(2.0f);      // vec: kLanes floats
//   store(y, fma(a, b, vec{}));                // loads and stores need no alignment
//   float s = sum(a);                          // lanes in a fixed order
//   mask m = a > b;  vec c = select(m, a, b);  // comparisons give a mask: all bits set where true
//   vec d = load_partial(x, n);                // n < kLanes elements, the rest 0; touches nothing beyond them
//
// vec_of<T> is the same for another element type (vec_of<double>, vec_of<std::int32_t>).
#pragma once

#include <cstdint>
#include <type_traits>

#include "level.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#elif defined(__ARM_NEON)
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif

namespace detail {
/// Numbers only: of another T, a call of a function of the same name (broadcast<add>) must not ask for a vector.
template <class T, bool = std::is_arithmetic_v<T>>
struct vector_type {};
template <class T>
struct vector_type<T, true> {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  // The same in memory of any alignment, and of any type for aliasing.
  typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
}  // namespace detail

template <class T>
using vec_of = typename detail::vector_type<T>::type;

/// kLanes floats.
using vec = vec_of<float>;
/// What comparing two vec gives: -1 where true, 0 where false.
using mask = vec_of<std::int32_t>;

/// Elements of type T in a vector.
template <class T>
inline constexpr int lanes_of = kVectorBytes / static_cast<int>(sizeof(T));
inline constexpr int kLanes = lanes_of<float>;
/// Columns of a panel of packed weights, whatever the processor.
inline constexpr int kPanel = 16;
/// Vectors that make up a panel's row.
inline constexpr int kPanelVectors = kPanel / kLanes;

template <class T>
GRAVEN_ALWAYS_INLINE vec_of<T> load(const T* p) {
  return *reinterpret_cast<const typename detail::vector_type<T>::unaligned*>(p);
}
template <class T>
GRAVEN_ALWAYS_INLINE void store(T* p, vec_of<T> v) {
  *reinterpret_cast<typename detail::vector_type<T>::unaligned*>(p) = v;
}
template <class T>
GRAVEN_ALWAYS_INLINE vec_of<T> broadcast(T value) {
  return value - vec_of<T>{};  // x - 0 is x for every x, also -0 and NaN; one broadcast instruction
}
/// The first `count` elements, 0 <= count <= lanes; the others are 0.
template <class T>
GRAVEN_ALWAYS_INLINE vec_of<T> load_partial(const T* p, std::int64_t count) {
  T buffer[lanes_of<T>] = {};
  for (std::int64_t i = 0; i < lanes_of<T>; ++i)
    if (i < count) buffer[i] = p[i];
  return load<T>(buffer);
}
/// Stores the first `count` elements only.
template <class T>
GRAVEN_ALWAYS_INLINE void store_partial(T* p, vec_of<T> v, std::int64_t count) {
  T buffer[lanes_of<T>];
  store<T>(buffer, v);
  for (std::int64_t i = 0; i < lanes_of<T>; ++i)
    if (i < count) p[i] = buffer[i];
}

/// The lanes with these numbers, those of b counted after those of a.
#if defined(__clang__) || __GNUC__ >= 12
#define GRAVEN_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define GRAVEN_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, mask{__VA_ARGS__})
#endif

/// a * b + c of each lane, as fma of floats (level.h). Builtins: only so does every compiler take the one instruction.
GRAVEN_ALWAYS_INLINE vec fma(vec a, vec b, vec c) {
#if defined(__AVX512CD__) && defined(__AVX512F__)  // every processor with the one has the other
  return __builtin_ia32_vfmaddps512_mask(a, b, c, static_cast<unsigned short>(-1),
                                         4);  // every lane, the current rounding
#elif defined(__AVX512F__)
  for (int i = 0; i < kLanes; ++i) c[i] = fma(a[i], b[i], c[i]);
  return c;
#elif defined(__FMA__) && defined(__AVX2__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__FMA__)
  return __builtin_ia32_vfmaddps(a, b, c);
#elif defined(__aarch64__) && defined(__clang__)
#pragma clang fp contract(on)
  return a * b + c;
#elif defined(__aarch64__)
  return __builtin_aarch64_fmav4sf(a, b, c);
#elif GRAVEN_HAS_FMA
  for (int i = 0; i < kLanes; ++i) c[i] = fma(a[i], b[i], c[i]);
  return c;
#else
  return a * b + c;
#endif
}
GRAVEN_ALWAYS_INLINE vec select(mask m, vec yes, vec no) { return m ? yes : no; }
/// The second argument where either is NaN, as the instructions do.
GRAVEN_ALWAYS_INLINE vec min(vec a, vec b) { return a < b ? a : b; }
GRAVEN_ALWAYS_INLINE vec max(vec a, vec b) { return a > b ? a : b; }

/// The sum of the lanes: halves are added, then quarters, and so on.
GRAVEN_ALWAYS_INLINE float sum(vec v) {
  float x[kLanes];
  store(x, v);
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) x[i] += x[i + step];
  return x[0];
}
/// The sum of all lanes of several vectors, in halves likewise: of the same floats the same sum, whatever the vectors'
/// width. `Vectors` is a power of two.
template <int Vectors>
GRAVEN_ALWAYS_INLINE float sum(const vec (&v)[Vectors]) {
  vec x[Vectors];
#pragma GCC unroll 64
  for (int i = 0; i < Vectors; ++i) x[i] = v[i];
#pragma GCC unroll 64
  for (int step = Vectors / 2; step > 0; step /= 2)
#pragma GCC unroll 64
    for (int i = 0; i < step; ++i) x[i] += x[i + step];
  return sum(x[0]);
}
GRAVEN_ALWAYS_INLINE float max_lane(vec v) {
  float x[kLanes];
  store(x, v);
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) x[i] = x[i] > x[i + step] ? x[i] : x[i + step];
  return x[0];
}

/// Asks for a cache line ahead of its use.
GRAVEN_ALWAYS_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
GRAVEN_ALWAYS_INLINE void prefetch_to_l2(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
