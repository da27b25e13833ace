// Identifiers of values and nodes as positions in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graven::codegen {

inline std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

}  // namespace graven::codegen
