// Sums and means take what they add up as it is computed: an elementwise node of one or two tensors of one shape, read
// by the reduction alone, becomes the program of a `fused_reduction`.
//
//   sum(square(x))                          fused_reduction(x), program square
//   mean(fused_elementwise(x, y))           fused_reduction(x, y), the program of the fused node
//
// In f32, which is what the kernels do; a broadcast operand stays where it is.
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/passes/scalar_program.h"

namespace graven::ir {

namespace {

constexpr std::size_t kMostTensors = 2;

/// The program of an elementwise node that may be absorbed; empty if it may not.
ScalarProgram program_of(const Graph& graph, const Node& node) {
  const bool fused = node.is(kFusedElementwise);
  if ((!fused && !is_elementwise(node)) || node.inputs.empty() || node.inputs.size() > kMostTensors) return {};
  const TensorType& result = graph.type(node.outputs[0]);
  if (result.dtype != DType::f32) return {};
  for (const ValueId v : node.inputs)
    if (graph.type(v) != result) return {};
  if (fused) return node.attributes.program("program");
  ScalarProgram program{.inputs = static_cast<std::int32_t>(node.inputs.size()), .steps = {step_of(graph, node)}};
  for (std::int32_t i = 0; i < program.inputs; ++i) program.steps[0].arguments.push_back(i);
  return program;
}

}  // namespace

void fuse_reductions(Graph& graph, const PassOptions& options) {
  const Uses uses(graph);
  for (Node& node : graph.nodes) {
    if (!node.is(kSum, kMean) || graph.type(node.outputs[0]).dtype != DType::f32) continue;
    const Node* const maker = uses.maker(graph, node.inputs[0]);
    if (maker == nullptr || uses.only_reader(node.inputs[0]) < 0) continue;
    if (maker->phase != node.phase) continue;
    ScalarProgram program = program_of(graph, *maker);
    if (program.empty()) continue;
    node.attributes = {{"program", std::move(program)},
                       {"reduction", std::string(node.op->name)},
                       {"dims", node.attributes.at("dims")},
                       {"keepdim", node.attributes.at("keepdim")}};
    node.op = &kFusedReduction;
    node.inputs = maker->inputs;
    node.origins = merge(node.origins, maker->origins);
  }
  remove_dead_nodes(graph, options);
}

}  // namespace graven::ir
