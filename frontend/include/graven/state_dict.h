// What modules, graphs, optimizers and schedules save and load.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graven/tensor.h"

namespace graven::nn {

/// Names and tensors, in order of registration.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// What load_state_dict() did not use, with strict = false.
struct LoadReport {
  std::vector<std::string> missing;     ///< what is loaded into has them, the dictionary does not
  std::vector<std::string> unexpected;  ///< the dictionary has them, what is loaded into does not
};

}  // namespace graven::nn
