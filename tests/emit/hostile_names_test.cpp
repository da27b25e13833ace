// Emitted projects compile whatever a user calls inputs, outputs, sizes and the project. The words to try are taken
// from the emitted files themselves, and from what the headers they include declare: a new word there is tried as soon
// as it is written.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "codegen/emit/project_data.h"
#include "frontend/eager/oracle.h"
#include "ir/diagnostic.h"
#include "ir/op.h"
#include "tests/all_tests.h"
#include "tests/emit/graphs.h"
#include "tests/read_text.h"

namespace graven::codegen {
namespace hostile {  // its helpers would meet the other tests' in one unit

namespace fs = std::filesystem;
using ir::Dim;
using ir::DType;
using ir::Graph;
using ir::ValueId;

struct Network {
  std::string kind;  // "inference", "training" with dropout, "plain training", whose evaluation is its forward phase,
                     // or "update in backward"
  std::vector<std::string> inputs, outputs, sizes;
  std::string target = "cpu";
};

/// A graph that takes every input, all of [size, 3], one size after the other, and gives as many outputs as it has
/// names for.
Graph network(const Network& c) {
  Graph g;
  g.name = "Hostile";
  g.training = c.kind != "inference";
  if (c.kind == "update in backward") g.config[std::string(ir::kUpdateInBackward)] = true;
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
  ValueId all = g.call("cat", values, {{"dim", std::int64_t{0}}}, at);
  if (c.kind == "training") {
    const ValueId seed = g.add_value("seed", ir::ValueKind::hyper, {DType::i64, {}}),
                  step = g.add_value("step", ir::ValueKind::hyper, {DType::i64, {}});
    all = g.call("dropout", {all, seed, step}, {{"p", 0.5}, {"stream", std::int64_t{1}}}, at);
  }
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
  static const std::set<std::string> names{"model.cpp",     "evaluation.cpp", "model_api.cpp", "model.cu",
                                           "evaluation.cu", "model_api.cu",   "main.cpp",      "selftest.cpp",
                                           "model.h",       "program.h"};
  return names;
}

/// Emits the network and checks its sources without generating code; what the compiler says, or nothing.
std::string complaints(const Network& c, const std::string& folder_name) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / ("hostile_" + folder_name);
  fs::remove_all(folder);
  emit(network(c), folder, {.target = c.target, .format = false});
  std::string all;
  auto compile = [&](std::vector<std::string> command) {
    const ProcessResult r = run_process(command, {.directory = folder.string(), .seconds = 500});
    if (r.exit_status != 0) all += r.output;
  };
  // One unit: what each file has in an unnamed namespace stays apart where the names of its users cannot reach it.
  for (const std::string& file : sources())
    if (!file.ends_with(".h") && fs::exists(folder / file)) {
      std::vector<std::string> command{"c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I."};
      if (c.target == "cpu")
        command.insert(command.end(), {"-DGRAVEN_LEVEL_NAMESPACE=isa_base", "-DGRAVEN_HAS_BASE"});
      else
        command.insert(command.end(),
                       {"-I" GRAVEN_SOURCE_DIR "/tests/cuda_on_cpu/include", "-Wno-unknown-pragmas", "-x", "c++"});
      command.push_back(file);
      compile(command);
    }
  std::ofstream(folder / "only_header.c") << "#include \"model.h\"\n";
  std::ofstream(folder / "only_header.cpp") << "#include \"model.h\"\n";
  compile({"cc", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I.", "only_header.c"});
  compile({"c++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I.", "only_header.cpp"});
  return all.substr(0, 6000);
}

/// Every word of the sources that the kind is emitted as.
std::vector<std::string> words_of(const std::string& kind, const std::string& target) {
  std::set<std::string> words;
  for (const auto& [path, text] :
       render_project(network({kind, {"x", "z"}, {"y"}, {"batch"}}), {.target = target, .format = false}))
    if (sources().count(path)) words.merge(identifiers(text));
  for (const char* ours : {"x", "y", "z", "batch", "step", "seed"})
    words.erase(ours);  // step and seed: the training loop's, refused with a text
  return {words.begin(), words.end()};
}

TEST(HostileNames, Inputs) {
  for (const std::string target : {"cpu", "cuda"})
    for (const std::string kind : {"inference", "training", "plain training", "update in backward"}) {
      // Little in these is not in "training": ten seconds each, where all tests are asked for.
      if (!tests::all_tests() && (kind == "plain training" || kind == "update in backward")) continue;
      const std::vector<std::string> words = words_of(kind, target);
      ASSERT_GT(words.size(), 100u);
      const std::string what = kind + (target == "cuda" ? "_on_cuda" : "");
      SCOPED_TRACE(what);
      EXPECT_EQ(complaints({kind, words, {}, {"batch"}, target}, what + "_inputs"), "");
    }
}

/// Named as inputs are, and of sizes what no input can hide: they are members where kernels and functors are called.
TEST(HostileNames, OutputsAndSizes) {
  const std::vector<std::string> words{
      "x",    "linear", "broadcast", "mul",  "in",      "out",  "forward", "prepare", "step",
      "Step", "Calls",  "own",       "loss", "missing", "int",  "f32",     "hostile", "hostile_model",
      "size", "param",  "threads",   "data", "labels",  "Dims", "k",       "index"};
  std::vector<std::string> inputs{"x", "labels"};  // inputs, outputs and sizes of one name
  while (inputs.size() < words.size()) inputs.push_back("input_" + std::to_string(inputs.size()));
  EXPECT_EQ(complaints({"inference", inputs, words, words}, "outputs_and_sizes"), "");
}

/// A project's namespace would hide a kernel of its name.
TEST(HostileNames, ProjectsAreNotCalledLikeKernels) {
  const Graph g = network({"inference", {"x"}, {"y"}, {}});
  for (const std::string name : {"release", "strided_copy", "pack_linear_weight", "reduce_sum", "max_pool2d",
                                 "linear_config", "copy_on_device", "argmax", "linear", "relu", "fill"})
    EXPECT_EQ(project_name(g, {.name = name}), name + "_model");
  for (const std::string name : {"lenet", "resnet18", "copy", "packed", "weight", "kernel", "network"})
    EXPECT_EQ(project_name(g, {.name = name}), name);
}

std::string errors_of(const std::string& output) {
  std::string errors;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (line.find("error:") != std::string::npos) errors += line + "\n";
  return errors.substr(0, 20000);
}

/// No namespace that a project can get, and no function of its C interface, is something else in the headers that the
/// project includes.
TEST(HostileNames, Projects) {
  const Graph g = network({"training", {"x"}, {}, {"batch"}});
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / "hostile_projects";
  fs::remove_all(folder);
  emit(g, folder, {.format = false});
  std::string includes;
  std::set<std::string> headers;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);)
      // Those of other processors, and of an engine that need not be there, are left out.
      if (line.rfind("#include <", 0) == 0 && line.find("arm") == std::string::npos && line != "#include <mpi.h>")
        headers.insert(line);
  }
  for (const std::string& h : headers) includes += h + "\n";
  std::ofstream(folder / "headers.cpp") << includes;
  // Into files: megabytes of text.
  const auto preprocessed = [&](const std::string& option, const std::string& file) {
    const ProcessResult r = run_process({"c++", "-std=c++20", "-E", option, "headers.cpp", "-o", file},
                                        {.directory = folder.string(), .seconds = 100});
    EXPECT_EQ(r.exit_status, 0) << r.output;
    return read_text(folder / file);
  };
  std::set<std::string> words = identifiers(preprocessed("-P", "headers.ii"));
  std::istringstream macros(preprocessed("-dM", "macros.h"));
  for (std::string define, name; macros >> define >> name; std::getline(macros, define))
    words.insert(name.substr(0, name.find('(')));
  EXPECT_TRUE(words.count("printf") && words.count("memcpy") && words.count("sigaction"))
      << "headers are not read whole";

  // What the project declares for C, without its name.
  std::set<std::string> suffixes;
  const std::string own = project_name(g, {}) + "_";
  for (const std::string& word : identifiers(read_text(folder / "model.h")))
    if (word.starts_with(own)) suffixes.insert(word.substr(own.size()));
  ASSERT_TRUE(suffixes.count("create") && suffixes.count("maximum_batch"));
  std::set<std::string> namespaces;
  for (const std::string& word : words) {
    if (!std::islower(static_cast<unsigned char>(word[0]))) continue;
    namespaces.insert(project_name(g, {.name = word}));
    for (const std::string& suffix : suffixes)
      if (word.ends_with("_" + suffix))
        namespaces.insert(project_name(g, {.name = word.substr(0, word.size() - suffix.size() - 1)}));
  }
  for (const char letter : std::string("abcdefghijklmnopqrstuvwxyz"))
    namespaces.insert(project_name(g, {.name = std::string(1, letter)}));
  ASSERT_GT(namespaces.size(), 1000u);
  std::string beside, functions = includes + "struct Ours;\n";
  for (const std::string& name : namespaces) {
    beside += "namespace " + name + " {}\n";
    std::string upper;
    for (const char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    beside += "enum { " + upper + "_OK, " + upper + "_ERROR, " + upper + "_NO_MEMORY, " + upper + "_BAD_ARGUMENT };\n";
    for (const std::string& suffix : suffixes) functions += "extern \"C\" Ours* " + name + "_" + suffix + "(Ours*);\n";
  }
  for (const std::string& text : {includes + beside, functions}) {
    std::ofstream(folder / "names.cpp") << text;
    const ProcessResult r =
        run_process({"c++", "-std=c++20", "-fsyntax-only", "-fmax-errors=0", "names.cpp"},
                    {.directory = folder.string(), .seconds = 100, .output_limit = std::size_t{1} << 26});
    EXPECT_EQ(errors_of(r.output), "") << "names for codegen/emit/c_library_names.inc";
    EXPECT_EQ(r.exit_status, 0);
  }
}

/// No namespace that a project can get is something else outside of namespaces in the project's own files.
TEST(HostileNames, ProjectsAreNotCalledLikeWhatTheyHold) {
  for (const std::string kind : {"inference", "training"}) {
    SCOPED_TRACE(kind);
    const Graph g = network({kind, {"x", "z"}, {"y"}, {"batch"}});
    const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / ("hostile_contents_of_" + kind);
    fs::remove_all(folder);
    emit(g, folder, {.execute = eager::reference_run, .format = false});
    std::set<std::string> namespaces;
    for (const std::string& file : sources())
      for (const std::string& word : identifiers(read_text(folder / file)))
        if (const std::string name = project_name(g, {.name = word}); !name.starts_with(project_name(g, {})))
          namespaces.insert(name);  // but what it has its own name in
    ASSERT_GT(namespaces.size(), 100u);
    std::string before;
    for (const std::string& name : namespaces) before += "namespace " + name + " {}\n";
    for (const std::string& file : sources()) {
      if (!file.ends_with(".cpp") || !fs::exists(folder / file)) continue;
      std::ofstream(folder / "beside_namespaces.cpp") << before << "#include \"" << file << "\"\n";
      const ProcessResult r =
          run_process({"c++", "-std=c++20", "-fsyntax-only", "-fmax-errors=0", "-DGRAVEN_LEVEL_NAMESPACE=isa_base",
                       "-DGRAVEN_HAS_BASE", "-I.", "beside_namespaces.cpp"},
                      {.directory = folder.string(), .seconds = 100});
      EXPECT_EQ(errors_of(r.output), "") << file << ": names for kTaken, codegen/emit/project_data.cpp";
    }
  }
}

/// The program's target is called like the project; those that CMake and its generators make themselves are taken.
TEST(HostileNames, ProjectsAreNotCalledLikeTargetsOfCMake) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / "hostile_targets";
  fs::remove_all(folder);
  const Graph g = network({"inference", {"x"}, {"y"}, {}});
  emit(g, folder, {.name = "zebra", .format = false});
  std::set<std::string> names;
  // The targets in the file that a generator writes, and what lies in its folder, where the program goes.
  const auto add_names = [&](const std::string& generator, const std::string& file, const std::string& before) {
    const ProcessResult r =
        run_process({"cmake", "-S", ".", "-B", "build", "-G", generator}, {.directory = folder.string()});
    ASSERT_EQ(r.exit_status, 0) << r.output;
    std::istringstream lines(read_text(folder / "build" / file));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(before)) continue;
      const std::size_t end =
          line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789", before.size());
      if (end != std::string::npos && line[end] == ':') names.insert(line.substr(before.size(), end - before.size()));
    }
    for (const auto& entry : fs::directory_iterator(folder / "build")) names.insert(entry.path().filename().string());
    fs::remove_all(folder / "build");
  };
  add_names("Unix Makefiles", "Makefile", "");
  if (!find_program("ninja").empty()) add_names("Ninja", "build.ninja", "build ");
  for (const char* documented :
       {"all", "ALL_BUILD", "help", "install", "INSTALL", "preinstall", "clean", "edit_cache", "rebuild_cache", "test",
        "RUN_TESTS", "package", "PACKAGE", "package_source", "ZERO_CHECK"})
    names.insert(documented);
  ASSERT_TRUE(names.count("depend") && names.count("selftest") && names.count("include") && names.count("zebra"));
  for (const std::string& name : names)
    if (!name.starts_with("zebra")) {
      EXPECT_NE(project_name(g, {.name = name}), name);
    }
  // Some of them, configured.
  for (const char* name : {"Test", "Install"}) {
    const fs::path project = folder / name;
    emit(g, project, {.name = name, .format = false});
    ProcessResult r =
        run_process({"cmake", "-S", project.string(), "-B", (project / "build").string(), "-G", "Unix Makefiles"});
    EXPECT_EQ(r.exit_status, 0) << r.output;
  }
}

}  // namespace hostile
}  // namespace graven::codegen
