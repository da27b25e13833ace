#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "codegen/cli/command.h"
#include "ir/diagnostic.h"
#include "ir/json.h"

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
  if (!exists(path)) throw UserError(path + ": no such file or folder").note("expected  a folder with graph.json, or a JSON file");
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  const fs::path file = fs::path(path) / "graph.json";
  if (!exists(file)) throw UserError(path + ": holds no graph.json").note("expected  a saved graph or an emitted project");
  return file.string();
}

ir::Graph load_graph(const std::string& path, std::string* saved) { return ir::read_graph(graph_file(path), saved); }

void write_text(const std::string& path, const std::string& text) {
  const bool screen = path.empty() || path == "-";
  std::FILE* file = screen ? stdout : std::fopen(path.c_str(), "wb");
  if (!file) throw UserError(path + ": cannot be written: " + std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int reason = errno;
  const bool closed = screen || std::fclose(file) == 0;
  if (!written || !closed) throw UserError((screen ? "the screen" : path) + ": cannot be written: " + std::strerror(written ? errno : reason));
}

}  // namespace graven::cli
