// No test ends early and counts as passed: what does not fit a machine says so (GTEST_SKIP), and what does not fit a
// case is not instantiated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

/// Whether the brace at `at` opens a function without a name: before it stand a list in brackets and, perhaps, one in
/// parentheses.
bool opens_lambda(const std::string& text, std::size_t at) {
  const auto skip_blanks = [&] {
    while (at > 0 && std::isspace(static_cast<unsigned char>(text[at - 1]))) --at;
  };
  skip_blanks();
  if (at > 0 && text[at - 1] == ')') {
    int depth = 0;
    do {
      --at;
      depth += text[at] == ')' ? 1 : text[at] == '(' ? -1 : 0;
    } while (at > 0 && depth > 0);
    skip_blanks();
  }
  return at > 0 && text[at - 1] == ']';
}

/// The lines of `text`, counted from 1, in which a test returns.
std::vector<std::size_t> returns_of_tests(const std::string& text) {
  std::vector<std::size_t> lines;
  for (std::size_t begin = 0; (begin = text.find("\nTEST", begin)) != std::string::npos;) {
    const std::size_t end = std::min(text.find("\n}", ++begin), text.size());
    std::vector<bool> lambdas;
    for (std::size_t i = text.find('{', begin); i < end; ++i) {
      if (text[i] == '{') lambdas.push_back(opens_lambda(text, i));
      if (text[i] == '}' && !lambdas.empty()) lambdas.pop_back();
      if (text.compare(i, 7, "return;") == 0 && std::find(lambdas.begin(), lambdas.end(), true) == lambdas.end())
        lines.push_back(1 + static_cast<std::size_t>(
                                std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n')));
    }
  }
  return lines;
}

TEST(EarlyReturns, AreFound) {
  EXPECT_EQ(returns_of_tests("\nTEST(A, B) {\n  if (x) return;\n}\n"), std::vector<std::size_t>{3});
  EXPECT_EQ(returns_of_tests("\nTEST_P(A, B) {\n  for (int i : n) {\n    if (x) {\n      return;\n    }\n  }\n}\n"),
            std::vector<std::size_t>{5});
  EXPECT_EQ(
      returns_of_tests("\nTEST(A, B) {\n  run([&](int x) {\n    if (x) return;\n  });\n}\nvoid f() { return; }\n"),
      std::vector<std::size_t>{});
}

TEST(EarlyReturns, NoTestHasOne) {
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(GRAVEN_SOURCE_DIR) / "tests")) {
    if (entry.path().extension() != ".cpp" || entry.path().filename() == "early_returns_test.cpp") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    for (const std::size_t line : returns_of_tests(text.str()))
      ADD_FAILURE() << entry.path() << ":" << line << ": a test returns";
    ++files;
  }
  EXPECT_GT(files, 100U);
}

}  // namespace
