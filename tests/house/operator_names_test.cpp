// Operators are told apart by their entries (ir/ops.h), which the compiler knows, not by names, in which a mistake is
// found by nobody. Gradient rules (ir/ops) call operators by name: there are hundreds, and tests run every one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "ir/op.h"
#include "tests/patterns.h"

namespace graven::tests {
namespace {

namespace fs = std::filesystem;

/// Where `text` compares an operator's name with a string, or asks for an operator by one.
std::vector<Match> spelt_operators(const std::string& text) {
  static const std::string pattern = [] {
    std::string names;
    for (const ir::OpDef* op : ir::all_ops()) names.append(names.empty() ? "" : "|").append(op->name);
    const std::string quoted = "\"(?:" + names + ")\"";
    return "\\b(?:op|name) *[!=]= *" + quoted + "|" + quoted +
           " *[!=]= *[^ ;]*\\b(?:op|name)\\b|\\b(?:get|find)_op\\(\"" + "|\\bgraph(?:_|\\(\\))?\\.call\\(\"";
  }();
  return matches(text, pattern);
}

TEST(OperatorNames, ComparisonsAreFound) {
  for (const char* text : {"if (node.op->name == \"relu\")", "op.name != \"full\"", "\"cast\" == step.op",
                           "step.op == \"where\"", "const std::string_view op = node.op->name; if (op == \"mul\")",
                           "node.op = &get_op(\"conv2d\");", "ir::find_op(\"sum\")", "graph_.call(\"add\", {a, b})"})
    EXPECT_EQ(spelt_operators(text).size(), 1u) << text;
  for (const char* text : {"node.is(kRelu)", "step.op == kFull.name", "reduce == \"mean\"",
                           "call.name == \"broadcast\"", "get_op(kind.op)", "g.call(\"mul\", {x, y})"})
    EXPECT_TRUE(spelt_operators(text).empty()) << text;
}

TEST(OperatorNames, AreNotCompared) {
  const fs::path root = GRAVEN_SOURCE_DIR;
  std::size_t files = 0;
  for (const char* top : {"ir", "codegen", "frontend"})
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".h") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::ostringstream text;
      text << in.rdbuf();
      for (const Match& match : spelt_operators(text.str()))
        ADD_FAILURE() << entry.path().lexically_relative(root).generic_string() << ": '" << match.groups.at(0)
                      << "': write node.is(kRelu), or kRelu where an operator is due (ir/ops.h)";
      ++files;
    }
  EXPECT_GT(files, 350u);
}

}  // namespace
}  // namespace graven::tests
