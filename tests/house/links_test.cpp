// The relative links of the pages lead to files of the tree. (tests/install checks those of the installed pages.)
#include <gtest/gtest.h>

#include <filesystem>
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

}  // namespace
}  // namespace graven::tests
