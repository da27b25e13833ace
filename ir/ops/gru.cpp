#include "ir/ops/recurrent_shared.h"

namespace graven::ir {

static void infer_gru(InferContext& c) {
  const ops::RecurrentSizes s = ops::recurrent_sizes(c, 0, "x", 3, 1, 3);
  const DType dtype = c.input(0).dtype;
  ops::require_whole_state(c, s, dtype);
  ops::require_shape(c, 2, "bias_hh", dtype, {3 * s.hidden});
  ops::require_shape(c, 3, "h0", dtype, s.one(s.state));
  ops::require_lengths(c, s, 4);
  c.output(dtype, s.all(s.state));
  c.output(dtype, s.one(s.state));
  c.output(dtype, s.all(4 * s.hidden));
}

static void gradient_gru(GradientBuilder& g) {
  const ValueId dy = g.output_gradient(0), dh_n = g.output_gradient(1);
  if (dy == kNone && dh_n == kNone) return;
  const std::vector<ValueId> grads =
      g.call_many("gru_backward",
                  {dy, dh_n, g.output(0), g.output(2), g.input(1), g.has_input(3) ? g.input(3) : kNone,
                   g.has_input(4) ? g.input(4) : kNone},
                  g.attributes());
  if (g.needs(0)) g.set(0, grads[1]);
  ops::set_recurrent_weights(g, grads[0], grads[3]);
  if (g.has_input(3) && g.needs(3)) g.set(3, grads[2]);
}

const OpDef kGru{
    .name = "gru",
    .doc =
        "One layer of gated recurrent units in one direction: r, z = sigmoid of their rows of x + weight_hh h + "
        "bias_hh, n = tanh(x_n + r m) with "
        "m = weight_hn h + bias_hn, h = n + z (h - n), for each step of x[steps, batch, 3 * hidden], which is W_ih of "
        "the layer's input + b_ih. "
        "y[steps, batch, hidden] is h after each step, h_n[batch, hidden] the last; it starts as h0, or as 0 (Cho et "
        "al. 2014; PyTorch's GRU). "
        "gates[steps, batch, 4 * hidden] are r, z, n and m, for the gradient; none flows through "
        "them." GRAVEN_RECURRENT_LENGTHS,
    .inputs = {{"x"},
               {"weight_hh"},
               {.name = "bias_hh", .optional = true},
               {.name = "h0", .optional = true},
               ops::lengths_input()},
    .attributes = {ops::reverse_attribute()},
    .outputs = {"y", "h_n", "gates"},
    .infer = infer_gru,
    .gradient = gradient_gru,
    .gradient_outputs = 2,
    .cost = [](const NodeView& node) { return ops::recurrent_cost(ops::gru_sizes(node)); },
    .amp = AmpClass::white,
    .forms = {{.shapes = {{2, 3, 6}, {6, 2}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const ops::RecurrentCase& r : ops::recurrent_cases()) {
            const std::int64_t n = r.hidden;
            const auto state = [&](const Shape& shape) {
              return r.states ? ops::random(r.dtype, shape) : ops::absent();
            };
            cases.push_back({.note = r.note,
                             .inputs = {ops::random(r.dtype, {r.steps, r.batch, 3 * n}),
                                        ops::random(r.dtype, {3 * n, n}, -0.5, 0.5), state({3 * n}),
                                        state({r.batch, n}), r.lengths_of()},
                             .attributes = {{"reverse", r.reverse}}});
          }
          return cases;
        },
};

}  // namespace graven::ir
