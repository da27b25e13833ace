// The weights beside a saved graph.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ir/graph.h"

namespace graven::cli {

/// The tensors of `<folder of path>/weights.safetensors` by name; empty when there is no such file. User error when a
/// tensor that the graph has is of another dtype or shape, one of the graph's is missing, or the file was not saved
/// with the graph, which says `saved`.
std::map<std::string, std::shared_ptr<const ir::TensorData>> load_weights(const std::string& path,
                                                                          const ir::Graph& graph,
                                                                          const std::string& saved);

}  // namespace graven::cli
