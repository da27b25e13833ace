#include "ir/ops/recurrent_shared.h"

namespace graven::ir {

static void infer_gru_backward(InferContext& c) {
  const ops::RecurrentSizes s = ops::recurrent_sizes(c, 2, "y", 1, 4, 3);
  const DType dtype = c.input(2).dtype;
  ops::require_whole_state(c, s, dtype);
  ops::require_shape(c, 0, "dy", dtype, s.all(s.state));
  ops::require_shape(c, 1, "dh_n", dtype, s.one(s.state));
  ops::require_shape(c, 3, "gates", dtype, s.all(4 * s.hidden));
  ops::require_shape(c, 5, "h0", dtype, s.one(s.state));
  ops::require_lengths(c, s, 6);
  c.output(dtype, s.all(3 * s.hidden));
  c.output(dtype, s.all(3 * s.hidden));
  c.output(dtype, s.one(s.state));
  c.output(dtype, s.all(s.state));
}

const OpDef kGruBackward{
    .name = "gru_backward",
    .doc =
        "The gradients of gru through all steps: dsums, that of weight_hh h + bias_hh; dx, which differs from it by "
        "what r does to m; dh0; and "
        "`before`, h before each step. So the gradients of weight_hh and bias_hh are linear_backward_weight of dsums "
        "and `before`.",
    .inputs = {{.name = "dy", .optional = true},
               {.name = "dh_n", .optional = true},
               {"y"},
               {"gates"},
               {"weight_hh"},
               {.name = "h0", .optional = true},
               ops::lengths_input()},
    .attributes = {ops::reverse_attribute()},
    .outputs = {"dsums", "dx", "dh0", "before"},
    .infer = infer_gru_backward,
    .cost = [](const NodeView& node) { return ops::recurrent_cost(ops::gru_backward_sizes(node)); },
    .amp = AmpClass::white,
    .forms = {{.shapes = {{2, 3, 2}, {3, 2}, {2, 3, 2}, {2, 3, 8}, {6, 2}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const ops::RecurrentCase& r : ops::recurrent_cases()) {
            const std::int64_t n = r.hidden;
            const auto state = [&](const Shape& shape) {
              return r.states ? ops::random(r.dtype, shape) : ops::absent();
            };
            const Shape all{r.steps, r.batch, n};
            cases.push_back(
                {.note = r.note,
                 .inputs = {ops::random(r.dtype, all), state({r.batch, n}), ops::random(r.dtype, all),
                            ops::random(r.dtype, {r.steps, r.batch, 4 * n}),
                            ops::random(r.dtype, {3 * n, n}, -0.5, 0.5), state({r.batch, n}), r.lengths_of()},
                 .attributes = {{"reverse", r.reverse}},
                 .gradient = false});
          }
          return cases;
        },
};

}  // namespace graven::ir
