// Names of every kind in one network: what is emitted compiles, as C++ and, its header, as C.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "ir/diagnostic.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "tests/attack/attack.h"

namespace graven::attack {
namespace {

namespace fs = std::filesystem;
using ir::DType;

std::string name_of(Attack& attack) {
  static const char* const words[] = {
      "x",      "class",   "int",     "model",     "graven", "std",    "printf", "EOF",          "NULL",     "errno",
      "main",   "linear",  "forward", "step",      "hyper",  "buf",    "param",  "Model",        "Program",  "template",
      "unix",   "F_OK",    "import",  "module",    "final",  "int8_t", "size_t", "_Bool",        "_X",       "__x",
      "a__b",   "1",       "0x1",     "e1",        "if",     "and",    "xor_eq", "defined",      "__FILE__", "assert",
      "conv2d", "kernels", "runtime", "constexpr", "auto",   "Input",  "Output", "GRAVEN_FIXED", "isa_base", "level"};
  static const char* const pieces[] = {".",    "..",    "_",  "-",        "*/", "/*", "//", "\\",          "\"", "'",
                                       "?\?/", "$",     "%s", "\xc3\xa9", "{",  "}",  "()", "R\"(",        "#",  "@{",
                                       "}@",   "{% %}", "<",  ">",        ";",  " ",  "::", "\xe2\x80\xae"};
  std::string name = attack.choose(words);
  for (std::size_t more = attack.below(4); more > 0; --more)
    name += attack.below(2) == 0 ? attack.choose(pieces) : attack.choose(words);
  if (attack.below(20) == 0) name = std::string(200 + attack.below(2000), "aZ_."[attack.below(4)]) + name;
  return name;
}

/// An inference, or a training, with this many inputs, each of them multiplied with a parameter.
ir::Graph network(Attack& attack, std::size_t count) {
  ir::Graph g;
  std::set<std::string> taken;
  const auto fresh = [&] {
    std::string name = name_of(attack);
    while (!taken.insert(name).second) name += name_of(attack);
    attack.count("names");
    return name;
  };
  g.name = fresh();
  g.training = attack.below(2) == 0;
  std::vector<ir::ValueId> values;
  for (std::size_t i = 0; i < count; ++i) {
    const ir::ValueId w = g.add_parameter(fresh(), {DType::f32, {3}}, true);
    const ir::ValueId x = g.add_input(fresh(), {DType::f32, {ir::Dim("rows", 4), 3}});
    values.push_back(g.call("mul", {x, w}, {}, {{name_of(attack), name_of(attack) + ".cpp", 1}}));
  }
  if (g.training) {
    const ir::ValueId all = g.call("cat", values, {{"dim", std::int64_t{0}}}, {});
    const ir::ValueId loss = g.call("mean", {all}, {{"dims", ir::Ints{0, 1}}}, {});
    g.outputs = {loss};
    g.losses = {{loss, ir::kNone}};
    g.optimizers.push_back({"sgd", {{g.parameters, {{"lr", 0.1}}}}, {}});
    return g;
  }
  g.outputs = values;
  g.output_tree.kind = ir::Tree::Kind::map;
  for (std::size_t i = 0; i < count; ++i) {
    g.output_tree.keys.push_back(fresh());
    g.output_tree.children.push_back({ir::Tree::Kind::leaf, static_cast<std::int32_t>(i), {}, {}});
  }
  return g;
}

TEST(Names, OfAnyKindCompile) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "attack/names";
  Attack attack("names in emitted projects", 2);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    fs::remove_all(folder);
    const ir::Graph graph = network(attack, 20);
    attack.count(graph.training ? "trainings" : "inferences");
    try {
      codegen::emit(graph, folder, {.format = false});
    } catch (const UserError& e) {  // step and seed are the training loop's
      ADD_FAILURE() << e.what();
      continue;
    }
    std::ofstream(folder / "header.c") << "#include \"model.h\"\n";
    for (const auto& [compiler, standard, file] : {std::tuple("c++", "-std=c++20", "model.cpp"),
                                                   {"c++", "-std=c++20", "model_api.cpp"},
                                                   {"c++", "-std=c++20", "main.cpp"},
                                                   {"c++", "-std=c++20", "selftest.cpp"},
                                                   {"cc", "-std=c11", "header.c"}}) {
      const codegen::ProcessResult r =
          codegen::run_process({compiler, standard, "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                                "-DGRAVEN_LEVEL_NAMESPACE=isa_base", "-DGRAVEN_HAS_BASE", "-I.", file},
                               {.directory = folder.string(), .seconds = 200});
      EXPECT_EQ(r.exit_status, 0) << file << "\n" << r.output.substr(0, 4000);
    }
  }
}

}  // namespace
}  // namespace graven::attack
