// What a program does not compile with: the compiler names the user's line and says in one sentence what is expected,
// on one screen. And what it compiles with: every name of docs/library.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "tests/all_tests.h"
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
)";
/// A mistake stands in a function of its own.
constexpr const char* kFunction =
    "void mistake([[maybe_unused]] const Tensor& x, [[maybe_unused]] Scaled& scaled, [[maybe_unused]] Private& hidden, "
    "[[maybe_unused]] Counted& counted, [[maybe_unused]] Net& net) {\n";

struct Mistake {
  const char* line;
  const char* message;  ///< what the compiler says, whichever it is; none: it compiles
};
const Mistake kMistakes[] = {
    {"scaled(x);", ""},
    {"scaled.compile(spec({2, 4}));", ""},
    {"scaled(x, 3);",
     "a graph's inputs are tensors, specs, and tuples, vectors, maps or optionals of them; other values belong into "
     "its members"},
    {"scaled.compile(std::make_tuple(spec({2, 4}), 0.5));", "a graph's inputs are tensors, specs, and tuples"},
    {"scaled(x, x);", "the graph has no public build() that takes a tensor for each tensor or spec it is called with"},
    {"scaled.trace(spec({2, 4}), spec({2, 4}), spec({2}));", "the graph has no public build() that takes a tensor"},
    {"hidden(x);", "the graph has no public build() that takes a tensor"},
    {"counted(x);", "build() returns tensors, or tuples, vectors, maps or optionals of them"},
    {"scaled(x, x, x, x, x, x, x, x, x);", "a graph is called with at most eight inputs"},
    {"net(x);", ""},
    {"net(x, 3);", "the module has no public forward() that takes these arguments"},
    {"net(\"x\");", "the module has no public forward() that takes these arguments"},
    {"nn::Linear(4, 3)(x, x);", "the module has no public forward() that takes these arguments"},
    {"net(x, x, x, x, x, x, x, x, x);", "a module is called with at most eight arguments"},
    {"net.child(\"scale\", 3);", "a child must be a module"},
    {"scaled.child(\"x\", x);", "a child must be a module"},
    {"nn::Sequential s(nn::ReLU(), relu, [](Tensor t) { return relu(t); }, [&](const Tensor& t) { return net(t); });",
     ""},
    {"nn::ModuleList<> list{nn::ReLU(), nn::AnyModule(relu)};", ""},
    {"nn::Sequential s(nn::LSTM(4, 3), nn::ReLU());",
     "a module of a Sequential or a list has a forward() from one tensor to one tensor"},
    {"nn::Sequential s(nn::ReLU(), nn::GRU(4, 3));",
     "a module of a Sequential or a list has a forward() from one tensor to one tensor"},
    {"nn::Sequential s(nn::ReLU(), 3);",
     "Sequential(...) takes modules, such as nn::Linear(4, 3), and functions of one tensor that give one"},
    {"nn::Sequential s(nn::ReLU(), [](Tensor a, Tensor b) { return a + b; });", "Sequential(...) takes modules"},
    {"nn::Conv2d conv(1, 2, 3, {.strid = 2});", "Conv2dOptions"},
    {"nn::Linear fc(1, 2, {.bia = false});", "LinearOptions"},
    {"(void)conv2d(x, x, x, {.strid = 2});", "Conv2dFunctionOptions"},
    {"(void)cross_entropy(x, x, {.weigth = x});", "CrossEntropyOptions"},
    {"optim::SGD sgd(net.parameters(), {.lrr = 2});", "SGDOptions"},
    {"data::DataLoader loader(\"x\", {.batchsize = 2});", "DataLoaderOptions"},
    {"for (auto [a, b] : data::DataLoader(\"x\").epoch(0)) (void)a, (void)b;", ""},
    {"for (auto [a, b] : data::DataLoader(\"x\")) (void)a, (void)b;",
     "a loader is read epoch by epoch: for (auto [x, y] : loader.epoch(epoch))"},
    {"struct G : nn::Graph<G> { G(optim::LBFGS& o) { add_optimizer(o); } Tensor build(Tensor t) { return t; } };",
     "LBFGS is eager only"},
};

constexpr const char* kAllErrors = GRAVEN_CXX_IS_CLANG ? "-ferror-limit=0" : "-fmax-errors=0";

codegen::ProcessResult compile(const fs::path& file, const std::vector<std::string>& options) {
  std::vector<std::string> command{GRAVEN_CXX, "-std=c++20", "-w", "-I" GRAVEN_SOURCE_DIR,
                                   "-I" GRAVEN_SOURCE_DIR "/frontend/include"};
  command.insert(command.end(), options.begin(), options.end());
  command.push_back(file.string());
  return codegen::run_process(command, {.seconds = 300});
}

/// What this compiler says of a file.
codegen::ProcessResult checked(const fs::path& file, std::vector<std::string> options = {}) {
  options.emplace_back("-fsyntax-only");
  return compile(file, options);
}

fs::path written(const std::string& name, const std::string& text) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "errors_compile";
  fs::create_directories(folder);
  EXPECT_TRUE((std::ofstream(folder / name) << text).flush());
  return folder / name;
}

TEST(Compile, MistakesAreNamed) {
  std::string text = std::string(kDeclarations) + kFunction;
  std::size_t line = 1 + tests::matches(text, "\n").size();
  for (const Mistake& m : kMistakes) text += "{ " + std::string(m.line) + " }\n";
  const fs::path file = written("mistakes.cpp", text + "}\n");
  const codegen::ProcessResult r = checked(file, {"-ftemplate-backtrace-limit=0", kAllErrors});
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

TEST(Compile, AMistakeIsOneScreen) {
  constexpr std::ptrdiff_t kScreen = 25;
  // Read once: the mistakes take a third of the time. A precompiled header changes no line of what is said.
  const fs::path header = written("declarations.h", kDeclarations);
  const codegen::ProcessResult precompiled = compile(header, {"-x", "c++-header", "-o", header.string() + ".gch"});
  ASSERT_EQ(precompiled.exit_status, 0) << precompiled.output;
  // A second and a half each: every fourth, where not all tests are asked for.
  for (std::size_t i = 0; i < std::size(kMistakes); i += tests::all_tests() ? 1 : 4) {
    const Mistake& m = kMistakes[i];
    if (std::string(m.message).empty()) continue;
    SCOPED_TRACE(m.line);
    const fs::path file = written("mistake.cpp", std::string(kFunction) + m.line + "\n}\n");
    const codegen::ProcessResult r = checked(file, {"-include", header.string()});
    EXPECT_NE(r.exit_status, 0);
    EXPECT_NE(r.output.find(m.message), std::string::npos) << r.output;
    EXPECT_LE(std::count(r.output.begin(), r.output.end(), '\n'), kScreen) << r.output;
  }
}

/// The names in the second columns of a section's rows, and the namespace that the section or the row speaks of.
TEST(Compile, EveryNameOfTheLibraryPageIsPublic) {
  std::ifstream page(GRAVEN_SOURCE_DIR "/docs/library.md");
  ASSERT_TRUE(page);
  std::string space, text = "#include <graven/graven.h>\n";
  std::size_t names = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.compare(0, 3, "## ") == 0) space = line == "## Layers" ? "nn::" : line == "## Functions" ? "" : "none";
    if (line == "## Training") space = "row";
    const std::size_t second = line.find('|', 1);
    if (space == "none" || line.compare(0, 2, "| ") != 0 || second == std::string::npos) continue;
    // "Optimizers, `optim::`"
    const auto named = tests::matches(line.substr(0, second), "`([a-z_:]+::)`");
    if (space == "row" && named.empty()) continue;
    const std::string within = named.empty() ? space : named[0].groups[1];
    // What stands in parentheses and behind a colon is no name.
    const std::string list =
        line.substr(second, within == "data::" ? line.find(':', second + 1) - second : std::string::npos);
    for (const tests::Match& name : tests::matches(list, "`([A-Za-z0-9_]+)`")) {
      text += "namespace name_" + std::to_string(names++) + " { using graven::" + within + name.groups[1] + "; }\n";
    }
  }
  EXPECT_GT(names, 300u);
  const codegen::ProcessResult r = checked(written("names.cpp", text));
  EXPECT_EQ(r.exit_status, 0) << r.output;
}

}  // namespace
}  // namespace graven
