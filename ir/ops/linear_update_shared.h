// What the operators share that update a linear layer's weight as its gradient is computed: the parameter and its
// state, then dy, x, the learning rate and the step; db is the result.
#pragma once

#include "ir/ops/linear_shared.h"
#include "ir/ops/optimizer_shared.h"

namespace graven::ir::ops {

/// The optimizer's attributes, and which of the weight's taps has the gradient.
inline std::vector<AttributeSpec> linear_update_attributes(std::vector<AttributeSpec> of_optimizer) {
  return join(
      std::move(of_optimizer),
      {{"taps", AttributeType::integer, std::int64_t{1}, "the parameter has so many elements for each of dw's"},
       {"tap", AttributeType::integer, std::int64_t{0}, "which of these dw belongs to; the others' gradients are 0"}});
}

/// Most taps: a kernel has room on its stack for the gradients of one element of dw.
inline constexpr std::int64_t kMostTaps = 1024;

/// `states` inputs of the parameter's type stand behind it; the last one only where `last` says so.
inline void infer_linear_update(InferContext& c, std::size_t states, bool last) {
  const std::size_t dy = states + 1, x = states + 2, lr = states + 3, step = states + 4;
  require_floating(c, 0);
  require_same_dtype(c, 0, dy);
  require_same_dtype(c, 0, x);
  c.require(!c.input(dy).shape.empty() && !c.input(x).shape.empty() &&
                rows_of(c.input(dy).shape) == rows_of(c.input(x).shape),
            [&] {
              return "dy and x must have the same rows, got " + c.input(dy).to_string() + " and " +
                     c.input(x).to_string();
            });
  const std::int64_t n = fixed(c.input(dy).shape.back(), "the last dimension of dy"),
                     k = fixed(c.input(x).shape.back(), "the last dimension of x");
  const std::int64_t taps = c.attributes.integer("taps"), tap = c.attributes.integer("tap");
  c.require(taps >= 1 && taps <= kMostTaps && tap >= 0 && tap < taps, [&] {
    return "'taps' must be from 1 to " + std::to_string(kMostTaps) + " and 'tap' less, got " + std::to_string(taps) +
           " and " + std::to_string(tap);
  });
  const TensorType weight = c.input(0);
  for (std::size_t i = 0; i <= states; ++i) {
    if (i == states && states > 0 && !last) {
      c.require(!c.has_input(i), "is given state that its options do not use");
      continue;
    }
    c.require(c.has_input(i), "the parameter's state is missing");
    c.require(c.input(i) == weight, [&] {
      return "the parameter's state must be " + weight.to_string() + ", got " + c.input(i).to_string();
    });
  }
  c.require(!weight.shape.empty() && weight.shape[0] == n && weight.shape.numel() == Dim(n) * Dim(k) * Dim(taps), [&] {
    return "the parameter must have " + std::to_string(n) + " rows of " + std::to_string(k) + " x " +
           std::to_string(taps) + " elements, got " + weight.to_string();
  });
  c.require(c.input(lr) == TensorType{DType::f64, {}},
            [&] { return "lr must be f64[], got " + c.input(lr).to_string(); });
  c.require(c.input(step) == TensorType{DType::i64, {}},
            [&] { return "step must be i64[], got " + c.input(step).to_string(); });
  c.output(weight.dtype, {n});
}

/// m, n, k and the taps, then the options of the optimizer's own call.
inline KernelCall linear_update_call(const NodeView& node, std::string name, std::size_t states,
                                     std::vector<std::pair<std::string, ConfigField>> options) {
  KernelCall call{.name = name, .file = "linear_update", .config_type = name + "_config"};
  const Shape &dy = node.input(states + 1).shape, &x = node.input(states + 2).shape;
  call.config = {{"m", rows_of(dy)},
                 {"n", dy.back()},
                 {"k", x.back()},
                 {"taps", Dim(node.attributes().integer("taps"))},
                 {"tap", Dim(node.attributes().integer("tap"))}};
  for (auto& option : options) call.config.push_back(std::move(option));
  call.reference = node.input(0).dtype != DType::f32;
  return call;
}

/// The product, and `per_element` operations of the update; the gradient is neither written nor read.
inline Cost linear_update_cost(const NodeView& node, std::size_t states, double per_element) {
  const double elements = static_cast<double>(node.input(0).shape.numel().maximum());
  const double of_product = elements / static_cast<double>(node.attributes().integer("taps"));
  Cost cost{.flops = of_product * 2.0 * static_cast<double>(rows_of(node.input(states + 1).shape).maximum()) +
                     elements * per_element,
            .bytes = 0};
  for (std::size_t i = 0; i < node.input_count(); ++i)
    if (node.has_input(i))
      cost.bytes += static_cast<double>(node.input(i).shape.numel().maximum()) *
                    static_cast<double>(size_of(node.input(i).dtype)) * (node.node.op->inputs[i].mutated() ? 2 : 1);
  cost.bytes +=
      static_cast<double>(node.output().shape.numel().maximum()) * static_cast<double>(size_of(node.output().dtype));
  return cost;
}

/// Batches, columns of dy and of x; the last of `states` states where `last` says so.
inline void add_linear_update_cases(std::vector<TestCase>& cases, const std::string& note, DType dtype,
                                    std::int64_t step, std::size_t states, bool last, const Attributes& attributes,
                                    Shape dy, Shape x) {
  TestCase c{.note = note, .attributes = attributes, .gradient = false};
  Shape weight{dy.back(), x.back()};
  if (const Attribute* taps = attributes.find("taps"))
    weight = Shape{dy.back(), x.back(), 1, std::get<std::int64_t>(*taps)};
  for (std::size_t i = 0; i <= states; ++i)
    c.inputs.push_back(i == states && states > 0 && !last ? absent() : random(dtype, weight, 0, 1));
  c.inputs.push_back(random(dtype, std::move(dy)));
  c.inputs.push_back(random(dtype, std::move(x)));
  c.inputs.push_back(random(DType::f64, {}, 0.1, 0.2));
  c.inputs.push_back(random(DType::i64, {}, static_cast<double>(step), static_cast<double>(step) + 1));
  cases.push_back(std::move(c));
}

}  // namespace graven::ir::ops
