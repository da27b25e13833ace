#include "ir/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/diagnostic.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace graven::ir {
namespace {

std::shared_ptr<const TensorData> floats(const std::vector<float>& values) {
  auto data = std::make_shared<TensorData>();
  data->type = {DType::f32, Shape{static_cast<std::int64_t>(values.size())}};
  data->bytes.resize(values.size() * 4);
  std::memcpy(data->bytes.data(), values.data(), data->bytes.size());
  return data;
}

/// Something of everything that a graph can hold.
Graph everything() {
  Graph g;
  g.name = "Every\"thing";
  g.training = true;
  g.modules = {{"model", "Mlp", ""}, {"model.0", "ReLU", "inplace=True"}};
  const ValueId x = g.add_input("images", {DType::f32, {Dim("batch", 64), 1, 28}});
  g.add_input("labels*/\\\"; system(", {DType::i64, {Dim(3) * Dim("rows", 7)}});
  const ValueId p = g.add_parameter("model.weight", {DType::f32, {2, 3}}, true);
  g.add_buffer("model.mean", {DType::f64, {}});
  g.add_value("lr.0", ValueKind::hyper, {DType::f64, {}});
  const float inf = std::numeric_limits<float>::infinity();
  const ValueId c = g.add_constant(
      "k", floats({0.1f, -0.0f, inf, -inf, std::nanf(""), 1e-45f, 3.4028235e38f, 1.f, 16777216.f, 1e20f}));
  const ValueId y = g.call("relu", {x}, {}, {{"model.0", "mlp.cpp", 8}, {"model", "", 0}});
  const ValueId z = g.call("relu", {p}, {}, {});
  const ValueId w = g.call("relu", {c}, {}, {{"größe", "ü.cpp", 1}});
  g.outputs = {y, x, y, w};
  g.donations = {{p, z, true}};
  Tree leaf0, leaf1, none, list, map;
  leaf1.index = 1;
  none.kind = Tree::Kind::none;
  list.kind = Tree::Kind::list;
  list.children = {leaf1, none};
  map.kind = Tree::Kind::map;
  map.keys = {"b", "a"};
  map.children = {leaf0, list};
  g.input_tree.kind = Tree::Kind::tuple;
  g.input_tree.children = {leaf0, map};
  g.output_tree = map;
  g.losses = {{z, z}};
  g.optimizers = {{"sgd",
                   {{{p}, {{"lr", 0.1}, {"momentum", 0.9}}}, {{}, {{"lr", 1e-300}}}},
                   {"multi_step", {{"gamma", 0.5}}, {1, 3}}},
                  {"sgd",
                   {},
                   {"sequential",
                    {{"warmup_iters", 3}, {"warmup_factor", 0.25}, {"warmup_linear", 1}},
                    {4},
                    {{"linear", {{"start_factor", 0.5}, {"end_factor", 1}, {"total_iters", 4}}, {}},
                     {"sequential",
                      {},
                      {9, 12},
                      {{"step", {{"step_size", 30}, {"gamma", 1e-300}}, {}},
                       {"cosine", {{"T_max", 9}, {"eta_min", 0}}, {}},
                       {"", {}, {}}}}}}}};
  g.config = {{"flag", true},
              {"limit", std::int64_t{-5}},
              {"ratio", 0.1},
              {"text", std::string("a\nb").substr(0, 1)},
              {"list", Ints{1, 2}},
              {"dtype", DType::bf16},
              {"shape", Shape{Dim("batch", 64), 2}},
              {"program", ScalarProgram{1, {{"relu", {0}, {}, DType::f32}}}}};
  return g;
}

TEST(Json, ReadsBackWhatItWrites) {
  const Graph g = everything();
  verify(g);
  const std::string text = to_json(g);
  const Graph r = from_json(text, "graph.json");
  verify(r);
  EXPECT_EQ(to_json(r), text);
  EXPECT_EQ(r.name, g.name);
  EXPECT_EQ(r.values.size(), g.values.size());
  EXPECT_EQ(r.input_tree, g.input_tree);
  EXPECT_EQ(r.output_tree, g.output_tree);
  EXPECT_EQ(r.config, g.config);
  EXPECT_EQ(r.optimizers[0].groups[1].options, g.optimizers[0].groups[1].options);
  const Schedule &before_parts = g.optimizers[1].schedule, &after_parts = r.optimizers[1].schedule;
  ASSERT_EQ(after_parts.parts.size(), 2u);
  EXPECT_EQ(after_parts.options, before_parts.options);
  EXPECT_EQ(after_parts.milestones, before_parts.milestones);
  EXPECT_EQ(after_parts.parts[0].options, before_parts.parts[0].options);
  EXPECT_EQ(after_parts.parts[1].milestones, before_parts.parts[1].milestones);
  ASSERT_EQ(after_parts.parts[1].parts.size(), 3u);
  EXPECT_EQ(after_parts.parts[1].parts[1].kind, "cosine");
  EXPECT_EQ(r.type(r.inputs[0]), g.type(g.inputs[0]));
  ASSERT_EQ(r.constants.size(), 1u);
  const auto& before = g.constants.begin()->second->bytes;
  const auto& after = r.constants.begin()->second->bytes;
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size()), 0);
}

// Graphs that were saved with nodes that assign have donations.
TEST(Json, ReadsAssignmentsAsDonations) {
  Graph g;
  const ValueId x = g.add_input("x", {DType::f32, {3}}), kept = g.add_buffer("kept", {DType::f32, {3}});
  g.outputs = {g.call("relu", {x}, {}, {})};
  g.donations = {{kept, g.outputs[0]}};
  const std::string text = to_json(g);
  Graph plain = g;
  plain.donations.clear();
  std::string old = to_json(plain);
  const std::string nodes_end = "\n],\n\"outputs\"";
  ASSERT_NE(old.find(nodes_end), std::string::npos);
  old.insert(old.find(nodes_end),
             ",\n{\"outputs\": [], \"op\": \"assign\", \"inputs\": [\"kept\", \"relu\"], \"attributes\": {}, "
             "\"phase\": \"forward\", \"origins\": []}");
  EXPECT_EQ(to_json(from_json(old, "graph.json")), text);
  const std::string results = "{\"outputs\": [], \"op\": \"assign\"";
  std::string with_result = old;
  with_result.replace(with_result.find(results), results.size(), "{\"outputs\": [\"q\"], \"op\": \"assign\"");
  EXPECT_THROW(from_json(with_result, "graph.json"), UserError);
  old.replace(old.find("[\"kept\", \"relu\"]"), 16, "[\"kept\"]");
  try {
    from_json(old, "graph.json");
    ADD_FAILURE() << "read";
  } catch (const UserError& e) {
    EXPECT_NE(e.message().find("graph.json: nodes[1].inputs: expected a variable and a value"), std::string::npos)
        << e.message();
  }
}

// Graphs that were saved when `linear` itself was packed and had an epilogue.
TEST(Json, ReadsProductsThatSayWhatLoweredOnesDo) {
  const ScalarProgram relu{1, {{"relu", {0}, {}, DType::f32}}};
  const std::string relu_text =
      R"({"inputs": 1, "steps": [{"op": "relu", "arguments": [0], "constants": {}, "dtype": "f32"}]})";
  const struct {
    std::string attributes;
    Shape weight;
    const char* op;
    Attributes now;
  } cases[] = {
      {R"("epilogue": {"inputs": 1, "steps": []}, "in_features": 4, "out_features": 3, "packed": false)",
       {3, 4},
       "linear",
       {}},
      {"\"epilogue\": " + relu_text + R"(, "in_features": 4, "out_features": 3, "packed": false)",
       {3, 4},
       "lowered_linear",
       {{"epilogue", relu}}},
      {R"("epilogue": {"inputs": 1, "steps": []}, "in_features": 4, "out_features": 3, "packed": true)",
       {1, 4, 16},
       "lowered_linear",
       {{"packed", true}, {"weight_shape", Ints{3, 4}}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.attributes);
    Graph g;
    g.stage = "insert_copies";  // traces have no packed weights
    const ValueId x = g.add_input("x", {DType::f32, {2, 4}}), w = g.add_parameter("w", {DType::f32, c.weight}, false);
    g.outputs = {g.call(c.op, {x, w}, c.now, {})};
    g.value(g.outputs[0]).name = "y";
    const std::string now = to_json(g);
    std::string old = now;
    const std::size_t op = old.find("\"op\": \""), begin = old.find("\"attributes\": {"),
                      end = old.find("}, \"phase\"");
    ASSERT_NE(end, std::string::npos) << old;
    old.replace(begin, end - begin, "\"attributes\": {" + c.attributes);
    old.replace(op + 7, old.find('"', op + 7) - op - 7, "linear");
    EXPECT_EQ(to_json(from_json(old, "graph.json")), now);
  }
}

TEST(Text, SaysTheSameAsTheJson) {
  const Graph g = everything();
  const std::string text = to_text(g);
  const Graph r = from_text(text, "graph.txt");
  verify(r);
  EXPECT_EQ(to_json(r), to_json(g));
  EXPECT_EQ(to_text(r), text);
}

TEST(Json, OneNodeALine) {
  const std::string text = to_json(everything());
  std::size_t lines = 0;
  for (std::size_t at = text.find("\n{\"outputs\""); at != std::string::npos; at = text.find("\n{\"outputs\"", at + 1))
    ++lines;
  EXPECT_EQ(lines, 3u);
}

TEST(Json, NumbersKeepTheirBits) {
  for (double x : {0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, -1.7976931348623157e308, 9007199254740993.0, 1e18, 9.3e18,
                   123456789012345680.0}) {
    Graph g;
    g.config["x"] = x;
    const Graph r = from_json(to_json(g), "g");
    const double y = std::get<double>(r.config.at("x"));
    EXPECT_EQ(std::memcmp(&x, &y, 8), 0) << x;
  }
}

TEST(Json, RefusesTextThatCannotBeWritten) {
  Graph g;
  g.name = "\xff\xfe";
  EXPECT_THROW(to_json(g), UserError);
}

}  // namespace
}  // namespace graven::ir
