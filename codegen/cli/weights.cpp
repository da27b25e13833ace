#include "codegen/cli/weights.h"

#include <filesystem>

#include "codegen/cli/command.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/rank_layout.h"
#include "runtime_min/error.h"
#include "runtime_min/safetensors.h"

namespace graven::cli {

std::map<std::string, std::shared_ptr<const ir::TensorData>> load_weights(const std::string& path,
                                                                          const ir::Graph& graph,
                                                                          const std::string& saved) {
  namespace fs = std::filesystem;
  const fs::path file_path = fs::path(graph_file(path)).parent_path() / "weights.safetensors";
  std::error_code ignored;
  if (!fs::exists(file_path, ignored)) return {};
  std::map<std::string, std::shared_ptr<const ir::TensorData>> weights;
  try {
    const runtime::SafetensorsFile file(file_path.string());
    ir::check_saved_together(graph_file(path), saved, file);
    for (const ir::ValueId v : graph.parameters) {
      const ir::Value& value = graph.value(v);
      const ir::TensorType type = ir::whole_type(graph, v);
      const runtime::SafetensorsEntry* entry = file.find(value.name);
      if (!entry)
        throw UserError(file.path() + ": the tensor '" + value.name + "' is missing")
            .note("expected  " + type.to_string());
      const std::string found = std::string(entry->dtype ? runtime::name(*entry->dtype) : entry->dtype_name.c_str()) +
                                runtime::describe(entry->shape);
      if (found != type.to_string())
        throw UserError(file.path() + ": the tensor '" + value.name + "' does not fit the graph")
            .note("expected  " + type.to_string())
            .note("found     " + found);
      const auto bytes = file.bytes(*entry);
      weights[value.name] = std::make_shared<ir::TensorData>(ir::TensorData{type, {bytes.begin(), bytes.end()}});
    }
  } catch (const runtime::Error& error) {
    throw UserError(error.what());
  }
  return weights;
}

}  // namespace graven::cli
