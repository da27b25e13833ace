// size: a number that a call's sizes give, as a tensor of one element.
//
//   reference::size(size_config{.n = 4}, y);     // 4
#pragma once

#include "../config/size.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void size(const size_config& c, T* y) {
  *y = static_cast<T>(static_cast<double>(c.n));
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
