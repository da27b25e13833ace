// Every entry is complete, every test case infers, lowers and has a cost, every gradient has the type of its input.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "codegen/emit/update.h"
#include "ir/diagnostic.h"
#include "ir/element_rule.h"
#include "ir/op_table.h"
#include "ir/passes/passes.h"
#include "tests/ops/case_graph.h"
#include "tests/ops/compare.h"
#include "tests/patterns.h"

namespace graven::tests {
namespace {

using ir::AttributeType;
using ir::Dim;
using ir::DType;
using ir::OpDef;
using ir::Shape;

TEST(Entries, AreComplete) {
  for (const OpDef* op : ir::all_ops()) {
    SCOPED_TRACE(std::string(op->name));
    EXPECT_FALSE(op->doc.empty());
    EXPECT_TRUE(op->infer != nullptr || op->elementwise());
    EXPECT_FALSE(op->forms.empty());
    EXPECT_TRUE(op->cases != nullptr && !op->cases().empty()) << "an operator without test cases";
    for (const ir::AttributeSpec& a : op->attributes) {
      EXPECT_FALSE(a.doc.empty()) << a.name;
      if (a.fallback) {
        EXPECT_EQ(ir::type_of(*a.fallback), a.type) << a.name;
      }
    }
    std::set<std::string_view> names;
    for (const ir::InputSpec& i : op->inputs) EXPECT_TRUE(names.insert(i.name).second) << i.name;
    for (const ir::AttributeSpec& a : op->attributes) EXPECT_TRUE(names.insert(a.name).second) << a.name;
    if (op->commutative) {
      EXPECT_EQ(op->inputs.size(), 2u);
    }
  }
}

// What its entry says of a scalar operator's result, and what it infers: a bool whatever the numbers are, or a number.
TEST(Entries, SayWhichResultsAreBools) {
  int bools = 0;
  for (const OpDef* op :
       operators([](const OpDef& o) { return o.elementwise() && o.name != "cast" && !o.inputs.empty(); }))
    for (const ir::TestCase& c : op->cases()) {
      if (c.inputs.back().type.dtype == DType::boolean) continue;
      const CaseGraph made = make_forward(*op, c);
      const bool found = made.graph.type(made.graph.outputs[0]).dtype == DType::boolean;
      EXPECT_EQ(ir::element_rule(*op).gives_boolean(), found) << op->name << ", " << c.note;
      bools += found ? 1 : 0;
    }
  EXPECT_GT(bools, 20);
}

class Entry : public testing::TestWithParam<const OpDef*> {};
class EntryWithGradient : public testing::TestWithParam<const OpDef*> {};

TEST_P(Entry, HasACaseOfEachDTypeThatItTakes) {
  const bool update = ir::is_update(*GetParam());  // those of halves: forms_test.cpp
  std::set<DType> tested;
  for (const ir::TestCase& c : GetParam()->cases())
    for (const ir::Value& v : make_forward(*GetParam(), c).graph.values) tested.insert(v.type.dtype);
  for (const DType d : ir::kAllDTypes)
    EXPECT_TRUE(tested.count(d) || !GetParam()->dtypes.contains(d) || update) << "no case has " << ir::name(d);
}

/// A dimension without elements, and one with one.
TEST_P(Entry, HasCasesOfSmallSizes) {
  bool empty = false, one = false;
  for (const ir::TestCase& c : GetParam()->cases()) {
    const CaseGraph made = make_forward(*GetParam(), c);
    for (const ir::Value& v : made.graph.values)
      for (std::size_t d = 0; d < v.type.shape.rank(); ++d) {
        empty = empty || v.type.shape[d].value() == 0;
        one = one || v.type.shape[d].value() == 1;
      }
  }
  // Winograd's weights are packed for 16 channels and more; a size is a number, and so is a scale.
  const std::string_view op = GetParam()->name;
  const bool refuses = op == "pack_conv2d_winograd_weight" || op == "size" || op == "update_loss_scale";
  EXPECT_TRUE(empty || refuses) << "no case has a dimension of size 0";
  EXPECT_TRUE(one || refuses) << "no case has a dimension of size 1";
}

void infer_and_lower(const OpDef* op, const ir::TestCase& test_case) {
  CaseGraph made = make_forward(*op, test_case);
  EXPECT_FALSE(made.graph.outputs.empty());
  // Inference is idempotent: what it normalised, it takes again.
  ir::Node& node = made.graph.nodes.back();
  std::vector<std::optional<ir::TensorType>> types;
  for (ir::ValueId v : node.inputs) types.push_back(v == ir::kNone ? std::nullopt : std::optional(made.graph.type(v)));
  ir::Attributes again = node.attributes;
  const std::vector<ir::TensorType> results = ir::infer(*op, types, again);
  EXPECT_EQ(again, node.attributes);
  ASSERT_EQ(results.size(), node.outputs.size());
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i], made.graph.type(node.outputs[i]));

  ir::decompose_reductions(made.graph, {});
  ir::decompose_matmuls(made.graph, {});
  for (const ir::Node& n : made.graph.nodes) {
    const ir::NodeView view{made.graph, n};
    const ir::KernelCall call = ir::lower(view);
    EXPECT_EQ(call.name.empty(), n.op->alias);
    for (std::int32_t i : call.in_place) {
      ASSERT_TRUE(view.has_input(static_cast<std::size_t>(i)));
      EXPECT_EQ(view.input(static_cast<std::size_t>(i)).shape, view.output().shape);
    }
    EXPECT_GE(call.workspace_bytes.value_or(0), 0);
    const ir::Cost cost = ir::cost_of(view);
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0);
    EXPECT_TRUE(std::isfinite(cost.bytes) && cost.bytes >= 0);
  }
}

void check_gradient_types(const OpDef* op, const ir::TestCase& test_case) {
  ASSERT_TRUE(op->gradient != nullptr) << "the case asks for a gradient";
  const CaseGraph made = make_gradient(*op, test_case);
  EXPECT_FALSE(made.graph.outputs.empty());
  for (std::size_t i = 0; i < made.graph.outputs.size(); ++i)
    EXPECT_EQ(made.graph.type(made.graph.outputs[i]),
              test_case.inputs[static_cast<std::size_t>(made.output_of[i])].type);
  std::size_t differentiable = 0;
  for (const ir::TestCase::Input& i : test_case.inputs) differentiable += !i.absent && ir::is_floating(i.type.dtype);
  // Statistics, the weights of classes, and what hides keys, are constants to their gradients.
  if (op->name != "batch_norm_training" && op->name != "batch_norm" && op->name != "cross_entropy" &&
      op->name != "attention") {
    EXPECT_EQ(made.graph.outputs.size(), differentiable);
  }
}

TEST_P(Entry, InfersLowersAndHasACost) {
  for (const ir::TestCase& c : GetParam()->cases()) {
    SCOPED_TRACE(c.note);
    infer_and_lower(GetParam(), c);
  }
}

TEST_P(EntryWithGradient, GradientsHaveTheTypesOfTheirInputs) {
  for (const ir::TestCase& c : GetParam()->cases()) {
    SCOPED_TRACE(c.note);
    if (c.gradient) check_gradient_types(GetParam(), c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Entry, testing::ValuesIn(ir::all_ops()),
                         [](const auto& info) { return std::string(info.param->name); });
INSTANTIATE_TEST_SUITE_P(All, EntryWithGradient, testing::ValuesIn(operators([](const OpDef& op) {
                           const std::vector<ir::TestCase> cases = op.cases();
                           return std::any_of(cases.begin(), cases.end(),
                                              [](const ir::TestCase& c) { return c.gradient; });
                         })),
                         [](const auto& info) { return std::string(info.param->name); });

// ---- configs: the fields of every call stand in the order of the kernel's struct ------------------------------------

std::string config_header(const std::string& file) {
  std::ifstream in(std::string(GRAVEN_SOURCE_DIR) + "/kernels/config/" + file + ".h");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The names of the fields of `struct type`; static members are none.
std::vector<std::string> fields_of(const std::string& all, const std::string& type) {
  const std::string head = "struct " + type + " {";
  const std::size_t begin = all.find(head);
  if (begin == std::string::npos || all.compare(begin + head.size(), 2, "};") == 0) return {};
  std::istringstream lines(all.substr(begin, all.find("\n};", begin) - begin));
  std::vector<std::string> fields;
  const std::string declaration = R"(^\s*(?:std::int64_t|double|bool)\s+(.*?);)",
                    name = R"((\w+)\s*(?:\[[^\]]*\]\s*)*(?:=[^,]*)?(?:,|$))";
  for (std::string line; std::getline(lines, line);) {
    if (line.find("static") != std::string::npos) continue;
    for (const Match& declared : matches(line, declaration))
      for (const Match& field : matches(declared.groups[1], name)) fields.push_back(field.groups[1]);
  }
  return fields;
}

TEST(Lowering, FillsTheConfigsFieldsInOrder) {
  std::set<std::string> seen;
  for (const NamedCase& c : all_cases()) {
    CaseGraph made = make_forward(*c.op, c.test_case);
    ir::decompose_reductions(made.graph, {});
    ir::decompose_matmuls(made.graph, {});
    const ir::Node& node = made.graph.nodes.back();
    const ir::KernelCall call = ir::lower({made.graph, node});
    if (call.name.empty() || !seen.insert(node.op->rule ? std::string(node.op->name) : call.name).second) continue;
    const std::string file = call.file.empty() ? call.name : call.file,
                      type = call.config_type.empty() ? file + "_config" : call.config_type;
    std::vector<std::string> given;
    for (const auto& [key, value] : call.config) given.push_back(key);
    // An optimizer's struct is printed from its rule, and has what its options use.
    if (node.op->rule) {
      const codegen::UpdateText update = codegen::print_update(ir::UpdateRule(*node.op, node.attributes, true));
      const std::vector<std::string> fields = fields_of(update.config, update.config_type);
      std::erase_if(given,
                    [&](const std::string& f) { return std::find(fields.begin(), fields.end(), f) == fields.end(); });
      EXPECT_EQ(given, fields) << node.op->name;
    } else {
      EXPECT_EQ(given, fields_of(config_header(file), type)) << call.name;
    }
  }
  EXPECT_GT(seen.size(), 25u);
}

// ---- symbols --------------------------------------------------------------------------------------------------------

struct SymbolCase {
  std::string op;
  std::vector<std::optional<ir::TensorType>> inputs;
  ir::Attributes attributes;
  std::string expected;
};

TEST(Symbols, PassThroughInference) {
  const Dim n("batch", 64);
  const auto f = [](Shape s) { return std::optional(ir::TensorType{DType::f32, std::move(s)}); };
  const std::vector<SymbolCase> cases{
      {"relu", {f({n, 3})}, {}, "f32[batch,3]"},
      {"add", {f({n, 3}), f({3})}, {}, "f32[batch,3]"},
      {"add", {f({n, 1}), f({n, 5})}, {}, "f32[batch,5]"},
      {"reshape", {f({n, 3, 4})}, {{"shape", Shape{n, 12}}}, "f32[batch,12]"},
      {"reshape", {f({n, 3, 4})}, {{"shape", Shape{-1, 12}}}, "f32[batch,12]"},
      {"reshape", {f({n, 3, 4})}, {{"shape", Shape{n, -1}}}, "f32[batch,12]"},
      {"reshape", {f({n, 3, 4})}, {{"shape", Shape{-1, 4}}}, "f32[3*batch,4]"},
      {"permute", {f({n, 3, 4})}, {{"dims", ir::Ints{0, 2, 1}}}, "f32[batch,4,3]"},
      {"expand", {f({1, 3})}, {{"shape", Shape{n, 3}}}, "f32[batch,3]"},
      {"slice", {f({n, 8})}, {{"dim", std::int64_t{1}}, {"start", std::int64_t{2}}}, "f32[batch,6]"},
      {"slice", {f({n, 8})}, {{"dim", std::int64_t{0}}}, "f32[batch,8]"},
      {"slice", {f({n * Dim(3), 8})}, {{"dim", std::int64_t{0}}, {"bounds", Shape{n, n * Dim(3)}}}, "f32[2*batch,8]"},
      {"flip", {f({n, 3, 4})}, {{"dims", ir::Ints{1, 2}}}, "f32[batch,3,4]"},
      {"cumsum", {f({n, 8})}, {{"dim", std::int64_t{0}}}, "f32[batch,8]"},
      {"sort", {f({n, 8})}, {{"count", std::int64_t{3}}}, "f32[batch,3]"},
      {"pad_border",
       {f({n, 3, 8, 8})},
       {{"pads", ir::Ints{0, 0, 0, 0, 1, 1, 2, 2}}, {"mode", std::string("reflect")}},
       "f32[batch,3,10,12]"},
      {"resample",
       {f({n, 3, 8, 8})},
       {{"dim", std::int64_t{2}}, {"size", Shape{16}}, {"mode", std::string("nearest")}},
       "f32[batch,3,16,8]"},
      {"cat", {f({n, 8}), f({n, 2})}, {{"dim", std::int64_t{1}}}, "f32[batch,10]"},
      {"cat", {f({n, 8}), f({n, 8})}, {}, "f32[2*batch,8]"},
      {"pad", {f({n, 8})}, {{"pads", ir::Ints{0, 0, 1, 1}}}, "f32[batch,10]"},
      {"sum", {f({n, 3, 4})}, {{"dims", ir::Ints{1, 2}}}, "f32[batch]"},
      {"mean", {f({n, 3, 4})}, {{"dims", ir::Ints{0}}, {"keepdim", true}}, "f32[1,3,4]"},
      {"softmax", {f({n, 10})}, {{"dim", std::int64_t{-1}}}, "f32[batch,10]"},
      {"linear", {f({n, 7}), f({3, 7}), f({3})}, {}, "f32[batch,3]"},
      {"linear", {f({n, 5, 7}), f({3, 7})}, {}, "f32[batch,5,3]"},
      {"linear_backward_weight", {f({n, 3}), f({n, 7})}, {}, "f32[3,7]"},
      {"matmul", {f({n, 5, 7}), f({7, 3})}, {}, "f32[batch,5,3]"},
      {"matmul", {f({n, 2, 5, 7}), f({n, 2, 7, 3})}, {}, "f32[batch,2,5,3]"},
      {"conv2d",
       {f({n, 3, 32, 32}), f({8, 3, 3, 3})},
       {{"padding", ir::Ints{1, 1}}, {"stride", ir::Ints{2, 2}}},
       "f32[batch,8,16,16]"},
      {"max_pool2d", {f({n, 3, 32, 32})}, {{"kernel_size", ir::Ints{2, 2}}}, "f32[batch,3,16,16]"},
      {"batch_norm_training", {f({n, 3, 8, 8}), f({3}), f({3}), f({3}), f({3})}, {}, "f32[batch,3,8,8]"},
      {"lstm", {f({n, 3, 20}), f({20, 5})}, {}, "f32[batch,3,5]"},
      {"lstm", {f({3, n, 20}), f({20, 2}), f({20}), f({n, 2}), f({n, 5}), f({2, 5})}, {}, "f32[3,batch,2]"},
      {"gru", {f({n, 3, 15}), f({15, 5})}, {}, "f32[batch,3,5]"},
      {"rnn", {f({3, n, 5}), f({5, 5})}, {}, "f32[3,batch,5]"},
      {"cross_entropy",
       {f({n, 10}), ir::TensorType{DType::i64, {n}}},
       {{"reduction", std::string("none")}},
       "f32[batch]"},
  };
  for (const SymbolCase& c : cases) {
    SCOPED_TRACE(c.op + " -> " + c.expected);
    ir::Graph graph;
    std::vector<ir::ValueId> inputs;
    for (const auto& t : c.inputs) inputs.push_back(graph.add_input("x", *t));
    const ir::ValueId y = graph.add_node(ir::get_op(c.op), inputs, c.attributes, {}).at(0);
    EXPECT_EQ(graph.type(y).to_string(), c.expected);
    const ir::KernelCall call = ir::lower({graph, graph.nodes.back()});
    EXPECT_EQ(call.name.empty(), ir::get_op(c.op).alias);
  }
}

TEST(Symbols, MeanDividesByACountThatIsKnownAtRunTime) {
  const ir::TestCase c{.inputs = {{.type = {DType::f32, {Dim("batch", 64), 3}}}},
                       .attributes = {{"dims", ir::Ints{0}}}};
  const CaseGraph made = make_gradient(ir::get_op("mean"), c);
  EXPECT_EQ(made.graph.type(made.graph.outputs[0]).to_string(), "f32[batch,3]");
}

TEST(Symbols, CatAlongOneHasAGradient) {
  const Dim n("batch", 64);
  const ir::TestCase c{.inputs = {{.type = {DType::f32, {n, 3}}}, {.type = {DType::f32, {n * Dim(2), 3}}}}};
  const CaseGraph made = make_gradient(ir::get_op("cat"), c);
  ASSERT_EQ(made.graph.outputs.size(), 2u);
  EXPECT_EQ(made.graph.type(made.graph.outputs[0]).to_string(), "f32[batch,3]");
  EXPECT_EQ(made.graph.type(made.graph.outputs[1]).to_string(), "f32[2*batch,3]");
  for (const ir::Node& node : made.graph.nodes) EXPECT_FALSE(ir::lower({made.graph, node}).name.empty());
}

TEST(Table, IsTheOneInTheDocumentation) {
  std::ifstream in(std::string(GRAVEN_SOURCE_DIR) + "/docs/operators.md", std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), ir::operator_table()) << "write it anew: graven ops --markdown > docs/operators.md";
}

TEST(Table, HasARowForEachOperator) {
  const std::string table = ir::operator_table();
  for (const OpDef* op : ir::all_ops())
    EXPECT_NE(table.find("\n| `" + std::string(op->name) + "` |"), std::string::npos) << op->name;
  EXPECT_NE(
      table.find(
          "| `relu` | x |  | y = max(x, 0). NaN stays NaN, as in PyTorch. | yes | f32 f64 f16 bf16 i8 i32 i64 u8 |"),
      std::string::npos)
      << table;
}

}  // namespace
}  // namespace graven::tests
