#include "codegen/emit/format.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "codegen/build/process.h"
#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

constexpr int kSeconds = 120;  ///< that the formatter may take to answer on a busy machine

/// Texts that are formatted now and then would make two projects of one graph.
[[noreturn]] void refuse_silence(const std::string& formatter) {
  throw UserError(formatter + ": no answer within " + std::to_string(kSeconds) + " s")
      .note("expected  a clang-format 19 that answers, or --no-format");
}

// The emitted style, independent of any file on the machine.
constexpr const char* kStyle =
    "--style={BasedOnStyle: Google, ColumnLimit: 120, DerivePointerAlignment: false, PointerAlignment: Left, "
    "AllowShortFunctionsOnASingleLine: All, "
    "AllowShortIfStatementsOnASingleLine: WithoutElse, AllowShortLoopsOnASingleLine: true, IncludeBlocks: Preserve, "
    "SortIncludes: CaseSensitive, "
    "ReflowComments: false, InsertNewlineAtEOF: true}";

// The formatter's time grows with the file: larger ones stay as they are.
constexpr std::size_t kLargestFile = 512 * 1024;

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return in.good() || in.eof() ? text.str() : std::string();
}

}  // namespace

std::string find_formatter() {
  for (const char* name : {"clang-format-19", "clang-format"}) {
    const std::string path = find_program(name);
    if (path.empty()) continue;
    const ProcessResult version = run_process({path, "--version"}, {.seconds = kSeconds});
    if (version.timed_out) refuse_silence(path);
    if (version.exit_status == 0 && version.output.find("version 19.") != std::string::npos) return path;
  }
  return {};
}

bool format_texts(std::map<std::string, std::string>& files, const std::vector<std::string>& paths) {
  const std::string formatter = find_formatter();
  if (formatter.empty()) return false;
  namespace fs = std::filesystem;
  // Not a reason to leave the texts as they are, which would make another project of the same graph.
  const auto fail = [](const std::string& where, int reason) -> UserError {
    return UserError(where + ": no place for the temporary files of clang-format: " + std::strerror(reason))
        .note("expected  another TMPDIR, or --no-format");
  };
  std::error_code ignored;
  const fs::path temporary = fs::temp_directory_path(ignored);
  if (ignored) throw fail(std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp", ignored.value());
  std::string pattern = (temporary / "graven-format-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw fail(temporary.string(), errno);
  const fs::path folder = pattern;
  std::vector<std::pair<std::string, fs::path>> work;
  for (const std::string& path : paths) {
    const std::string& text = files.at(path);
    if (text.size() > kLargestFile) continue;
    work.emplace_back(path, folder / (std::to_string(work.size()) + fs::path(path).extension().string()));
    std::ofstream out(work.back().second, std::ios::binary);
    out << text;
    out.close();
    if (!out.good()) {
      const int reason = errno;
      fs::remove_all(folder, ignored);
      throw fail(temporary.string(), reason);
    }
  }
  // Largest first, so that the last to finish is a small one.
  std::vector<std::size_t> order(work.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return files.at(work[a].first).size() > files.at(work[b].first).size(); });
  std::atomic<std::size_t> next{0};
  std::atomic<bool> succeeded{true}, silent{false};
  const std::size_t count = std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), 8);
  std::vector<std::thread> workers;
  for (std::size_t w = 0; w < count; ++w)
    workers.emplace_back([&] {
      try {
        for (std::size_t i = next++; i < order.size(); i = next++) {
          const ProcessResult r =
              run_process({formatter, kStyle, "-i", work[order[i]].second.string()}, {.seconds = kSeconds});
          if (r.timed_out) silent = true;
          if (r.exit_status != 0) succeeded = false;
        }
      } catch (const std::exception&) {
        succeeded = false;
      }
    });
  for (std::thread& t : workers) t.join();
  if (succeeded)
    for (const auto& [path, file] : work)
      if (std::string text = read(file); !text.empty()) files[path] = std::move(text);
  fs::remove_all(folder, ignored);
  if (silent) refuse_silence(formatter);
  return succeeded;
}

}  // namespace graven::codegen
