// Two kinds of errors. A UserError is the user's to mend: it names the module path, the operator, what was expected,
// what came, and where. An InternalError is ours: it names file, line and the condition that broke. Nothing aborts on
// user input.
//
//   throw UserError("model.layer1.0.conv1 (conv2d): weight expects 64 channels, input has 32")
//       .note("input  f32[1,32,56,56] from model.maxpool")
//       .at("resnet.cpp", 41);
//
// prints
//
//   error: model.layer1.0.conv1 (conv2d): weight expects 64 channels, input has 32
//     input  f32[1,32,56,56] from model.maxpool
//     at resnet.cpp:41
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/origin.h"

namespace graven {

class UserError : public std::exception {
 public:
  explicit UserError(std::string message) : message_(std::move(message)) { render(); }
  UserError& note(std::string line) {
    notes_.push_back(std::move(line));
    render();
    return *this;
  }
  UserError& at(const std::string& file, std::uint32_t line);
  UserError& at(const ir::Origins& origins);
  /// Puts "path (operator): " before the message, once; later calls (from outer frames) change nothing, but for a path
  /// where the same operator had none.
  UserError& in(const std::string& module_path, const std::string& operator_name);
  /// The operator that in() named; empty: none.
  const std::string& operator_name() const { return operator_; }
  /// What the user called in place of that operator, which is a part of it.
  UserError& called(const std::string& function);

  /// The first line, without "error: ".
  const std::string& message() const { return first_line_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool has_location() const { return has_location_; }
  /// The whole text, "error: " first, no newline at the end.
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  void render();
  std::string message_, module_path_, operator_;
  std::string first_line_, text_;  // of these
  std::vector<std::string> notes_;
  bool has_location_ = false, has_context_ = false;
};

class InternalError : public std::logic_error {
 public:
  InternalError(const char* file, int line, const char* condition, const std::string& detail);
};

namespace detail {
[[noreturn]] void internal_failure(const char* file, int line, const char* condition, const std::string& detail);
}

}  // namespace graven

/// A condition that only a fault of Graven's own can break.
#define GRAVEN_CHECK(condition, explanation)                                                             \
  do {                                                                                                   \
    if (!(condition)) ::graven::detail::internal_failure(__FILE__, __LINE__, #condition, (explanation)); \
  } while (false)
