// Saving and loading parameters as safetensors, the format that PyTorch users' other tools read.
//
//   nn::save(model.state_dict(), "model.safetensors");
//   model.load_state_dict(nn::load("model.safetensors"));
#pragma once

#include <string>

#include "graven/module.h"

namespace graven::nn {

/// Written to a temporary file, synced, and renamed: a reader sees the old file or the new one. User error when
/// anything fails.
void save(const StateDict& state, const std::string& path, Location where = Location::current());
/// Validates the whole file before it allocates. User error naming the file, the place, what was expected and what was
/// found.
StateDict load(const std::string& path, Location where = Location::current());

}  // namespace graven::nn
