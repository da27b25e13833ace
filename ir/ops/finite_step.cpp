#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_finite_step(InferContext& c) { c.output(DType::i64, {}); }

static Cost cost_of_finite_step(const NodeView& node) {
  double elements = 0;
  for (std::size_t i = 0; i < node.input_count(); ++i)
    if (node.has_input(i)) elements += static_cast<double>(node.input(i).shape.numel().maximum());
  return {.flops = elements};
}

const OpDef kFiniteStep{
    .name = "finite_step",
    .doc =
        "Which of an optimizer's steps this is: step - skipped, or 0 where an element of the tensors, its gradients, "
        "is "
        "infinite or NaN. An update of step 0 changes nothing. Each such step is counted: skipped becomes skipped + 1. "
        "torch.amp.GradScaler, whose found_inf it is.",
    .inputs = {{.name = "xs", .variadic = true},
               {"step", InputRole::step},
               {.name = "skipped", .role = InputRole::kept, .dtype = DType::i64}},
    .attributes = {{"over_ranks", AttributeType::boolean, false, "each rank has its shards of the tensors alone"}},
    .infer = infer_finite_step,
    .cost = cost_of_finite_step,
    .amp = AmpClass::black,
    .forms = {{.shapes = {{4, 4}, {}, {}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, double most) {
            TestCase c{.note = std::move(note), .gradient = false};
            for (const Shape& shape : {Shape{1, 5}, Shape{}, Shape{37}, Shape{0, 4}, Shape{2, 19, 700}})
              c.inputs.push_back(ops::random(d, shape, -most, most));
            c.inputs.push_back(ops::random(DType::i64, {}, 9, 20));
            c.inputs.push_back(ops::random(DType::i64, {}, 1, 5));
            cases.push_back(std::move(c));
          };
          for (const DType d : {DType::f32, DType::f64, DType::f16, DType::bf16}) add(std::string(name(d)), d, 1);
          return cases;
        },
};

}  // namespace graven::ir
