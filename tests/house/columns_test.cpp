// Lines have at most 120 columns, in the house and in the templates of emitted projects.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/public_names.h"

namespace graven::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kColumns = 120;

/// Characters, not bytes, of UTF-8.
std::size_t width(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

/// Whether the rule is for this file: text that people write. Data, and the texts that tests compare with, are not.
bool is_written_by_hand(const fs::path& file) {
  static const std::vector<std::string> kinds = {".cpp", ".h", ".cu", ".cuh", ".inc", ".py", ".sh", ".cmake", ".md"};
  const std::string extension = file.extension().string();
  if (file.filename() == "CMakeLists.txt") return true;
  if (extension.empty()) return text_of_file(file).rfind("#!", 0) == 0;
  return std::find(kinds.begin(), kinds.end(), extension) != kinds.end();
}

/// What may be wider, and why.
bool may_be_wider(const std::string& line, bool is_page) {
  if (is_page && line.rfind('|', 0) == 0) return true;  // a row of a table, which Markdown has on one line
  // An address has no place to break at: it stands alone, but for what marks a comment or an item of a list.
  const std::size_t last_blank = line.find_last_of(" \t");
  const std::size_t word = last_blank == std::string::npos ? 0 : last_blank + 1;
  const bool is_alone = line.find_first_not_of(" \t/#*-<>") >= word;
  return is_alone && line.find("://", word) != std::string::npos;
}

/// "3: 121 columns", for each line that is too wide.
std::vector<std::string> too_wide(const std::string& text, bool is_page) {
  std::vector<std::string> found;
  std::istringstream in(text);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (const std::size_t columns = width(line); columns > kColumns && !may_be_wider(line, is_page))
      found.push_back(std::to_string(number) + ": " + std::to_string(columns) + " columns");
  }
  return found;
}

TEST(Columns, AreCounted) {
  const std::string full(kColumns, 'x'), wide = full + "x";
  EXPECT_EQ(too_wide("a\n" + wide + "\n" + full, false), std::vector<std::string>{"2: 121 columns"});
  std::string arrows;
  for (std::size_t i = 0; i < kColumns; ++i) arrows += "→";
  EXPECT_TRUE(too_wide(arrows, false).empty());
  EXPECT_EQ(too_wide(arrows + "→", false).size(), 1u);

  EXPECT_TRUE(too_wide("| " + wide, true).empty());
  EXPECT_EQ(too_wide("| " + wide, false).size(), 1u);
  EXPECT_EQ(too_wide("a | " + wide, true).size(), 1u);
  EXPECT_TRUE(too_wide("// https://" + wide, false).empty());
  EXPECT_EQ(too_wide("// see https://" + wide, false).size(), 1u);
}

TEST(Columns, NoLineIsWiderThanThePage) {
  const fs::path root = GRAVEN_SOURCE_DIR;
  std::vector<fs::path> files;
  const auto take = [&](const fs::directory_entry& entry) {
    const std::string path = fs::relative(entry.path(), root).generic_string();
    if (path.rfind("tests/golden/", 0) == 0) return;  // what was emitted
    if (entry.is_regular_file() && is_written_by_hand(entry.path())) files.push_back(entry.path());
  };
  // Not the whole tree, which may hold folders of builds.
  for (const auto& entry : fs::directory_iterator(root)) take(entry);
  for (const std::string top : {"cmake", "codegen", "docs", "frontend", "ir", "kernels", "runtime_min", "samples",
                                "scripts", "templates", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) take(entry);
  std::sort(files.begin(), files.end());

  for (const fs::path& file : files)
    for (const std::string& line : too_wide(text_of_file(file), file.extension() == ".md"))
      ADD_FAILURE() << fs::relative(file, root).generic_string() << ":" << line << ", " << kColumns << " are allowed";
  EXPECT_GT(files.size(), 500u) << "the test read almost nothing: it looks in the wrong place";
}

}  // namespace
}  // namespace graven::tests
