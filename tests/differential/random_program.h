// Random programs of the kind that users write in build(): parameters, buffers and what is computed of them are read,
// viewed, changed in place (under NoGradGuard and without), exchanged and averaged, around one or several backward().
// Each runs eagerly and, recorded as a graph, through the passes; both must compute the same for three steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace graven::tests {

struct ProgramResult {
  bool by_both = false;                ///< eager mode and the graph took it; else one or both said why not
  std::optional<std::string> finding;  ///< with the program's lines
};

/// The program of this seed: `training` with an optimizer, whose updates stand in backward where `in_backward`.
ProgramResult check_program(std::uint64_t seed, bool training, bool in_backward);

}  // namespace graven::tests
