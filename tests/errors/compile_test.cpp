// Mistakes that a program with them does not compile with: the compiler names the user's line and says in one sentence what is expected.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "tests/patterns.h"

namespace graven {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDeclarations = R"(#include <graven/graven.h>
using namespace graven;
struct Scaled : nn::Graph<Scaled> {
  nn::Linear fc = child("fc", nn::Linear(4, 3));
  Tensor build(Tensor x) { return fc(x); }
};
struct Private : nn::Graph<Private> {
 private:
  Tensor build(Tensor x) { return x; }
};
struct Counted : nn::Graph<Counted> {
  int build(Tensor) { return 1; }
};
struct Net : nn::Module<Net> {
  Tensor forward(Tensor x) { return x; }
};
void mistakes(const Tensor& x, Scaled& scaled, Private& hidden, Counted& counted, Net& net) {
)";

struct Mistake {
  const char* line;
  const char* message;  ///< none: it compiles
};
const Mistake kMistakes[] = {
    {"scaled(x);", ""},
    {"scaled.compile(spec({2, 4}));", ""},
    {"scaled(x, 3);", "a graph's inputs are tensors, specs, and tuples, vectors, maps or optionals of them; other values belong into its members"},
    {"scaled.compile(std::make_tuple(spec({2, 4}), 0.5));", "a graph's inputs are tensors, specs, and tuples"},
    {"scaled(x, x);", "the graph has no public build() that takes a tensor for each tensor or spec it is called with"},
    {"scaled.trace(spec({2, 4}), spec({2, 4}), spec({2}));", "the graph has no public build() that takes a tensor"},
    {"hidden(x);", "the graph has no public build() that takes a tensor"},
    {"counted(x);", "build() returns tensors, or tuples, vectors, maps or optionals of them"},
    {"net.child(\"scale\", 3);", "a child must be a module"},
    {"scaled.child(\"x\", x);", "a child must be a module"},
};

TEST(Compile, MistakesAreNamed) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "errors_compile";
  fs::create_directories(folder);
  const fs::path file = folder / "mistakes.cpp";
  std::string text = kDeclarations;
  std::size_t line = 1 + tests::matches(text, "\n").size();
  for (const Mistake& m : kMistakes) text += std::string(m.line) + "\n";
  text += "}\n";
  ASSERT_TRUE((std::ofstream(file) << text).flush());
  const codegen::ProcessResult r = codegen::run_process({GRAVEN_CXX, "-std=c++20", "-fsyntax-only", "-w", "-ftemplate-backtrace-limit=0",
                                                         "-I" GRAVEN_SOURCE_DIR, "-I" GRAVEN_SOURCE_DIR "/frontend/include", file.string()},
                                                        {.seconds = 300});
  EXPECT_NE(r.exit_status, 0);
  // The same sentence may stand for several lines; each of them is named.
  for (const Mistake& m : kMistakes) {
    const std::string place = file.string() + ":" + std::to_string(line++) + ":";
    SCOPED_TRACE(place + " " + m.line);
    if (std::string(m.message).empty()) {
      EXPECT_EQ(r.output.find(place), std::string::npos);
      continue;
    }
    EXPECT_NE(r.output.find(place), std::string::npos);
    EXPECT_NE(r.output.find(m.message), std::string::npos);
  }
  if (testing::Test::HasFailure()) ADD_FAILURE() << r.output;
}

}  // namespace
}  // namespace graven
