// The order of a kernel's arguments, and what of it depends on the call.
#include "ir/call.h"

#include <gtest/gtest.h>

#include <string>

namespace graven::ir {
namespace {

/// "threads config output.0 input.x": inputs by their names, absent ones with a "?".
std::string text_of(const Graph& graph, const KernelCall& call, bool numbers_from_hyper = false) {
  const Node& node = graph.nodes.back();
  std::string text;
  for (const Argument& a : arguments_of(node, call, numbers_from_hyper)) {
    const auto input = [&](const char* kind) {
      const bool absent = a.values.empty() || a.values.front() == kNone;
      return kind + std::string(lowered(*node.op).inputs[a.index].name) + (absent ? "?" : "");
    };
    using Kind = Argument::Kind;
    text += text.empty() ? "" : " ";
    switch (a.kind) {
      case Kind::threads:
        text += "threads";
        break;
      case Kind::config:
        text += "config";
        break;
      case Kind::output:
        EXPECT_EQ(a.value(), node.outputs.at(a.index));
        text += "output." + std::to_string(a.index);
        break;
      case Kind::count:
        text += "count." + std::to_string(a.values.size());
        break;
      case Kind::list:
        text += input("list.");
        break;
      case Kind::sizes:
        text += "sizes";
        for (const Dim& size : sizes_of(graph, call, a)) text += "." + size.to_string();
        break;
      case Kind::input:
        text += input("input.");
        break;
      case Kind::number:
        text += input("number.");
        break;
      case Kind::workspace:
        text += "workspace";
        break;
      case Kind::where:
        text += "where";
        break;
    }
  }
  return text;
}

struct Made {
  Graph graph;
  Made(const char* op, const std::vector<std::optional<TensorType>>& inputs, Attributes attributes = {}) {
    std::vector<ValueId> values;
    for (const auto& type : inputs) values.push_back(type ? graph.add_input("x", *type) : kNone);
    graph.add_node(get_op(op), values, std::move(attributes), {});
  }
  KernelCall call() const { return lower({graph, graph.nodes.back()}); }
  std::string text(bool numbers_from_hyper = false) const { return text_of(graph, call(), numbers_from_hyper); }
};

const TensorType kRow{DType::f32, {6}}, kRows{DType::f32, {4, 6}}, kRate{DType::f64, {}}, kStep{DType::i64, {}};

TEST(Call, GivesOutputsThenInputs) {
  EXPECT_EQ(Made("linear", {kRows, TensorType{DType::f32, {5, 6}}}).text(),
            "threads config output.0 input.x input.weight input.bias? input.residual?");
  EXPECT_EQ(Made("softmax", {kRows}, {{"dim", std::int64_t{1}}}).text(), "threads config output.0 input.x");
}

TEST(Call, GivesListsBeforeNumbers) {
  const Made sgd("sgd", {kRow, kRows, kRow, kRows, std::nullopt, std::nullopt, kRate, kStep});
  EXPECT_EQ(sgd.text(), "threads config count.2 list.params list.grads sizes.6.24 number.lr number.step");
  EXPECT_EQ(Made("sgd", {kRow, kRows, kRow, kRows, kRow, kRows, kRate, kStep}, {{"momentum", 0.9}}).text(),
            "threads config count.2 list.params list.grads sizes.6.24 number.lr number.step list.momentum_buffers");
  EXPECT_EQ(sgd.text(true), sgd.text());
  EXPECT_EQ(Made("cat", {kRows, kRows, kRows}, {{"dim", std::int64_t{1}}}).text(),
            "threads config output.0 count.3 list.xs sizes.6.6.6");
}

TEST(Call, GivesEachOperandOfAFunctorByItself) {
  const ScalarProgram sum{.inputs = 2, .steps = {{.op = "add", .arguments = {0, 1}}}};
  EXPECT_EQ(Made("fused_elementwise", {kRows, kRow}, {{"program", sum}}).text(),
            "threads config output.0 input.xs input.xs");
}

TEST(Call, GivesNumbersByValueToDevices) {
  const Made dropout("dropout", {kRows, kStep, kStep});
  EXPECT_EQ(dropout.text(), "threads config output.0 input.x input.seed input.step");
  EXPECT_EQ(dropout.text(true), "threads config output.0 input.x number.seed number.step");
  const TensorType weight{DType::f32, {6, 6}};
  EXPECT_EQ(Made("linear_sgd", {weight, std::nullopt, kRows, kRows, kRate, kStep}).text(),
            "threads config output.0 input.param input.dy input.x input.lr input.step");
}

TEST(Call, GivesWhatKernelsAskFor) {
  const Made select("index_select", {kRows, TensorType{DType::i64, {3}}}, {{"dim", std::int64_t{0}}});
  EXPECT_EQ(select.text(), "threads config output.0 input.x input.index where");
  const Made sort("sort", {kRows}, {{"dim", std::int64_t{1}}});
  EXPECT_EQ(sort.text(), "threads config output.0 output.1 input.x workspace");
  KernelCall reference = sort.call();
  reference.reference = true;
  EXPECT_EQ(text_of(sort.graph, reference), "config output.0 output.1 input.x");
}

}  // namespace
}  // namespace graven::ir
