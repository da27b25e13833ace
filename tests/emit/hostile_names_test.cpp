// Emitted projects compile whatever a user calls inputs, outputs, sizes and the project. The words to try are taken from the emitted files
// themselves, and from what the headers they include declare: a new word there is tried as soon as it is written.
#include <gtest/gtest.h>

#if __has_include(<gnu/libc-version.h>)
#include <gnu/libc-version.h>
#endif

#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "codegen/emit/project_data.h"
#include "ir/diagnostic.h"
#include "ir/op.h"
#include "tests/emit/graphs.h"

namespace graven::codegen {
namespace hostile {  // its helpers would meet the other tests' in one unit

namespace fs = std::filesystem;
using ir::Dim;
using ir::DType;
using ir::Graph;
using ir::ValueId;

struct Network {
  std::string kind;  // "inference" or "training"
  std::vector<std::string> inputs, outputs, sizes;
};

/// A graph that takes every input, all of [size, 3], one size after the other, and gives as many outputs as it has names for.
Graph network(const Network& c) {
  Graph g;
  g.name = "Hostile";
  g.training = c.kind == "training";
  const ir::Origins at{{"model", "hostile.cpp", 1}};
  const ValueId w = g.add_parameter("model.w", {DType::f32, {3}}, true);
  std::vector<ValueId> values;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Dim rows = c.sizes.empty() ? Dim(4) : Dim(c.sizes[i % c.sizes.size()], 4);
    const ValueId x = g.add_input(c.inputs[i], {DType::f32, {rows, 3}});
    values.push_back(g.call("mul", {x, w}, {}, at));
  }
  if (!g.training) {
    g.outputs = values;
    g.outputs.resize(std::min(values.size(), std::max<std::size_t>(1, c.outputs.size())));
    g.output_tree.kind = ir::Tree::Kind::map;
    for (std::size_t i = 0; i < g.outputs.size(); ++i) {
      g.output_tree.keys.push_back(i < c.outputs.size() ? c.outputs[i] : "result");
      g.output_tree.children.push_back({ir::Tree::Kind::leaf, static_cast<std::int32_t>(i), {}, {}});
    }
    return g;
  }
  const ValueId seed = g.add_value("seed", ir::ValueKind::hyper, {DType::i64, {}}),
                step = g.add_value("step", ir::ValueKind::hyper, {DType::i64, {}});
  const ValueId all =
      g.call("dropout", {g.call("cat", values, {{"dim", std::int64_t{0}}}, at), seed, step}, {{"p", 0.5}, {"stream", std::int64_t{1}}}, at);
  const ValueId loss = g.call("mean", {all}, {{"dims", ir::Ints{0, 1}}}, at);
  g.outputs = {loss};
  g.losses = {{loss, ir::kNone}};
  g.optimizers.push_back({"sgd", {{{w}, {{"lr", 0.1}}}}, {}});
  return g;
}

/// The identifiers of C++ text outside of comments and literals.
std::set<std::string> identifiers(const std::string& text) {
  std::set<std::string> words;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (text.compare(i, 2, "//") == 0 || c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.compare(i, 2, "/*") == 0) {
      i = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
    } else if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
      ++i;
    } else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      std::size_t end = i;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
      words.insert(text.substr(i, end - i));
      i = end;
    } else {
      ++i;
    }
  }
  return words;
}

const std::set<std::string>& sources() {
  static const std::set<std::string> names{"model.cpp", "evaluation.cpp", "model_api.cpp", "main.cpp", "selftest.cpp", "model.h", "program.h"};
  return names;
}

/// Emits the network and checks its sources without generating code; what the compiler says, or nothing.
std::string complaints(const Network& c, const std::string& folder_name) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / ("hostile_" + folder_name);
  fs::remove_all(folder);
  emit(network(c), folder, {.format = false});
  std::string all;
  auto compile = [&](std::vector<std::string> command) {
    const ProcessResult r = run_process(command, {.directory = folder.string(), .seconds = 500});
    if (r.exit_status != 0) all += r.output;
  };
  // One unit: what each file has in an unnamed namespace stays apart where the names of its users cannot reach it.
  for (const std::string& file : sources())
    if (file.ends_with(".cpp") && fs::exists(folder / file))
      compile({"c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-DGRAVEN_LEVEL_NAMESPACE=isa_base", "-DGRAVEN_HAS_BASE", "-I.",
               file});
  std::ofstream(folder / "only_header.c") << "#include \"model.h\"\n";
  std::ofstream(folder / "only_header.cpp") << "#include \"model.h\"\n";
  compile({"cc", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I.", "only_header.c"});
  compile({"c++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I.", "only_header.cpp"});
  return all.substr(0, 6000);
}

/// Every word of the sources that the kind is emitted as.
std::vector<std::string> words_of(const std::string& kind) {
  std::set<std::string> words;
  for (const auto& [path, text] : render_project(network({kind, {"x", "z"}, {"y"}, {"batch"}}), {.format = false}))
    if (sources().count(path)) words.merge(identifiers(text));
  for (const char* ours : {"x", "y", "z", "batch", "step", "seed"}) words.erase(ours);  // step and seed: the training loop's, refused with a text
  return {words.begin(), words.end()};
}

TEST(HostileNames, Inputs) {
  for (const std::string kind : {"inference", "training"}) {
    const std::vector<std::string> words = words_of(kind);
    ASSERT_GT(words.size(), 100u);
    EXPECT_EQ(complaints({kind, words, {}, {"batch"}}, kind + "_inputs"), "");
  }
}

/// Named as inputs are, and of sizes what no input can hide: they are members where kernels and functors are called.
TEST(HostileNames, OutputsAndSizes) {
  const std::vector<std::string> words{"x",    "linear", "broadcast", "mul",  "in",      "out",  "forward", "prepare", "step",
                                       "Step", "Calls",  "own",       "loss", "missing", "int",  "f32",     "hostile", "hostile_model",
                                       "size", "param",  "threads",   "data", "labels",  "Dims", "k",       "index"};
  std::vector<std::string> inputs{"x", "labels"};  // inputs, outputs and sizes of one name
  while (inputs.size() < words.size()) inputs.push_back("input_" + std::to_string(inputs.size()));
  EXPECT_EQ(complaints({"inference", inputs, words, words}, "outputs_and_sizes"), "");
}

/// A project's namespace would hide a kernel of its name.
TEST(HostileNames, ProjectsAreNotCalledLikeKernels) {
  const Graph g = network({"inference", {"x"}, {"y"}, {}});
  for (const std::string name :
       {"release", "strided_copy", "pack_linear_weight", "reduce_sum", "max_pool2d", "half", "identity", "linear", "relu", "fill"})
    EXPECT_EQ(project_name(g, {.name = name}), name + "_model");
  for (const std::string name : {"lenet", "resnet18", "copy", "packed", "weight", "kernel", "network"})
    EXPECT_EQ(project_name(g, {.name = name}), name);
}

/// No namespace that a project can get is something else in the headers that the project includes.
TEST(HostileNames, Projects) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / "hostile_projects";
  fs::remove_all(folder);
  emit(network({"training", {"x"}, {}, {}}), folder, {.format = false});
  std::string includes;
  std::set<std::string> headers;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);)
      if (line.rfind("#include <", 0) == 0 && line.find("arm") == std::string::npos) headers.insert(line);
  }
  for (const std::string& h : headers) includes += h + "\n";
  std::ofstream(folder / "headers.cpp") << includes;
#if defined(__GLIBC__)
  if (std::string(gnu_get_libc_version()) > "2.36") GTEST_SKIP() << "codegen/emit/c_library_names.inc is of glibc 2.36; a newer one declares more";
#endif
  const ProcessResult preprocessed = run_process({"c++", "-std=c++20", "-E", "-P", "headers.cpp"}, {.directory = folder.string(), .seconds = 100});
  ASSERT_EQ(preprocessed.exit_status, 0);
  Graph g = network({"training", {"x"}, {}, {}});
  std::set<std::string> namespaces;
  for (const std::string& word : identifiers(preprocessed.output))
    if (std::islower(static_cast<unsigned char>(word[0]))) namespaces.insert(project_name(g, {.name = word}));
  for (const char letter : std::string("abcdefghijklmnopqrstuvwxyz")) namespaces.insert(project_name(g, {.name = std::string(1, letter)}));
  ASSERT_GT(namespaces.size(), 1000u);
  std::string text = includes;
  for (const std::string& name : namespaces) {
    text += "namespace " + name + " {}\n";
    std::string upper;
    for (const char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    text += "enum { " + upper + "_OK, " + upper + "_ERROR, " + upper + "_NO_MEMORY, " + upper + "_BAD_ARGUMENT };\n";
  }
  std::ofstream(folder / "namespaces.cpp") << text;
  const ProcessResult r =
      run_process({"c++", "-std=c++20", "-fsyntax-only", "-fmax-errors=0", "namespaces.cpp"}, {.directory = folder.string(), .seconds = 100});
  std::string errors;
  std::istringstream lines(r.output);
  for (std::string line; std::getline(lines, line);)
    if (line.find("error:") != std::string::npos) errors += line + "\n";
  EXPECT_EQ(errors, "");
  EXPECT_EQ(r.exit_status, 0);
}

}  // namespace hostile
}  // namespace graven::codegen
