// The relative links of the pages lead to files of the tree. (tests/install checks those of the installed pages.)
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include "tests/public_names.h"

namespace graven::tests {
namespace {

namespace fs = std::filesystem;

TEST(Links, OfThePagesLeadSomewhere) {
  const fs::path root = GRAVEN_SOURCE_DIR;
  std::vector<fs::path> pages = {root / "README.md", root / "ARCHITECTURE.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  std::size_t links = 0;
  for (const fs::path& page : pages) {
    for (const Match& link : matches(text_of_file(page), "\\]\\(([^)]+)\\)")) {
      std::string target = link.groups[1];
      if (target.find("://") != std::string::npos || target[0] == '#') continue;
      target = target.substr(0, target.find('#'));
      ++links;
      EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page << " links to " << target;
    }
  }
  EXPECT_GE(links, 25u);
}

/// The README's table of what a graph can do: "| `member` | ... | [...](file#L12) |".
TEST(Links, OfAGraphsMembersLeadToTheirLines) {
  const fs::path root = GRAVEN_SOURCE_DIR;
  std::set<std::string> shown;
  for (const Match& row :
       matches(text_of_file(root / "README.md"), "\\| `(\\w+)` \\|[^|]*\\| \\[[^\\]]*\\]\\(([^)#]+)#L(\\d+)\\)")) {
    const std::string& member = row.groups[1];
    shown.insert(member);
    std::istringstream text(text_of_file(root / row.groups[2]));
    std::string line, found;
    for (int n = 1; std::getline(text, line); ++n) {
      if (line.find(member + "(") == std::string::npos) continue;
      if (std::to_string(n) == row.groups[3]) found = "here";
      if (found != "here") found += " " + std::to_string(n);
    }
    EXPECT_EQ(found, "here") << "README.md: " << member << " is not in line " << row.groups[3] << " of "
                             << row.groups[2] << ", but in:" << found;
  }
  for (const std::string& option :
       declared({root / "frontend/include/graven/graph.h"}, "^  void ((?:enable|set|allow|with)_\\w+)\\("))
    EXPECT_TRUE(shown.count(option)) << option << " is not in the README's table";
}

}  // namespace
}  // namespace graven::tests
