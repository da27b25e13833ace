// How a kernel says that a number in its data is out of range: it throws before it computes anything, on the calling thread.
//
//   check_probabilities("binary_cross_entropy", "input", x, n);   // value_error: binary_cross_entropy: input 1.5 at position 3 is outside [0, 1]
//
// Eager mode turns it into a UserError, an emitted program into its error message or code.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>

#include "level.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

class value_error : public std::exception {
 public:
  value_error(const char* kernel, const char* what, double value, std::int64_t position) {
    std::snprintf(text_, sizeof text_, "%s: %s %g at position %lld is outside [0, 1]", kernel, what, value, static_cast<long long>(position));
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[192];
};

/// Throws unless all of x[0 .. n - 1] lie in [0, 1]; NaN does not.
template <class T>
inline void check_probabilities(const char* kernel, const char* what, const T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    if (!(value >= 0 && value <= 1)) throw value_error(kernel, what, value, i);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
