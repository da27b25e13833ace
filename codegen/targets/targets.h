// The targets that there are.
//
//   const Target& target = target_named("cuda");       // user error when there is none of that name
//   add_target(mine);                                  // a host program's own: emit(graph, folder, {.target = "mine"})
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/targets/target.h"

namespace graven::codegen {

/// Empty: the host's.
const Target& target_named(std::string_view name);
/// Nullptr when there is none.
const Target* find_target(std::string_view name);
/// "cpu, cuda", or with another word before the last.
std::string target_names(std::string_view before_last = ", ");
std::vector<const Target*> targets();

/// From now on there is this target, too; it lives as long as it is used. User error when there is one of that name, or
/// the name is no identifier.
void add_target(const Target& target);

}  // namespace graven::codegen
