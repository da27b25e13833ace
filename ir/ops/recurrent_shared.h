// What rnn, lstm, gru and their gradients share: sizes, checks, test cases.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/ops/shared.h"

namespace graven::ir::ops {

struct RecurrentSizes {
  Dim steps = 1, batch = 1;
  std::int64_t gates = 1, hidden = 1, state = 1;
  Shape all(std::int64_t numbers) const { return {steps, batch, numbers}; }  ///< of every step
  Shape one(std::int64_t numbers) const { return {batch, numbers}; }         ///< of one
};

/// From a tensor[steps, batch, `parts` * hidden] and weight_hh[gates * hidden, state], which are checked.
inline RecurrentSizes recurrent_sizes(const InferContext& c, std::size_t tensor, std::string_view what,
                                      std::int64_t parts, std::size_t weight, std::int64_t gates) {
  require_rank(c, tensor, 3, what);
  require_rank(c, weight, 2, "weight_hh");
  const Shape &x = c.input(tensor).shape, &w = c.input(weight).shape;
  const std::int64_t numbers = fixed(x[2], "the last dimension of " + std::string(what)),
                     rows = fixed(w[0], "weight_hh's first dimension");
  c.require(rows > 0 && rows % gates == 0, [&] {
    return "weight_hh must have rows" +
           (gates > 1 ? " for each of " + std::to_string(gates) + " gates" : std::string()) + ", got " +
           c.input(weight).to_string();
  });
  c.require(numbers == rows / gates * parts, [&] {
    return std::string(what) + " must have " + std::to_string(rows / gates * parts) +
           " numbers a step for weight_hh, " + c.input(weight).to_string() + ", got " + c.input(tensor).to_string();
  });
  const RecurrentSizes s{x[0], x[1], gates, rows / gates, fixed(w[1], "weight_hh's last dimension")};
  c.require(s.steps != Dim(0), [&] { return "expects at least one step, got " + c.input(tensor).to_string(); });
  return s;
}

/// Input `i`, if it is there, must be this.
inline void require_shape(const InferContext& c, std::size_t i, std::string_view what, DType dtype,
                          const Shape& shape) {
  if (!c.has_input(i)) return;
  c.require(c.input(i) == TensorType{dtype, shape}, [&] {
    return std::string(what) + " must be " + describe(dtype, shape) + ", got " + c.input(i).to_string();
  });
}
/// The last input, if it is there: how many steps each sequence has.
inline void require_lengths(const InferContext& c, const RecurrentSizes& s, std::size_t i) {
  require_shape(c, i, "lengths", DType::i64, {s.batch});
}
/// h has `hidden` numbers.
inline void require_whole_state(const InferContext& c, const RecurrentSizes& s, DType dtype) {
  c.require(s.state == s.hidden, [&] {
    return "weight_hh must be " + describe(dtype, {s.gates * s.hidden, s.hidden}) + ", got " +
           describe(dtype, {s.gates * s.hidden, s.state});
  });
}
/// h has `hidden` numbers, or, where weight_hr[state, hidden] is input `i`, fewer.
inline void require_projected_state(const InferContext& c, const RecurrentSizes& s, std::size_t i, DType dtype) {
  if (!c.has_input(i)) return require_whole_state(c, s, dtype);
  c.require(s.state > 0 && s.state < s.hidden, [&] {
    return "a projection must make h smaller than c, got " + std::to_string(s.state) + " and " +
           std::to_string(s.hidden);
  });
  require_shape(c, i, "weight_hr", dtype, {s.state, s.hidden});
}

/// Of a node that has passed inference: the input that has numbers for each step, and weight_hh.
inline RecurrentSizes recurrent_sizes(const NodeView& node, std::size_t tensor, std::size_t weight_hh,
                                      std::int64_t gates) {
  const Shape &x = node.input(tensor).shape, &w = node.input(weight_hh).shape;
  return {x[0], x[1], gates, w[0].value() / gates, w[1].value()};
}
inline RecurrentSizes rnn_sizes(const NodeView& node) { return recurrent_sizes(node, 0, 1, 1); }
inline RecurrentSizes rnn_backward_sizes(const NodeView& node) { return recurrent_sizes(node, 2, 3, 1); }
inline RecurrentSizes gru_sizes(const NodeView& node) { return recurrent_sizes(node, 0, 1, 3); }
inline RecurrentSizes gru_backward_sizes(const NodeView& node) { return recurrent_sizes(node, 2, 4, 3); }
inline RecurrentSizes lstm_sizes(const NodeView& node) { return recurrent_sizes(node, 0, 1, 4); }
inline RecurrentSizes lstm_backward_sizes(const NodeView& node) { return recurrent_sizes(node, 4, 6, 4); }

inline Cost recurrent_cost(const RecurrentSizes& s) {
  const double rows = static_cast<double>(s.steps.maximum()) * static_cast<double>(s.batch.maximum());
  const double products =
      static_cast<double>(s.gates * s.hidden * s.state + (s.state == s.hidden ? 0 : s.state * s.hidden));
  return {.flops = rows * (2 * products + 10 * static_cast<double>(s.hidden))};
}

inline AttributeSpec reverse_attribute() {
  return {"reverse", AttributeType::boolean, false, "from the last step to the first"};
}
inline AttributeSpec relu_attribute() { return {"relu", AttributeType::boolean, false, "instead of tanh"}; }

inline InputSpec lengths_input() { return {.name = "lengths", .dtype = DType::i64, .optional = true}; }
/// What is said of them in the documentation of each of these operators.
#define GRAVEN_RECURRENT_LENGTHS                                                                                      \
  " lengths[batch], 1 to steps each, an error when it runs otherwise: a sequence has so many steps, from either end " \
  "backwards or forwards; in those behind them y is 0 and states stay what they were (PyTorch's packed sequences)."

/// Sets the gradients of weight_hh (input 1) and bias_hh (input 2): those of a linear layer whose input is h before
/// each step.
inline void set_recurrent_weights(GradientBuilder& g, ValueId dsums, ValueId before) {
  const bool bias = g.has_input(2) && g.needs(2);
  if (!g.needs(1) && !bias) return;
  const std::vector<ValueId> grads = g.call_many("linear_backward_weight", {dsums, before});
  g.set(1, grads[0]);
  if (bias) g.set(2, grads[1]);
}

/// Sizes of test cases: by threads through all steps, by columns, ragged, alone.
struct RecurrentCase {
  std::string note;
  DType dtype;
  std::int64_t steps, batch, hidden;
  bool reverse = false, states = true, lengths = false;
  /// Of the operators' last input; in [1, steps].
  TestCase::Input lengths_of() const {
    return lengths ? random(DType::i64, {batch}, 1, static_cast<double>(steps + 1)) : absent();
  }
};
inline std::vector<RecurrentCase> recurrent_cases() {
  std::vector<RecurrentCase> cases{
      {"plain", DType::f32, 4, 3, 5},
      {"reverse", DType::f32, 4, 3, 5, true},
      {"without states", DType::f32, 3, 2, 16, false, false},
      {"one step", DType::f32, 1, 2, 4},
      {"one step in reverse without states", DType::f32, 1, 2, 4, true, false},
      {"one sequence", DType::f32, 5, 1, 6},
      {"one unit", DType::f32, 3, 2, 1},
      {"17 units", DType::f32, 3, 2, 17, true},
      {"many sequences", DType::f32, 3, 37, 20},
      {"many units", DType::f32, 2, 3, 130},
      {"no sequences", DType::f32, 2, 0, 3},
      {"lengths", DType::f32, 5, 4, 5, false, true, true},
      {"lengths in reverse", DType::f32, 5, 4, 5, true, true, true},
      {"lengths without states", DType::f32, 6, 3, 18, true, false, true},
      {"lengths of many sequences", DType::f32, 4, 37, 20, true, true, true},
  };
  for (DType d : kFloats) cases.push_back({std::string(name(d)), d, 3, 2, 3});
  return cases;
}

}  // namespace graven::ir::ops
