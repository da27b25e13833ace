// Functors as emitted projects have them, for the tests of kernels: a ReLU, which is known as one, and a sum.
#pragma once

#include "kernels/cuda/context.cuh"

namespace graven::kernels::testing_on_device {

struct relu {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) {
    return x < T(0) ? T(0) : x;
  }
};
struct add {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static T apply(T x, T y) {
    return x + y;
  }
};

}  // namespace graven::kernels::testing_on_device

namespace graven::kernels {
template <>
inline constexpr bool is_relu<testing_on_device::relu> = true;
}  // namespace graven::kernels
