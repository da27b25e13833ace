// Where a node comes from: the module path that recorded it, and the line of user code. Travels through every pass; a fused node keeps
// all of its parts' origins, in order of computation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace graven::ir {

struct Origin {
  std::string module;  ///< "model.features.0"; empty when recorded outside of any module
  std::string file;    ///< base name only, so that emitted bytes do not depend on where the user's code lies
  std::uint32_t line = 0;

  /// "model.features.0 (mobilenet.cpp:18)"
  std::string to_string() const;
  friend bool operator==(const Origin&, const Origin&) = default;
};

using Origins = std::vector<Origin>;

/// Joins two lists, dropping repeats, keeping order.
Origins merge(const Origins& a, const Origins& b);

}  // namespace graven::ir
