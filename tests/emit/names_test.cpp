#include "codegen/emit/names.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>

#include "codegen/emit/render.h"
#include "ir/diagnostic.h"

namespace graven::codegen {
namespace {

struct Case {
  std::string path, expected;
};

TEST(Names, PathsBecomeIdentifiers) {
  const Case cases[] = {
      {"model.features.0.weight", "features_0_weight"},
      {"model.hidden", "hidden"},
      {"loss_fn.cross_entropy", "loss_fn_cross_entropy"},
      {"0.weight", "layer_0_weight"},
      {"model.class", "class_"},
      {"model.int", "int_"},
      {"NULL", "NULL_"},
      {"EOF", "EOF_"},
      {"model.W", "W_"},
      {"a__b", "a_b"},
      {"__x__", "x"},
      {"", "unnamed"},
      {"\?\?\?/", "unnamed"},
      {"\"; system(\"rm -rf /\"); //", "system_rm_rf"},
      {"a*/b", "a_b"},
      {"line\nbreak", "line_break"},
      {"../../etc/passwd", "etc_passwd"},
      {"gr\xc3\xb6\xc3\x9f"
       "e",
       "gr_e"},
      {"grad(model.hidden.linear).linear_backward_input", "hidden_linear_backward_input"},
      {"grad(model.hidden.linear).mul", "hidden_linear_backward_mul"},
      {"grad(grad(model.a).b).c", "a_backward_b_backward_c"},
      {"grad(unclosed", "grad_unclosed"},
      {"grad(model.a)", "a_gradient"},
  };
  for (const Case& c : cases) EXPECT_EQ(identifier(c.path, "model"), c.expected) << c.path;
}

bool is_identifier(const std::string& name) {
  if (name.empty() || std::isalpha(static_cast<unsigned char>(name[0])) == 0 || name.size() > 140) return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (std::isalnum(static_cast<unsigned char>(name[i])) == 0 && name[i] != '_') return false;
    if (i > 0 && name[i] == '_' && name[i - 1] == '_') return false;
  }
  return true;
}

TEST(Names, DifferentPathsGetDifferentIdentifiers) {
  std::vector<std::string> paths{"a.b_c",  "a_b.c", "a.b.c", "a_b_c", "a..b", "a-b",  "class", "class_",
                                 "class.", "x.0",   "x_0",   "X.0",   "NULL", "null", ""};
  const std::string digested = Names({"a.b_c", "a_b.c"})["a.b_c"];
  paths.push_back(digested);  // a path that looks like another one's digest
  for (int i = 0; i < 256; ++i) paths.push_back(std::string("byte") + static_cast<char>(i));
  paths.push_back(std::string(5000, 'x'));
  paths.push_back(std::string(5000, 'x') + "y");
  const Names names(paths, "model");
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    EXPECT_TRUE(is_identifier(names[path])) << names[path];
    EXPECT_TRUE(seen.insert(names[path]).second) << names[path];
  }
  EXPECT_THROW(names["never seen"], InternalError);
}

TEST(Names, ANameDoesNotDependOnTheOthersUnlessTheyClash) {
  const Names few({"model.a.weight", "model.b.weight"}, "model"),
      many({"model.c.weight", "model.a.weight", "model.b.weight", "model.a_weight2"}, "model");
  EXPECT_EQ(few["model.a.weight"], many["model.a.weight"]);
  const Names one({"a.b_c", "a_b.c"}), two({"z", "a_b.c", "a.b_c"});
  EXPECT_EQ(one["a.b_c"], two["a.b_c"]);
}

TEST(Names, RootsAreTheFirstComponentThatAllShare) {
  EXPECT_EQ(common_root({"model.a.weight", "model.b"}), "model");
  EXPECT_EQ(common_root({"model.a", "other.b"}), "");
  EXPECT_EQ(common_root({"weight"}), "");
  EXPECT_EQ(common_root({"mod.a", "model.b"}), "");
  EXPECT_EQ(common_root({}), "");
}

TEST(Names, CommentsAndLiteralsCannotBeLeft) {
  for (const std::string hostile : {"*/ int x; /*", "// \\", "a\nb", "\?\?/\n", "\xff", "end\\"}) {
    const std::string text = comment_text(hostile);
    EXPECT_EQ(text.find("*/"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_EQ(text.find("\?\?"), std::string::npos) << text;
    EXPECT_TRUE(text.empty() || text.back() != '\\') << text;
    EXPECT_EQ(string_literal(hostile).find('\n'), std::string::npos);
  }
  EXPECT_EQ(string_literal("a\"b\\c\?\?="), R"("a\"b\\c\?\?=")");
  EXPECT_EQ(string_literal(std::string("\0011", 2)), R"("\0011")");
}

TEST(Render, UnknownVariablesAreErrors) {
  EXPECT_EQ(render_text("a @{ x }@ b {{ c }}", {{"x", "1"}}), "a 1 b {{ c }}");
  EXPECT_EQ(render_text("{% for v in list %}\n@{ v }@\n{% endfor %}\n", {{"list", {"p", "q"}}}), "p\nq\n");
  EXPECT_THROW(render_text("@{ missing }@", {{"x", "1"}}), InternalError);
  EXPECT_THROW(render_text("{% if missing %}x{% endif %}", nlohmann::json::object()), InternalError);
}

}  // namespace
}  // namespace graven::codegen
