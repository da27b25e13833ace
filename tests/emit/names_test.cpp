#include "codegen/emit/names.h"

#include <graven/graven.h>
#include <graven/models.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "codegen/emit/embedded.h"
#include "codegen/emit/project.h"
#include "codegen/emit/render.h"
#include "ir/diagnostic.h"
#include "ir/origin.h"
#include "tests/patterns.h"

namespace graven::codegen {
namespace {

struct Case {
  std::string path, expected;
};

TEST(Modules, HaveAnInnermostOneAroundThemOrNone) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"model.features.2.conv.0.0", "model.features.2.conv.0.1", "model.features.2.conv.2"}, "model.features.2.conv"},
      {{"model.block.conv", "model.block.convolution"}, "model.block"},
      {{"model.block", "model.block.conv"}, "model.block"},
      {{"model.block.conv", "model.block"}, "model.block"},
      {{"model.a.x", "model.b.x"}, "model"},
      {{"model.a", "other.a"}, ""},
      {{"model"}, "model"},
      {{}, ""}};
  for (const auto& [paths, parent] : cases) EXPECT_EQ(ir::common_module(paths), parent) << ir::braced(paths);
}

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
      {"grad(model.hidden.linear_2).linear_backward_input", "hidden_linear_2_backward_input"},
      {"grad(model.a.log).log_softmax_backward", "a_log_backward_log_softmax_backward"},
      {"grad(model.drop.dropout).dropout", "drop_dropout_backward"},
      {"grad(model.a.matmul_3).matmul_2", "a_matmul_3_backward_2"},
      {"grad(model.a.conv2d).conv2d", "a_conv2d_backward"},
      {"grad(model.a.add)_2", "a_add_gradient_2"},
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

/// A model trained by a cross entropy.
template <class Model>
struct Train : nn::Graph<Train<Model>> {
  Model model;
  nn::CrossEntropyLoss loss_fn = this->child("loss_fn", nn::CrossEntropyLoss());
  optim::AdamW optimizer;
  explicit Train(Model given) : model(this->child("model", given)), optimizer(model.parameters()) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

/// Two convolutions; or one more between them, or the first of them wider.
struct Stack : nn::Module<Stack> {
  std::int64_t width;
  bool longer;
  explicit Stack(std::int64_t width_ = 6, bool longer_ = false) : width(width_), longer(longer_) {}
  nn::Conv2d c1 = child("c1", nn::Conv2d(1, width, 3));
  nn::Conv2d extra = child("extra", nn::Conv2d(width, longer ? width : 1, 3));
  nn::Conv2d c2 = child("c2", nn::Conv2d(width, 8, 3));
  nn::Linear head = child("head", nn::Linear(8, 3));
  Tensor forward(Tensor x) {
    x = max_pool2d(relu(c1(x)), 2);
    if (longer) x = relu(extra(x));
    x = max_pool2d(relu(c2(x)), 2);
    return head(mean(x, {2, 3}));
  }
};

/// The lines of code in which a project's calls differ from another's, and the files of which anything does.
struct Changes {
  std::set<std::string> lines, files;
};
Changes changes(const Stack& from, const Stack& to) {
  auto project = [](const Stack& model) {
    Train<Stack> graph(model);
    graph.compile(spec({2, 1, 20, 20}, "images"), spec({2}, i64, "labels"));
    auto files = render_project(graph.graph(), {.format = false});
    // The graph's hash, which its types are called after, stands in one line.
    files["model.h"] = tests::replaced(files.at("model.h"), "graph_[0-9a-f]{64}_[0-9a-f]{16}", "graph");
    return files;
  };
  auto code = [](const std::string& text) {
    std::set<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.insert(line.substr(0, line.find("//")));
    return lines;
  };
  const auto before = project(from), after = project(to);
  Changes c;
  for (const auto& [path, text] : before)
    if (after.count(path) == 0 || after.at(path) != text) c.files.insert(path);
  const std::set<std::string> now = code(after.at("model.cpp"));
  for (const std::string& line : code(before.at("model.cpp")))
    if (now.count(line) == 0) c.lines.insert(line);
  return c;
}

TEST(Names, AChangedLayerChangesItsOwnLines) {
  // Wider: sizes alone, and no call but in what the comments say of it.
  const Changes wider = changes(Stack(6), Stack(10));
  EXPECT_EQ(wider.lines, std::set<std::string>());
  for (const char* untouched :
       {"main.cpp", "model_api.cpp", "model.h", "selftest.cpp", "program.h", "functors.h", "CMakeLists.txt"})
    EXPECT_EQ(wider.files.count(untouched), 0u) << untouched;
  // One more: the layer behind it reads another value, and hands its gradient to another.
  const Changes longer = changes(Stack(6), Stack(6, true));
  EXPECT_LE(longer.lines.size(), 5u) << ::testing::PrintToString(longer.lines);
  for (const std::string& line : longer.lines) EXPECT_NE(line.find("c2"), std::string::npos) << line;
  for (const char* untouched : {"main.cpp", "model_api.cpp", "model.h", "selftest.cpp", "CMakeLists.txt"})
    EXPECT_EQ(longer.files.count(untouched), 0u) << untouched;
}

/// The names of an emitted project that end in a digest.
std::set<std::string> digested(const nn::GraphBase& graph) {
  std::set<std::string> found;
  for (const auto& [path, text] : render_project(graph.graph(), {.format = false})) {
    if (path.find('/') != std::string::npos || path.ends_with(".json")) continue;
    for (const tests::Match& digest :
         tests::matches(text, "\\b[a-z]\\w*_(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8}\\b"))
      found.insert(digest.groups[0]);
  }
  return found;
}

template <class Model>
std::set<std::string> digested(Model model, const ir::Shape& images) {
  Train<Model> graph(model);
  graph.compile(spec(images, "images"), spec({images[0]}, i64, "labels"));
  return digested(graph);
}

TEST(Names, OrdinaryNetworksNeedNoDigests) {
  EXPECT_EQ(digested(models::LeNet(), {4, 1, 28, 28}), std::set<std::string>());
  EXPECT_EQ(digested(models::resnet18({.num_classes = 10}), {2, 3, 32, 32}), std::set<std::string>());
  EXPECT_EQ(digested(models::MobileNetV2({.num_classes = 10, .dropout = 0}), {2, 3, 32, 32}), std::set<std::string>());
  EXPECT_EQ(digested(models::MLP(12, {16, 8, 5}), {4, 12}), std::set<std::string>());
  EXPECT_EQ(digested(models::MLP(12, {5}), {Dim("batch", 4), 12}), std::set<std::string>());
}

/// A grouped convolution, a dropout, and a part of the channels.
struct Parts : nn::Module<Parts> {
  nn::Conv2d conv = child("conv", nn::Conv2d(4, 8, 3, {.groups = 2}));
  nn::Dropout drop = child("drop", nn::Dropout(0.25));
  nn::Linear head = child("head", nn::Linear(4, 3));
  Tensor forward(Tensor x) { return head(narrow(drop(mean(conv(x), {2, 3})), 1, 2, 4)); }
};

TEST(Comments, SayWhatShapesLeaveOpen) {
  Train<Parts> graph(Parts{});
  graph.compile(spec({2, 4, 8, 8}, "images"), spec({2}, i64, "labels"));
  const std::string text = render_project(graph.graph(), {.format = false}).at("model.cpp");
  for (const char* comment : {"// conv2d 4->8, 3x3, 2 groups + bias ", "// dropout 0.25 ", "// slice dim 1, 2:6 "})
    EXPECT_NE(text.find(comment), std::string::npos) << comment << text;
}

/// More than a thousand calls.
struct Reader : nn::Module<Reader> {
  nn::LSTMCell cell = child("cell", nn::LSTMCell(4, 4));
  nn::Linear head = child("head", nn::Linear(4, 3));
  Tensor forward(Tensor x) {
    auto state = cell(x.select(0, 0));
    Tensor sum = state.first;
    for (std::int64_t t = 1; t < x.size(0); ++t) {
      state = cell(x.select(0, t), state);
      sum = sum + state.first;
    }
    return head(sum);
  }
};

TEST(Parts, OfALongModelIncludeWhatTheyUse) {
  Train<Reader> graph(Reader{});
  graph.compile(spec({60, 2, 4}, "x"), spec({2}, i64, "labels"));
  const auto files = render_project(graph.graph(), {.format = false});
  std::set<std::string> headers;
  std::istringstream in(files.at("model_update_1.cpp"));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("#include")) headers.insert(line.substr(9));
  EXPECT_EQ(headers,
            (std::set<std::string>{"\"configs.h\"", "\"functors.h\"", "\"kernels/cpu/update.h\"", "\"program.h\""}));
  EXPECT_NE(files.at("model_forward_1.cpp").find("#include \"functors.h\""), std::string::npos);
  EXPECT_NE(files.at("README.md").find("`model_forward_1.cpp`"), std::string::npos);
}

TEST(Configs, FieldsFillTheirLines) {
  Train<models::LeNet> graph(models::LeNet{});
  graph.compile(spec({4, 1, 28, 28}, "images"), spec({4}, i64, "labels"));
  const std::string text = render_project(graph.graph(), {.format = false}).at("configs.h");
  EXPECT_NE(text.find("{\n    .batch = 4, .in_height = 28, .in_width = 28, .in_channels = 1, "), std::string::npos)
      << text;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), 140u) << line;
}

TEST(Names, WhatOrdinaryPathsClashOverIsSpelledOut) {
  const Names names({"grad(model.a.mul).add", "model.a.mul.backward.add"}, "model");
  EXPECT_EQ(names["grad(model.a.mul).add"], "gradient_of_a_mul_add");
  EXPECT_EQ(names["model.a.mul.backward.add"], "a_mul_backward_add");
  // The longer name is taken: digests again, and no two alike.
  const Names hostile({"grad(x).a", "x.backward.a", "gradient.of.x.a"});
  EXPECT_EQ(hostile["gradient.of.x.a"], "gradient_of_x_a");
  EXPECT_NE(hostile["grad(x).a"], hostile["x.backward.a"]);
}

/// One norm and one loss, used twice.
struct Shared : nn::Graph<Shared> {
  nn::Conv2d conv = child("conv", nn::Conv2d(3, 3, 1));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(3));
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{conv.parameters(), {.lr = 0.1}};
  Shared() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    const Tensor once = norm(conv(images)), twice = norm(relu(once));
    Tensor loss = loss_fn(mean(once, {2, 3}), labels) + loss_fn(mean(twice, {2, 3}), labels);
    loss.backward();
    return loss;
  }
};

TEST(Names, ModulesThatAreUsedTwiceNeedNoDigests) {
  Shared graph;
  graph.compile(spec({2, 3, 4, 4}, "images"), spec({2}, i64, "labels"));
  EXPECT_EQ(digested(graph), std::set<std::string>());
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

TEST(Render, TemplatesLoseNoBlanks) {
  // What is blank behind a statement is not copied: text on the same line must not begin with it.
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path.find("templates/") == std::string_view::npos) continue;
    std::istringstream in{std::string(file.text)};
    for (std::string line; std::getline(in, line);)
      EXPECT_TRUE(tests::matches(line, "\\S.*%\\} +\\S").empty()) << file.path << ": " << line;
  }
}

}  // namespace
}  // namespace graven::codegen
