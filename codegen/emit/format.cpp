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
  // A process for each processor, and each file, largest first, to the one that has least: to start it takes as long as
  // to format a file.
  std::stable_sort(work.begin(), work.end(),
                   [&](const auto& a, const auto& b) { return files.at(a.first).size() > files.at(b.first).size(); });
  struct Part {
    std::size_t bytes = 0;
    std::vector<std::string> command;
  };
  const std::size_t processors = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 8);
  std::vector<Part> parts(std::min(processors, work.size()), Part{0, {formatter, kStyle, "-i"}});
  for (const auto& [path, file] : work) {
    Part& least =
        *std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.bytes < b.bytes; });
    least.bytes += files.at(path).size();
    least.command.push_back(file.string());
  }
  std::atomic<bool> succeeded{true}, silent{false};
  std::vector<std::thread> workers;
  for (const Part& part : parts)
    workers.emplace_back([&] {
      try {
        const ProcessResult r = run_process(part.command, {.seconds = kSeconds});
        if (r.timed_out) silent = true;
        if (r.exit_status != 0) succeeded = false;
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
