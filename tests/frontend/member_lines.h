// What the compiler takes for the line of a member's initializer.
#pragma once

#include <cstdint>

#include "graven/graven.h"

namespace graven::test {

/// Whether it is the initializer's own, which is what nn::Name is made for. g++ 14 and clang++ 16 say the
/// constructor's, or, where none is written, the class's: they evaluate such an initializer where it is used
/// (https://cplusplus.github.io/CWG/issues/2631.html).
inline bool members_have_lines() {
  constexpr std::uint32_t kLine = __LINE__;
  struct Probe {
    nn::Name name = "probe";  // + 2
    Probe() {}
  };
  return Probe().name.where().line == kLine + 2;
}

}  // namespace graven::test
