// How a kernel says that a number in its data is out of range, or that there are too few: it throws before it computes
// anything, on the calling thread.
//
//   check_probabilities("binary_cross_entropy", "input", x, n);   // value_error: binary_cross_entropy: input 1.5 at
//                                                                 // position 3 is outside [0, 1]
//   check_has_variance("batch_norm", count);                       // value_error: batch_norm: expects more than 1
//                                                                  // value per channel when training
//
// Eager mode turns it into a UserError, an emitted program into its error message or code.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>

#include "level.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

class value_error : public std::exception {
 public:
  value_error(const char* kernel, const char* what, double value, std::int64_t position, const char* where = "") {
    // The end of a place that is too long says more than its beginning.
    const std::size_t length = std::strlen(where), most = sizeof text_ - 160;
    std::snprintf(text_, sizeof text_, "%s%s%s: %s %g at position %lld is outside [0, 1]",
                  length > most ? where + (length - most) : where, length > 0 ? ": " : "", kernel, what, value,
                  static_cast<long long>(position));
  }
  value_error(const char* kernel, const char* expected) {
    std::snprintf(text_, sizeof text_, "%s: %s", kernel, expected);
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[512];
};

/// Throws unless all of x[0 .. n - 1] lie in [0, 1]; NaN does not. `where`: the layer, and the line of its call.
template <class T>
inline void check_probabilities(const char* kernel, const char* what, const T* x, std::int64_t n,
                                const char* where = "") {
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    if (!(value >= 0 && value <= 1)) throw value_error(kernel, what, value, i, where);
  }
}

/// Throws where there is 1 value: its unbiased variance is 0 / 0, which would stay in the running statistics for good.
inline void check_has_variance(const char* kernel, std::int64_t count) {
  if (count == 1) throw value_error(kernel, "expects more than 1 value per channel when training");
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
