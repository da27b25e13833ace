// What saved graphs need of safetensors files beside their tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graven/serialize.h"

namespace graven::runtime {
class SafetensorsFile;
}

namespace graven::nn {

/// save(), with texts of the file's own.
void save_file(const StateDict& state, const std::string& path,
               std::vector<std::pair<std::string, std::string>> metadata);
StateDict tensors_of(const runtime::SafetensorsFile& file);

}  // namespace graven::nn
