#include "ir/ops/recurrent_shared.h"

namespace graven::ir {

static void infer_rnn_backward(InferContext& c) {
  const ops::RecurrentSizes s = ops::recurrent_sizes(c, 2, "y", 1, 3, 1);
  const DType dtype = c.input(2).dtype;
  ops::require_whole_state(c, s, dtype);
  ops::require_shape(c, 0, "dy", dtype, s.all(s.state));
  ops::require_shape(c, 1, "dh_n", dtype, s.one(s.state));
  ops::require_shape(c, 4, "h0", dtype, s.one(s.state));
  ops::require_lengths(c, s, 5);
  c.output(dtype, s.all(s.hidden));
  c.output(dtype, s.one(s.state));
  c.output(dtype, s.all(s.state));
}

const OpDef kRnnBackward{
    .name = "rnn_backward",
    .doc =
        "The gradients of rnn through all steps: dx, which is also that of weight_hh h + bias_hh; dh0; and `before`, h "
        "before each step. So the "
        "gradients of weight_hh and bias_hh are linear_backward_weight of dx and `before`.",
    .inputs = {{.name = "dy", .optional = true},
               {.name = "dh_n", .optional = true},
               {"y"},
               {"weight_hh"},
               {.name = "h0", .optional = true},
               ops::lengths_input()},
    .attributes = {ops::reverse_attribute(), ops::relu_attribute()},
    .outputs = {"dx", "dh0", "before"},
    .infer = infer_rnn_backward,
    .cost = [](const NodeView& node) { return ops::recurrent_cost(ops::rnn_backward_sizes(node)); },
    .amp = AmpClass::white,
    .forms = {{.shapes = {{2, 3, 2}, {3, 2}, {2, 3, 2}, {2, 2}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const ops::RecurrentCase& r : ops::recurrent_cases())
            for (const bool relu : {false, true}) {
              const std::int64_t n = r.hidden;
              const auto state = [&](const Shape& shape) {
                return r.states ? ops::random(r.dtype, shape) : ops::absent();
              };
              const Shape all{r.steps, r.batch, n};
              cases.push_back({.note = r.note + (relu ? ", relu" : ""),
                               .inputs = {ops::random(r.dtype, all), state({r.batch, n}), ops::random(r.dtype, all),
                                          ops::random(r.dtype, {n, n}, -0.5, 0.5), state({r.batch, n}), r.lengths_of()},
                               .attributes = {{"reverse", r.reverse}, {"relu", relu}},
                               .gradient = false});
            }
          return cases;
        },
};

}  // namespace graven::ir
