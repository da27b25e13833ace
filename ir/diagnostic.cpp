#include "ir/diagnostic.h"

#include <algorithm>

namespace graven {

void UserError::render() {
  first_line_ = message_;
  if (!module_path_.empty())
    first_line_ = module_path_ + " (" + operator_ + "): " + message_;
  else if (!operator_.empty())
    first_line_ = operator_ + ": " + message_;
  text_ = "error: " + first_line_;
  for (const std::string& n : notes_) text_ += "\n  " + n;
}

UserError& UserError::at(const std::string& file, std::uint32_t line) {
  if (has_location_ || file.empty()) return *this;
  has_location_ = true;
  return note("at " + file + ":" + std::to_string(line));
}

UserError& UserError::at(const ir::Origins& origins) {
  for (auto it = origins.rbegin(); it != origins.rend(); ++it)
    if (!it->file.empty()) return at(it->file, it->line);
  return *this;
}

UserError& UserError::in(const std::string& module_path, const std::string& operator_name) {
  if (!has_context_) {
    module_path_ = module_path;
    operator_ = operator_name;
    has_context_ = true;
  } else if (module_path_.empty() && operator_ == operator_name) {
    // An operator that knew of no module: eagerly, its caller does.
    module_path_ = module_path;
  }
  render();
  return *this;
}

UserError& UserError::called(const std::string& function) {
  operator_ = function;
  render();
  return *this;
}

InternalError::InternalError(const char* file, int line, const char* condition, const std::string& detail)
    : std::logic_error("internal error at " + std::string(file) + ":" + std::to_string(line) + ": " + condition +
                       (detail.empty() ? "" : ": " + detail)) {}

namespace detail {

void internal_failure(const char* file, int line, const char* condition, const std::string& text) {
  const std::string path = file;  // base name: messages do not depend on where the tree lies
  throw InternalError(path.substr(path.find_last_of('/') + 1).c_str(), line, condition, text);
}

}  // namespace detail
}  // namespace graven
