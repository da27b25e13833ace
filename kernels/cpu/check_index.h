// How a kernel says that an index in its data is out of range: it throws before it computes anything, on the calling
// thread.
//
//   check_indices("embedding", index, count, 50257, "model.words, net.cpp:12");
//       // index_error: model.words, net.cpp:12: embedding: index 60000 at position 3 is outside [0, 50257)
//
// Kernels pass on which layer they are and where it was called, if their caller says so: their last argument. Eager
// mode turns it into a UserError, an emitted program into its error message or code.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>

#include "level.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

class index_error : public std::exception {
 public:
  index_error(const char* kernel, const char* what, std::int64_t index, std::int64_t position, std::int64_t size,
              const char* where = "", std::int64_t least = 0) {
    // The end of a place that is too long says more than its beginning.
    const std::size_t length = std::strlen(where), most = sizeof text_ - 160;
    std::snprintf(text_, sizeof text_, "%s%s%s: %s %lld at position %lld is outside [%lld, %lld)",
                  length > most ? where + (length - most) : where, length > 0 ? ": " : "", kernel, what,
                  static_cast<long long>(index), static_cast<long long>(position), static_cast<long long>(least),
                  static_cast<long long>(size));
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[512];
};

/// Throws unless all of index[0 .. count - 1] lie in [0, size).
inline void check_indices(const char* kernel, const std::int64_t* index, std::int64_t count, std::int64_t size,
                          const char* where = "", const char* what = "index") {
  std::uint64_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = static_cast<std::uint64_t>(index[i]) > largest ? static_cast<std::uint64_t>(index[i]) : largest;
  if (count == 0 || largest < static_cast<std::uint64_t>(size)) return;
  for (std::int64_t i = 0; i < count; ++i)
    if (static_cast<std::uint64_t>(index[i]) >= static_cast<std::uint64_t>(size))
      throw index_error(kernel, what, index[i], i, size, where);
}

/// Throws unless all of lengths[0 .. count - 1] lie in [1, most]; nullptr: there are none.
inline void check_lengths(const char* kernel, const std::int64_t* lengths, std::int64_t count, std::int64_t most,
                          const char* where = "") {
  for (std::int64_t i = 0; lengths != nullptr && i < count; ++i)
    if (lengths[i] < 1 || lengths[i] > most) throw index_error(kernel, "length", lengths[i], i, most + 1, where, 1);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
