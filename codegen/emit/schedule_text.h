// A learning-rate schedule as the emitted program states it: the fields of a runtime::Schedule, a designated
// initialiser without its braces.
//
//   .kind = Schedule::Kind::cosine, .T_max = 10000
#pragma once

#include <string>

#include "ir/graph.h"

namespace graven::codegen {

/// Empty where there is no schedule. User error when the program could not compute it (ir::check_schedule). The parts
/// of a sequence stand on lines of their own, each two spaces deeper than `indent`.
std::string schedule_text(const ir::Schedule& schedule, const std::string& indent = {});

/// ".factor = 0.1, .patience = 3": the fields of an optimizer's runtime::Plateau. User error where it has none that can
/// be.
std::string plateau_text(const ir::Optimizer& optimizer);

}  // namespace graven::codegen
