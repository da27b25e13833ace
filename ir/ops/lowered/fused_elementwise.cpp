#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_fused_elementwise(InferContext& c) {
  const ScalarProgram& program = c.attributes.program("program");
  c.require(!program.empty(), "the program has no steps");
  c.require(c.input_count() > 0 && program.inputs == static_cast<std::int32_t>(c.input_count()),
            "the program takes " + ops::count_of(program.inputs, "input") + ", got " + std::to_string(c.input_count()));
  std::vector<DType> inputs;
  for (std::size_t i = 0; i < c.input_count(); ++i) inputs.push_back(c.input(i).dtype);
  ops::check_program(c, program, inputs);
  const Shape shape = ops::broadcast_inputs(c);
  ops::require_kernel_rank(c, shape.rank());
  c.output(program.steps.back().dtype, shape);
}

static Cost cost_fused_elementwise(const NodeView& node) {
  return {.flops = static_cast<double>(node.output().shape.numel().maximum()) *
                   static_cast<double>(node.attributes().program("program").steps.size())};
}

const OpDef kFusedElementwise{
    .name = "fused_elementwise",
    .doc =
        "y = program(xs...): a chain of elementwise operators in one pass over memory, inputs broadcast as in NumPy. "
        "Made by the fusion pass.",
    .inputs = {{.name = "xs", .role = InputRole::operand, .variadic = true}},
    .dtypes = kAnyDType,
    .attributes = {{"program", AttributeType::program, {}, "what is computed for each element"}},
    .infer = infer_fused_elementwise,
    .lowered = true,
    .cost = cost_fused_elementwise,
    .forms = {{.attributes = {{"program",
                               ScalarProgram{
                                   .steps = {{.op = "logical_not", .arguments = {0}, .dtype = DType::boolean}}}}}}},
    .cases =
        [] {
          const ScalarProgram program{
              .inputs = 3,
              .steps = {{.op = "mul", .arguments = {0, 1}},
                        {.op = "add", .arguments = {3, 2}},
                        {.op = "clamp", .arguments = {4}, .constants = {{"min", -1.0}, {"max", 1.0}}},
                        {.op = "tanh", .arguments = {5}}}};
          const ScalarProgram choice{.inputs = 2,
                                     .steps = {{.op = "ne", .arguments = {0, 1}, .dtype = DType::boolean},
                                               {.op = "where", .arguments = {2, 0, 1}}}};
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, ScalarProgram program, const std::vector<Shape>& shapes) {
            TestCase c{.note = std::move(note), .gradient = false};
            for (const Shape& shape : shapes)
              c.inputs.push_back(ops::random(d, shape, is_floating(d) ? -1 : 0, is_floating(d) ? 1 : 2));
            for (ScalarProgram::Step& step : program.steps)
              if (step.dtype == DType::f32) step.dtype = d;
            c.attributes = {{"program", std::move(program)}};
            cases.push_back(std::move(c));
          };
          add("a choice, of any dtype", DType::f32, choice, {{4, 9}, {4, 9}});
          add("one shape", DType::f32, program, {{4, 9}, {4, 9}, {4, 9}});
          add("broadcast", DType::f32, program, {{4, 9}, {9}, {4, 1}});
          add("no elements", DType::f32, program, {{0, 9}, {9}, {1, 1}});
          add("rank 0", DType::f32, program, {{}, {}, {}});
          for (DType d : ops::kFloats) add("numbers of " + std::string(name(d)), d, program, {{4, 9}, {9}, {4, 1}});
          for (DType d : kAllDTypes) add(std::string(name(d)), d, choice, {{4, 9}, {4, 9}});
          return cases;
        },
};

}  // namespace graven::ir
