// The saved corpus: what once was a crash, and a few valid files of each format, through the target of its folder's
// name, of the list GRAVEN_FUZZ_TARGETS.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"

namespace graven::fuzz {
namespace {

namespace fs = std::filesystem;

class Corpus : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Corpus, testing::ValuesIn(GRAVEN_FUZZ_TARGETS),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Corpus, EveryEntryRuns) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(fs::path(GRAVEN_SOURCE_DIR) / "tests/fuzz/corpus" / GetParam().name))
    entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  EXPECT_GE(entries.size(), 3U);
  for (const fs::path& path : entries) {
    SCOPED_TRACE(path.filename().string());
    std::ifstream in(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    GetParam().run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  }
}

}  // namespace
}  // namespace graven::fuzz
