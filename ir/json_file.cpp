#include <filesystem>
#include <map>
#include <span>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/text.h"
#include "runtime_min/error.h"
#include "runtime_min/file.h"
#include "runtime_min/safetensors.h"
#include "runtime_min/sha256.h"

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

/// What to_json leaves to the file beside it, or nullptr.
const TensorData* large_constant(const Graph& graph, ValueId value) {
  const auto constant = graph.constants.find(value);
  return constant == graph.constants.end() || constant->second->bytes.size() <= kInlineConstantBytes
             ? nullptr
             : constant->second.get();
}

std::vector<std::pair<std::string, std::string>> metadata_of(std::string_view saved) {
  if (saved.empty()) return {};
  return {{std::string(kSavedKey), std::string(saved)}};
}

void write_constants(const std::string& path, const Graph& graph, std::string_view saved) {
  std::vector<runtime::Variable> variables;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const TensorData* found = large_constant(graph, static_cast<ValueId>(v));
    if (!found) continue;
    const TensorData& data = *found;
    // Only read from, though a variable could be written into.
    variables.push_back({graph.values[v].name, file_dtype(data.type.dtype), data.type.shape.values(),
                         const_cast<std::byte*>(data.bytes.data())});
  }
  runtime::save_variables(path, variables, metadata_of(saved));
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
        files_[path] =
            std::filesystem::exists(path, ignored) ? std::make_unique<runtime::SafetensorsFile>(path) : nullptr;
      }
      const runtime::SafetensorsFile* file = files_[path].get();
      const runtime::SafetensorsEntry* entry = file ? file->find(tensor) : nullptr;
      if (!entry) continue;
      const auto bytes = file->bytes(*entry);
      auto data = std::make_shared<TensorData>();
      data->type = {type.dtype, Shape::of(entry->shape)};
      if (!entry->dtype || *entry->dtype != file_dtype(type.dtype))
        throw UserError(path + ": tensor '" + tensor + "': expected " + std::string(name(type.dtype)) + ", found " +
                        entry->dtype_name);
      data->bytes.assign(bytes.begin(), bytes.end());
      return data;
    }
    return nullptr;
  }
  /// The files that were opened must be the graph's.
  void check(const std::string& graph, const std::string& saved) const {
    for (const auto& [path, file] : files_)
      if (file) check_saved_together(graph, saved, *file);
  }

 private:
  std::vector<std::string> candidates_;
  std::map<std::string, std::unique_ptr<runtime::SafetensorsFile>> files_;
};

}  // namespace

std::string digest_of(const Graph& graph) {
  const auto digest = [](std::string_view text) {
    return runtime::sha256(std::as_bytes(std::span(text.data(), text.size())));
  };
  std::string parts = digest(to_json(graph));
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    if (const TensorData* data = large_constant(graph, static_cast<ValueId>(v)))
      parts += graph.values[v].name + "\n" + runtime::sha256(data->bytes);
  return digest(parts);
}

void check_saved_together(const std::string& graph_path, std::string_view saved, const runtime::SafetensorsFile& file) {
  if (saved.empty()) return;
  for (const auto& [key, value] : file.metadata())
    if (key == kSavedKey && value != saved)
      throw UserError(graph_path + " and " + file.path() +
                      " were not saved together: one of them is another graph's, or saving was interrupted")
          .note("save the graph again, or copy both files of one folder");
}

void write_graph(const std::string& path, const Graph& graph, std::string_view saved) {
  const std::string text = to_json(graph, saved);
  try {
    // The text last: where it stands, its constants stand.
    if (has_large_constants(graph)) write_constants(beside(path), graph, saved);
    runtime::AtomicFile file(path);
    file.write(text);
    file.commit();
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
}

Graph read_graph(const std::string& path, std::string* saved) {
  try {
    const runtime::MappedFile file(path);
    ConstantFiles constants(path);
    const auto bytes = file.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto load = [&](const std::string& tensor, const TensorType& type) { return constants.load(tensor, type); };
    std::string own;
    Graph graph = text.starts_with("graph ") ? from_text(text, path, load) : from_json(text, path, load, &own);
    constants.check(path, own);
    if (saved) *saved = std::move(own);
    return graph;
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
}

}  // namespace graven::ir
