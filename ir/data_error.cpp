#include "ir/data_error.h"

#include "ir/op.h"

namespace graven::ir {

UserError data_error(const std::string& text) {
  const std::size_t colon = text.find(": ");
  const std::string kernel = text.substr(0, colon);
  if (colon == std::string::npos || find_op(kernel) == nullptr) return UserError(text);
  UserError error(text.substr(colon + 2));
  error.in("", kernel);
  return error;
}

}  // namespace graven::ir
