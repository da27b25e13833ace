#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_fused_reduction(InferContext& c) {
  const ScalarProgram& program = c.attributes.program("program");
  c.require(!program.empty(), "the program has no steps");
  c.require(c.input_count() > 0 && c.input_count() <= 2 && program.inputs == static_cast<std::int32_t>(c.input_count()),
            "the program takes " + ops::count_of(program.inputs, "input") + " of 1 or 2, got " +
                std::to_string(c.input_count()));
  for (std::size_t i = 0; i < c.input_count(); ++i)
    c.require(c.input(i).shape == c.input(0).shape,
              "the inputs must have one shape, got " + c.input(0).to_string() + " and " + c.input(i).to_string());
  ops::check_program(c, program, std::vector<DType>(c.input_count(), DType::f32));
  c.require(program.steps.back().dtype == DType::f32, "the program's result must be f32");
  const std::string& reduction = c.attributes.text("reduction");
  c.require(reduction == "sum" || reduction == "mean",
            "the reduction is 'sum' or 'mean', got '" + reduction.substr(0, 100) + "'");
  ops::infer_reduction(c, false);
}

static Cost cost_fused_reduction(const NodeView& node) {
  return {.flops = static_cast<double>(node.input(0).shape.numel().maximum()) *
                   static_cast<double>(node.attributes().program("program").steps.size() + 1)};
}

static std::vector<AttributeSpec> attributes_of_fused_reduction() {
  std::vector<AttributeSpec> attributes{{"program", AttributeType::program, {}, "what is computed for each element"},
                                        {"reduction", AttributeType::text, {}, "sum or mean"}};
  for (AttributeSpec& a : ops::reduction_attributes()) attributes.push_back(std::move(a));
  return attributes;
}

static std::vector<TestCase> cases_fused_reduction() {
  const ScalarProgram square{.inputs = 1, .steps = {{.op = "square", .arguments = {0}}}};
  const ScalarProgram distance{.inputs = 2,
                               .steps = {{.op = "sub", .arguments = {0, 1}}, {.op = "abs", .arguments = {2}}}};
  std::vector<TestCase> cases;
  const auto add = [&](std::string note, Shape shape, const ScalarProgram& program, const char* reduction, Ints dims,
                       bool keep) {
    TestCase c{.note = std::move(note),
               .inputs = {},
               .attributes = {{"program", program},
                              {"reduction", std::string(reduction)},
                              {"dims", std::move(dims)},
                              {"keepdim", keep}},
               .gradient = false};
    for (std::int32_t i = 0; i < program.inputs; ++i) c.inputs.push_back(ops::random(DType::f32, shape));
    cases.push_back(std::move(c));
  };
  add("all", {3, 4, 50}, square, "sum", {}, false);
  add("two inputs", {7, 190}, distance, "mean", {-1}, false);
  add("first", {190, 7}, distance, "sum", {0}, true);
  add("middle", {2, 33, 5}, square, "mean", {1}, false);
  add("large", {3, 40000}, distance, "sum", {}, false);
  add("one", {1, 1}, square, "sum", {1}, false);
  add("rank 0", {}, square, "sum", {}, false);
  add("no elements", {0, 3}, distance, "sum", {0}, false);
  add("no results", {3, 0}, square, "mean", {0}, false);
  return cases;
}

const OpDef kFusedReduction{
    .name = "fused_reduction",
    .doc =
        "y = the sum or mean over dims of program(xs...), which is never stored; one or two xs of one shape. Made by "
        "the fusion pass.",
    .inputs = {{.name = "xs", .role = InputRole::operand, .variadic = true}},
    .dtypes = {DType::f32},
    .attributes = attributes_of_fused_reduction(),
    .infer = infer_fused_reduction,
    .lowered = true,
    .cost = cost_fused_reduction,
    .forms = {{.attributes = {{"program", ScalarProgram{.steps = {{.op = "square", .arguments = {0}}}}},
                              {"reduction", std::string("sum")}}}},
    .cases = cases_fused_reduction,
};

}  // namespace graven::ir
