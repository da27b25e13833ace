#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "codegen/cli/command.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "runtime_min/error.h"
#include "runtime_min/file.h"

namespace graven::cli {

std::string graph_file(const std::string& path) {
  namespace fs = std::filesystem;
  // Whether it is there cannot be told where a folder on the way may not be looked into.
  const auto exists = [](const fs::path& file) {
    std::error_code failed;
    const bool found = fs::exists(file, failed);
    if (failed) throw UserError(file.string() + ": cannot be looked at: " + failed.message());
    return found;
  };
  if (!exists(path))
    throw UserError(path + ": no such file or folder").note("expected  a folder with graph.json, or a JSON file");
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  const fs::path file = fs::path(path) / "graph.json";
  if (!exists(file))
    throw UserError(path + ": holds no graph.json").note("expected  a saved graph or an emitted project");
  return file.string();
}

ir::Graph load_graph(const std::string& path, std::string* saved) { return ir::read_graph(graph_file(path), saved); }

std::string tuning_file(const std::string& path) {
  return (std::filesystem::path(graph_file(path)).parent_path() / "tuning.json").string();
}

void write_text(const std::string& path, const std::string& text) {
  if (path.empty() || path == "-") {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (!written) throw UserError(std::string("the screen: cannot be written: ") + std::strerror(errno));
    return;
  }
  try {
    runtime::AtomicFile file(path);
    file.write(text);
    file.commit();
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
}

}  // namespace graven::cli
