// What tests tell tests/compile_once.sh.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace graven::tests {

/// While it lives, projects are compiled whole, and nothing is kept of them for others: for those that no other project
/// is compiled like.
class NothingIsShared {
 public:
  NothingIsShared() {
    if (const char* was = std::getenv(kName)) before_ = was;
    ::setenv(kName, "none", 1);
  }
  ~NothingIsShared() {
    if (before_)
      ::setenv(kName, before_->c_str(), 1);
    else
      ::unsetenv(kName);
  }
  NothingIsShared(const NothingIsShared&) = delete;
  NothingIsShared& operator=(const NothingIsShared&) = delete;

 private:
  static constexpr const char* kName = "EMITTED_OBJECTS";
  std::optional<std::string> before_;
};

}  // namespace graven::tests
