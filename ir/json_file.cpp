#include <filesystem>
#include <map>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "runtime_min/error.h"
#include "runtime_min/file.h"
#include "runtime_min/safetensors.h"

namespace graven::ir {

namespace {

std::string beside(const std::string& path) {
  std::filesystem::path p(path);
  return p.replace_extension(".safetensors").string();
}

/// The names of dtypes are the same on both sides.
runtime::DType file_dtype(DType dtype) {
  const auto found = runtime::dtype_named(name(dtype));
  GRAVEN_CHECK(found, "no such dtype in files");
  return *found;
}

void write_constants(const std::string& path, const Graph& graph) {
  std::vector<runtime::Variable> variables;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const auto constant = graph.constants.find(static_cast<ValueId>(v));
    if (constant == graph.constants.end() || constant->second->bytes.size() <= kInlineConstantBytes) continue;
    const TensorData& data = *constant->second;
    // Only read from, though a variable could be written into.
    variables.push_back({graph.values[v].name, file_dtype(data.type.dtype), data.type.shape.values(), const_cast<std::byte*>(data.bytes.data())});
  }
  runtime::save_variables(path, variables);
}

/// Looks constants up in `<graph>.safetensors` or weights.safetensors, each opened when the first one is asked for.
class ConstantFiles {
 public:
  explicit ConstantFiles(const std::string& graph) {
    candidates_ = {beside(graph), (std::filesystem::path(graph).parent_path() / "weights.safetensors").string()};
  }
  std::shared_ptr<const TensorData> load(const std::string& tensor, const TensorType& type) {
    for (const std::string& path : candidates_) {
      if (!files_.count(path)) {
        std::error_code ignored;
        files_[path] = std::filesystem::exists(path, ignored) ? std::make_unique<runtime::SafetensorsFile>(path) : nullptr;
      }
      const runtime::SafetensorsFile* file = files_[path].get();
      const runtime::SafetensorsEntry* entry = file ? file->find(tensor) : nullptr;
      if (!entry) continue;
      const auto bytes = file->bytes(*entry);
      auto data = std::make_shared<TensorData>();
      data->type = {type.dtype, Shape::of(entry->shape)};
      if (!entry->dtype || *entry->dtype != file_dtype(type.dtype))
        throw UserError(path + ": tensor '" + tensor + "': expected " + std::string(name(type.dtype)) + ", found " + entry->dtype_name);
      data->bytes.assign(bytes.begin(), bytes.end());
      return data;
    }
    return nullptr;
  }

 private:
  std::vector<std::string> candidates_;
  std::map<std::string, std::unique_ptr<runtime::SafetensorsFile>> files_;
};

}  // namespace

void write_graph(const std::string& path, const Graph& graph) {
  const std::string text = to_json(graph);
  try {
    // The text last: where it stands, its constants stand.
    if (has_large_constants(graph)) write_constants(beside(path), graph);
    runtime::AtomicFile file(path);
    file.write(text);
    file.commit();
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
}

Graph read_graph(const std::string& path) {
  try {
    const runtime::MappedFile file(path);
    ConstantFiles constants(path);
    const auto bytes = file.bytes();
    return from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path,
                     [&](const std::string& tensor, const TensorType& type) { return constants.load(tensor, type); });
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
}

}  // namespace graven::ir
