#include "ir/diagnostic.h"

#include <algorithm>

namespace graven {

void UserError::render() {
  text_ = "error: " + message_;
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
  if (has_context_) {
    // An operator that knew of no module: eagerly, its caller does.
    const std::string known = operator_name + ": ";
    if (!module_path.empty() && message_.compare(0, known.size(), known) == 0) {
      message_ = module_path + " (" + operator_name + "): " + message_.substr(known.size());
      render();
    }
    return *this;
  }
  has_context_ = true;
  if (!module_path.empty())
    message_ = module_path + " (" + operator_name + "): " + message_;
  else if (!operator_name.empty())
    message_ = operator_name + ": " + message_;
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
