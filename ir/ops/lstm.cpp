#include "ir/ops/recurrent_shared.h"

namespace graven::ir {

static void infer_lstm(InferContext& c) {
  const ops::RecurrentSizes s = ops::recurrent_sizes(c, 0, "x", 4, 1, 4);
  const DType dtype = c.input(0).dtype;
  ops::require_projected_state(c, s, 5, dtype);
  ops::require_shape(c, 2, "bias_hh", dtype, {4 * s.hidden});
  ops::require_shape(c, 3, "h0", dtype, s.one(s.state));
  ops::require_shape(c, 4, "c0", dtype, s.one(s.hidden));
  ops::require_lengths(c, s, 6);
  c.output(dtype, s.all(s.state));
  c.output(dtype, s.one(s.state));
  c.output(dtype, s.one(s.hidden));
  c.output(dtype, s.all(s.hidden));
  c.output(dtype, s.all(4 * s.hidden));
}

static void gradient_lstm(GradientBuilder& g) {
  const ValueId dy = g.output_gradient(0), dh_n = g.output_gradient(1), dc_n = g.output_gradient(2);
  if (dy == kNone && dh_n == kNone && dc_n == kNone) return;
  const auto given = [&](std::size_t i) { return g.has_input(i) ? g.input(i) : kNone; };
  const std::vector<ValueId> grads = g.call_many(
      "lstm_backward",
      {dy, dh_n, dc_n, g.output(0), g.output(3), g.output(4), g.input(1), given(3), given(4), given(5), given(6)},
      g.attributes());
  if (g.needs(0)) g.set(0, grads[0]);
  ops::set_recurrent_weights(g, grads[0], grads[3]);
  if (g.has_input(3) && g.needs(3)) g.set(3, grads[1]);
  if (g.has_input(4) && g.needs(4)) g.set(4, grads[2]);
  if (g.has_input(5) && g.needs(5)) {
    // What is projected, anew: o tanh(c).
    const ops::Term gates(g, g.output(4)), cells(g, g.output(3));
    const std::int64_t hidden = g.type(g.output(3)).shape[2].value();
    const ops::Term o =
        gates.apply("slice", {}, {{"dim", std::int64_t{2}}, {"start", 3 * hidden}, {"end", 4 * hidden}});
    g.set(5, g.call_many("linear_backward_weight", {grads[4], o * cells.apply("tanh")})[0]);
  }
}

const OpDef kLstm{
    .name = "lstm",
    .doc =
        "One layer of long short-term memory in one direction: i, f, o = sigmoid and g = tanh of their rows of x + "
        "weight_hh h + bias_hh (i, f, g, "
        "o), "
        "c = f c + i g, h = o tanh(c), or weight_hr (o tanh(c)), for each step of x[steps, batch, 4 * hidden], which "
        "is W_ih of the layer's input + "
        "b_ih. y[steps, batch, state] is h after each step, h_n[batch, state] and c_n[batch, hidden] the last; they "
        "start as h0 and c0, or as 0 "
        "(Hochreiter and Schmidhuber 1997; Sak et al. 2014; PyTorch's LSTM). cells[steps, batch, hidden] is c after "
        "each step, gates[steps, batch, "
        "4 * hidden] are i, f, g and o, for the gradient; none flows through them." GRAVEN_RECURRENT_LENGTHS,
    .inputs = {{"x"},
               {"weight_hh"},
               {.name = "bias_hh", .optional = true},
               {.name = "h0", .optional = true},
               {.name = "c0", .optional = true},
               {.name = "weight_hr", .optional = true},
               ops::lengths_input()},
    .attributes = {ops::reverse_attribute()},
    .outputs = {"y", "h_n", "c_n", "cells", "gates"},
    .infer = infer_lstm,
    .gradient = gradient_lstm,
    .gradient_outputs = 3,
    .cost = [](const NodeView& node) { return ops::recurrent_cost(ops::lstm_sizes(node)); },
    .amp = AmpClass::white,
    .forms = {{.shapes = {{2, 3, 8}, {8, 2}}}},
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
              cases.push_back(
                  {.note = r.note + (projects ? ", projected" : ""),
                   .inputs = {ops::random(r.dtype, {r.steps, r.batch, 4 * n}),
                              ops::random(r.dtype, {4 * n, state}, -0.5, 0.5), given({4 * n}), given({r.batch, state}),
                              given({r.batch, n}),
                              projects ? ops::random(r.dtype, {state, n}, -0.5, 0.5) : ops::absent(), r.lengths_of()},
                   .attributes = {{"reverse", r.reverse}}});
            }
          return cases;
        },
};

}  // namespace graven::ir
