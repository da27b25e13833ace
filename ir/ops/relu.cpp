#include "ir/op.h"

namespace graven::ir {

static void infer_relu(InferContext& c) {
  c.require(c.input(0).dtype != DType::boolean, "expects numbers, got bool");
  c.output(c.input(0).dtype, c.input(0).shape);
}

static void gradient_relu(GradientBuilder& g) {
  // y > 0 where x > 0: keeping y lets the backward pass run in place and x die early.
  const ValueId zero = g.scalar(0, g.output());
  const ValueId positive = g.call("gt", {g.output(), zero});
  g.set(0, g.call("where", {positive, g.output_gradient(), zero}));
}

extern const OpDef kRelu;
const OpDef kRelu{
    .name = "relu",
    .doc = "y = max(x, 0). NaN stays NaN, as in PyTorch.",
    .inputs = {{"x"}},
    .infer = infer_relu,
    .gradient = gradient_relu,
    .scalar = {.body = "x < T(0) ? T(0) : x"},
    .cases =
        [] {
          return std::vector<TestCase>{
              {.note = "vector", .inputs = {{{DType::f32, {17}}}}},
              {.note = "rank 0", .inputs = {{{DType::f32, {}}}}},
              {.note = "empty", .inputs = {{{DType::f32, {0, 3}}}}},
              {.note = "integers", .inputs = {{{DType::i32, {5}}, -5, 5}}, .gradient = false},
          };
        },
};

}  // namespace graven::ir
