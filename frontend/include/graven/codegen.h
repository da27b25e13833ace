// Emitting a graph as a standalone C++ project.
//
//   TrainMlp graph;
//   graph.compile(spec({64, 1, 28, 28}, "images"), spec({64}, i64, "labels"));
//   codegen::emit(graph, "mlp_train");
//   // cd mlp_train && cmake -B build && cmake --build build -j2 && build/mlp_train --help
#pragma once

#include <filesystem>

#include "codegen/emit/project.h"
#include "graven/graph.h"

namespace graven::codegen {

/// Writes the recorded graph as a project, with its modules' present parameters as weights, and, for the project's
/// self-test, results computed in double precision. User error when the graph has not been recorded, cannot be emitted,
/// or the folder cannot be written.
EmitReport emit(const nn::GraphBase& graph, const std::filesystem::path& directory, EmitOptions options = {});

}  // namespace graven::codegen
