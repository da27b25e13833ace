// The C++ text of an optimizer's step: a functor and the struct of its options, printed from the operator's rule
// (ir/update_rule.h). kernels/cpu/update.h says what the functor has, and runs it.
//
//   const UpdateText text = print_update(ir::UpdateRule(op, attributes, true));
#pragma once

#include <string>

#include "codegen/emit/functor.h"
#include "ir/update_rule.h"

namespace graven::codegen {

struct UpdateText {
  Functor functor;
  std::string config_type;  ///< "adam_config"
  /// Its struct, ending in a newline: the options that the functor reads, of a linear_update after its sizes.
  std::string config;
};

UpdateText print_update(const ir::UpdateRule& rule);

}  // namespace graven::codegen
