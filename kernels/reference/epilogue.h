// epilogue: what the reference kernels do to a result just before storing it. A functor has `inputs` (1 or 2) and `apply`; see kernels/README.md.
//
//   y = reference::finish<Epilogue>(y, residual, index);
#pragma once

#include <cstdint>

namespace graven::kernels::reference {

/// The default epilogue: the result as it is.
struct unchanged {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return x;
  }
};

/// `value` after the epilogue; with two inputs the second is residual[index].
template <class Epilogue, class T>
T finish(T value, const T* residual, std::int64_t index) {
  if constexpr (Epilogue::inputs == 2)
    return Epilogue::apply(value, residual[index]);
  else
    return Epilogue::apply(value);
}

}  // namespace graven::kernels::reference
