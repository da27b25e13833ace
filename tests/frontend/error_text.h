// What a user error says, or "no error".
#pragma once

#include <functional>
#include <string>

#include "ir/diagnostic.h"

namespace graven::test {

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace graven::test
