// What an input is to its operator its role says (ir::InputRole). Outside of the operators' files nothing asks for its
// name, and nothing takes what is variadic and written for a parameter.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "ir/op.h"
#include "tests/patterns.h"

namespace graven::tests {
namespace {

namespace fs = std::filesystem;

/// The names of the inputs that have a role of their own, as alternatives of a regular expression.
std::string names_with_roles() {
  std::set<std::string_view> names;
  for (const ir::OpDef* op : ir::all_ops())
    for (const ir::InputSpec& input : op->inputs)
      if (input.role != ir::InputRole::value) names.insert(input.name);
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : "|").append(name);
  return text;
}

/// Where `text` guesses.
std::vector<Match> guesses(const std::string& text) {
  static const std::string names = "\"(?:" + names_with_roles() + ")\"";
  static const std::string pattern =
      "(?:\\.|->)name *[!=]= *" + names + "|" + names + " *[!=]= *[^ ;]*(?:\\.|->)name\\b" +
      "|\\bname\\b[^;\\n]*\"pack_\"|variadic[^;|\\n]*&&[^;|\\n]*donated|donated[^;|\\n]*&&[^;|\\n]*variadic";
  return matches(text, pattern);
}

TEST(InputRoles, GuessesAreFound) {
  for (const char* text :
       {"if (spec.name == \"lr\") f();", "op.inputs[i].name != \"residual\"", "if (\"step\" == input->name)",
        "op.name.substr(0, 5) == \"pack_\"", "n.op->name.starts_with(\"pack_\")", "spec.variadic && !spec.donated()",
        "i.donated() && i.variadic"})
    EXPECT_EQ(guesses(text).size(), 1u) << text;
  for (const char* text : {"op.name == \"where\"", "attributes.number(\"step\")", "if (name == \"lr\" || other)",
                           "spec.role == InputRole::step", "const bool variadic = false; x && y.donated();"})
    EXPECT_TRUE(guesses(text).empty()) << text;
}

TEST(InputRoles, AreNotGuessedFromNames) {
  const fs::path root = GRAVEN_SOURCE_DIR;
  std::size_t files = 0;
  for (const char* top : {"ir", "codegen", "frontend"})
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string extension = entry.path().extension().string(),
                        path = entry.path().lexically_relative(root).generic_string();
      if ((extension != ".cpp" && extension != ".h") || path.rfind("ir/ops/", 0) == 0) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::ostringstream text;
      text << in.rdbuf();
      for (const Match& guess : guesses(text.str()))
        ADD_FAILURE() << path << ": '" << guess.groups.at(0) << "': ask for the input's role (ir/op.h) instead";
      ++files;
    }
  EXPECT_GT(files, 200u);
}

}  // namespace
}  // namespace graven::tests
