// What a user error says, or "no error".
#pragma once

#include <string>

#include "ir/diagnostic.h"
#include "tests/call.h"

namespace graven::test {

inline std::string error_of(const test::Call<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace graven::test
