#include "ir/ops/recurrent_shared.h"

namespace graven::ir {

static void infer_rnn(InferContext& c) {
  const ops::RecurrentSizes s = ops::recurrent_sizes(c, 0, "x", 1, 1, 1);
  const DType dtype = c.input(0).dtype;
  ops::require_whole_state(c, s, dtype);
  ops::require_shape(c, 2, "bias_hh", dtype, {s.hidden});
  ops::require_shape(c, 3, "h0", dtype, s.one(s.state));
  ops::require_lengths(c, s, 4);
  c.output(dtype, s.all(s.state));
  c.output(dtype, s.one(s.state));
}

static void gradient_rnn(GradientBuilder& g) {
  const ValueId dy = g.output_gradient(0), dh_n = g.output_gradient(1);
  if (dy == kNone && dh_n == kNone) return;
  const std::vector<ValueId> grads = g.call_many(
      "rnn_backward",
      {dy, dh_n, g.output(0), g.input(1), g.has_input(3) ? g.input(3) : kNone, g.has_input(4) ? g.input(4) : kNone},
      g.attributes());
  if (g.needs(0)) g.set(0, grads[0]);
  ops::set_recurrent_weights(g, grads[0], grads[2]);
  if (g.has_input(3) && g.needs(3)) g.set(3, grads[1]);
}

const OpDef kRnn{
    .name = "rnn",
    .doc =
        "One layer of a recurrent network in one direction: h = tanh(x + weight_hh h + bias_hh), or relu, for each "
        "step of x[steps, batch, hidden], "
        "which is W_ih of the layer's input + b_ih. y[steps, batch, hidden] is h after each step, h_n[batch, hidden] "
        "the last; it starts as h0, or "
        "as "
        "0 (Elman 1990; PyTorch's RNN)." GRAVEN_RECURRENT_LENGTHS,
    .inputs = {{"x"},
               {"weight_hh"},
               {.name = "bias_hh", .optional = true},
               {.name = "h0", .optional = true},
               ops::lengths_input()},
    .attributes = {ops::reverse_attribute(), ops::relu_attribute()},
    .outputs = {"y", "h_n"},
    .infer = infer_rnn,
    .gradient = gradient_rnn,
    .gradient_outputs = 2,
    .cost = [](const NodeView& node) { return ops::recurrent_cost(ops::rnn_sizes(node)); },
    .amp = AmpClass::white,
    .forms = {{.shapes = {{2, 3, 2}, {2, 2}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const ops::RecurrentCase& r : ops::recurrent_cases())
            for (const bool relu : {false, true}) {
              const std::int64_t n = r.hidden;
              const auto state = [&](const Shape& shape) {
                return r.states ? ops::random(r.dtype, shape) : ops::absent();
              };
              cases.push_back(
                  {.note = r.note + (relu ? ", relu" : ""),
                   .inputs = {ops::random(r.dtype, {r.steps, r.batch, n}), ops::random(r.dtype, {n, n}, -0.5, 0.5),
                              state({n}), state({r.batch, n}), r.lengths_of()},
                   .attributes = {{"reverse", r.reverse}, {"relu", relu}}});
            }
          return cases;
        },
};

}  // namespace graven::ir
