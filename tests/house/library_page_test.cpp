// docs/library.md names every layer, function, optimizer, schedule and initialiser that the headers declare, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/patterns.h"

namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in.good()) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What the pattern's group finds in these headers.
std::set<std::string> declared(const std::vector<fs::path>& headers, const std::string& pattern) {
  std::set<std::string> names;
  for (const fs::path& header : headers) {
    for (const graven::tests::Match& name : graven::tests::matches(text_of(header), pattern)) names.insert(name.groups[1]);
  }
  return names;
}

/// What the page names in the second columns of a section's rows whose first column begins with `row`.
std::set<std::string> named(const std::string& page, const std::string& section, const std::string& row) {
  std::set<std::string> names;
  std::istringstream lines(page);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, 3, "## ") == 0) inside = line == "## " + section;
    const std::size_t second = line.find('|', 1);
    if (!inside || line.compare(0, 2 + row.size(), "| " + row) != 0 || second == std::string::npos) continue;
    for (const graven::tests::Match& name : graven::tests::matches(line.substr(second), "`([A-Za-z0-9_]+)`")) names.insert(name.groups[1]);
  }
  return names;
}

TEST(LibraryPage, NamesWhatTheHeadersDeclare) {
  const fs::path include = fs::path(GRAVEN_SOURCE_DIR) / "frontend/include/graven";
  const std::string page = text_of(fs::path(GRAVEN_SOURCE_DIR) / "docs/library.md");
  std::vector<fs::path> layers{include / "layers.h"}, functions{include / "tensor.h", include / "functional.h"};
  for (const auto& entry : fs::directory_iterator(include / "layers")) layers.push_back(entry.path());
  for (const auto& entry : fs::directory_iterator(include / "functional")) functions.push_back(entry.path());
  std::set<std::string> classes = declared(layers, "^class ([A-Za-z0-9]+) : public");
  for (const char* base : {"BatchNormNd", "InstanceNormNd", "Recurrent", "RecurrentCell"}) EXPECT_EQ(classes.erase(base), 1u) << base;
  classes.insert({"Sequential", "ModuleList"});
  const struct {
    std::string section, row;
    std::set<std::string> expected;
  } cases[] = {
      {"Layers", "", classes},
      {"Functions", "", declared(functions, "^(?:Tensor|std::(?:pair|tuple|vector)<[^(\\n]*>|bool) ([a-z_0-9]+)\\(")},
      {"Training", "Optimizers", declared({include / "optim.h"}, "^class ([A-Za-z]+) : public Optimizer")},
      {"Training", "Learning-rate", declared({include / "lr_scheduler.h"}, "^class ([A-Za-z]+) : public LRScheduler")},
      {"Training", "Initialisers", declared({include / "init.h"}, "^Tensor ([a-z_]+)\\(")},
      {"Training", "Clipping", declared({include / "utils/clip_grad.h"}, "^\\w+ ([a-z_]+)\\(")},
  };
  for (const auto& c : cases) {
    EXPECT_GT(c.expected.size(), 1u) << c.section << " " << c.row;
    const std::set<std::string> found = named(page, c.section, c.row);
    for (const std::string& name : c.expected)
      EXPECT_TRUE(found.count(name)) << name << " is not in docs/library.md under " << c.section << " " << c.row;
    for (const std::string& name : found)
      EXPECT_TRUE(c.expected.count(name)) << name << " in docs/library.md under " << c.section << " is declared nowhere";
  }
}

}  // namespace
