// What kernels need to know about functors (kernels/README.md, "Epilogues and elementwise bodies"): identity, and the
// type a functor computes in.
//
//   struct relu {
//     static constexpr int inputs = 1;
//     template <class T> static T apply(T x) { return x > 0 ? x : T(0); }
//   };
//   float y = apply_epilogue<relu>(x, residual, i);   // relu(x); add(x, residual[i]) for a functor of two inputs
#pragma once

#include <cstdint>

#include "dtype.h"
#include "level.h"

namespace graven::kernels {

/// The epilogue that does nothing.
struct identity {
  static constexpr int inputs = 1;
  template <class T>
  [[gnu::always_inline]] static constexpr T apply(T x) {
    return x;
  }
};

namespace types {
template <class A, class B>
struct is_same {
  static constexpr bool value = false;
};
template <class A>
struct is_same<A, A> {
  static constexpr bool value = true;
};
template <bool, class A, class>
struct choose {
  using type = A;
};
template <class A, class B>
struct choose<false, A, B> {
  using type = B;
};
template <class T>
inline constexpr bool is_floating = is_same<T, float>::value || is_same<T, double>::value;

/// bool gives way to everything, integers to floating types, narrow to wide.
template <class A, class B>
struct common {
  static constexpr bool first =
      is_same<B, bool>::value ||
      (!is_same<A, bool>::value &&
       ((is_floating<A> && !is_floating<B>) || (is_floating<A> == is_floating<B> && sizeof(A) >= sizeof(B))));
  using type = typename choose<first, A, B>::type;
};
template <class A, class... More>
struct common_of {
  using type = A;
};
template <class A, class B, class... More>
struct common_of<A, B, More...> {
  using type = typename common_of<typename common<A, B>::type, More...>::type;
};
template <class T>
struct plain {
  using type = T;
};
}  // namespace types

/// The type that a functor over inputs of these element types computes in: float for half, the wider one of several.
template <class... X>
using functor_type = typename types::common_of<compute_t<X>...>::type;

/// T, in a function's parameter that should not take part in deducing T.
template <class T>
using plain_t = typename types::plain<T>::type;

template <class A, class B>
inline constexpr bool same_type = types::is_same<A, B>::value;

/// The epilogue at element i: of x alone, or of x and residual[i].
template <class Epilogue, class T, class R>
GRAVEN_ALWAYS_INLINE T apply_epilogue(T x, const R* residual, std::int64_t i) {
  if constexpr (Epilogue::inputs == 2) {
    return static_cast<T>(Epilogue::template apply<T>(x, static_cast<T>(residual[i])));
  } else {
    (void)residual;
    (void)i;
    return static_cast<T>(Epilogue::template apply<T>(x));
  }
}

}  // namespace graven::kernels
