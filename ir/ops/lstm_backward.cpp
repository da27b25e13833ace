#include "ir/ops/recurrent_shared.h"

namespace graven::ir {

static void infer_lstm_backward(InferContext& c) {
  const ops::RecurrentSizes s = ops::recurrent_sizes(c, 4, "cells", 1, 6, 4);
  const DType dtype = c.input(4).dtype;
  ops::require_projected_state(c, s, 9, dtype);
  ops::require_shape(c, 0, "dy", dtype, s.all(s.state));
  ops::require_shape(c, 1, "dh_n", dtype, s.one(s.state));
  ops::require_shape(c, 2, "dc_n", dtype, s.one(s.hidden));
  ops::require_shape(c, 3, "y", dtype, s.all(s.state));
  ops::require_shape(c, 5, "gates", dtype, s.all(4 * s.hidden));
  ops::require_shape(c, 7, "h0", dtype, s.one(s.state));
  ops::require_shape(c, 8, "c0", dtype, s.one(s.hidden));
  ops::require_lengths(c, s, 10);
  c.output(dtype, s.all(4 * s.hidden));
  c.output(dtype, s.one(s.state));
  c.output(dtype, s.one(s.hidden));
  c.output(dtype, s.all(s.state));
  c.output(dtype, s.all(s.state));
}

const OpDef kLstmBackward{
    .name = "lstm_backward",
    .doc =
        "The gradients of lstm through all steps: dx, which is also that of weight_hh h + bias_hh; dh0, dc0; `before`, "
        "h before each step; and dh, "
        "h's "
        "own gradient in each step. So the gradients of weight_hh and bias_hh are linear_backward_weight of dx and "
        "`before`, that of weight_hr is "
        "linear_backward_weight of dh and o tanh(c).",
    .inputs = {{.name = "dy", .optional = true},
               {.name = "dh_n", .optional = true},
               {.name = "dc_n", .optional = true},
               {"y"},
               {"cells"},
               {"gates"},
               {"weight_hh"},
               {.name = "h0", .optional = true},
               {.name = "c0", .optional = true},
               {.name = "weight_hr", .optional = true},
               ops::lengths_input()},
    .attributes = {ops::reverse_attribute()},
    .outputs = {"dx", "dh0", "dc0", "before", "dh"},
    .infer = infer_lstm_backward,
    .cost = [](const NodeView& node) { return ops::recurrent_cost(ops::lstm_backward_sizes(node)); },
    .amp = AmpClass::white,
    .forms = {{.shapes = {{2, 3, 2}, {3, 2}, {3, 2}, {2, 3, 2}, {2, 3, 2}, {2, 3, 8}, {8, 2}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const ops::RecurrentCase& r : ops::recurrent_cases())
            for (const bool projects : {false, true}) {
              const std::int64_t n = r.hidden, state = projects ? n / 2 : n;
              if (state == 0) continue;
              const auto given = [&](const Shape& shape) {
                return r.states ? ops::random(r.dtype, shape) : ops::absent();
              };
              const Shape all{r.steps, r.batch, state};
              cases.push_back(
                  {.note = r.note + (projects ? ", projected" : ""),
                   .inputs = {ops::random(r.dtype, all), given({r.batch, state}), given({r.batch, n}),
                              ops::random(r.dtype, all), ops::random(r.dtype, {r.steps, r.batch, n}),
                              ops::random(r.dtype, {r.steps, r.batch, 4 * n}),
                              ops::random(r.dtype, {4 * n, state}, -0.5, 0.5), given({r.batch, state}),
                              given({r.batch, n}),
                              projects ? ops::random(r.dtype, {state, n}, -0.5, 0.5) : ops::absent(), r.lengths_of()},
                   .attributes = {{"reverse", r.reverse}},
                   .gradient = false});
            }
          return cases;
        },
};

}  // namespace graven::ir
