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
  return {.flops =
              static_cast<double>(node.output().shape.numel().maximum()) * static_cast<double>(node.attributes().program("program").steps.size())};
}

extern const OpDef kFusedElementwise;
const OpDef kFusedElementwise{
    .name = "fused_elementwise",
    .doc = "y = program(xs...): a chain of elementwise operators in one pass over memory, inputs broadcast as in NumPy. Made by the fusion pass.",
    .inputs = {{.name = "xs", .variadic = true}},
    .attributes = {{"program", AttributeType::program, {}, "what is computed for each element"}},
    .infer = infer_fused_elementwise,
    .kernel = ops::elementwise_call,
    .cost = cost_fused_elementwise,
    .cases =
        [] {
          const ScalarProgram program{.inputs = 3,
                                      .steps = {{.op = "mul", .arguments = {0, 1}},
                                                {.op = "add", .arguments = {3, 2}},
                                                {.op = "clamp", .arguments = {4}, .constants = {{"min", -1.0}, {"max", 1.0}}},
                                                {.op = "tanh", .arguments = {5}}}};
          const ScalarProgram choice{.inputs = 2,
                                     .steps = {{.op = "ne", .arguments = {0, 1}, .dtype = DType::boolean}, {.op = "where", .arguments = {2, 0, 1}}}};
          return std::vector<TestCase>{{.note = "a choice, of any dtype",
                                        .inputs = {ops::random(DType::f32, {4, 9}), ops::random(DType::f32, {4, 9})},
                                        .attributes = {{"program", choice}},
                                        .gradient = false},
                                       {.note = "one shape",
                                        .inputs = {ops::random(DType::f32, {4, 9}), ops::random(DType::f32, {4, 9}), ops::random(DType::f32, {4, 9})},
                                        .attributes = {{"program", program}},
                                        .gradient = false},
                                       {.note = "broadcast",
                                        .inputs = {ops::random(DType::f32, {4, 9}), ops::random(DType::f32, {9}), ops::random(DType::f32, {4, 1})},
                                        .attributes = {{"program", program}},
                                        .gradient = false}};
        },
};

}  // namespace graven::ir
