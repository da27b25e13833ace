// What the update operators share: parallel lists of parameters, gradients and state, then the learning rate and the
// step.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/ops/shared.h"

namespace graven::ir::ops {

inline void require_unit_interval(const InferContext& c, std::initializer_list<const char*> attributes) {
  for (const char* key : attributes)
    c.require(c.attributes.number(key) >= 0 && c.attributes.number(key) < 1,
              std::string("'") + key + "' must lie in [0, 1), got " + text_of(c.attributes.number(key)));
}

/// What stands behind the groups of inputs: the learning rate (f64 scalar) and, where the formula has it, the step (i64
/// scalar, from 1).
enum class Scalars : std::uint8_t { rate = 1, rate_and_step = 2 };

/// Checks the groups of inputs, each as long as the first and of its types; an empty name stands for a group that must
/// be absent.
inline void check_optimizer(const InferContext& c, const std::vector<std::string_view>& groups,
                            Scalars scalars = Scalars::rate_and_step) {
  const std::size_t singles = static_cast<std::size_t>(scalars), count = (c.input_count() - singles) / groups.size();
  for (std::size_t group = 0; group < groups.size(); ++group)
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = group * count + i;
      if (groups[group].empty()) {
        c.require(!c.has_input(at), "is given state that its options do not use");
        continue;
      }
      const std::string which = std::string(groups[group]) + "[" + std::to_string(i) + "]";
      c.require(c.has_input(at), which + " is missing");
      if (group == 0)
        require_floating(c, at);
      else
        c.require(c.input(at) == c.input(i),
                  which + " must be " + c.input(i).to_string() + " like its parameter, got " + c.input(at).to_string());
      c.require(c.input(at).dtype == c.input(0).dtype, "parameters of different dtypes need different updates");
    }
  const auto check_single = [&](std::size_t i, const char* name, const TensorType& type) {
    c.require(c.input(i) == type,
              std::string(name) + " must be " + type.to_string() + ", got " + c.input(i).to_string());
  };
  check_single(c.input_count() - singles, "lr", {DType::f64, {}});
  if (scalars == Scalars::rate_and_step) check_single(c.input_count() - 1, "step", {DType::i64, {}});
}

// ---- options that updates share with the operators that compute the gradient as well (linear_update_shared.h) ----

inline std::vector<AttributeSpec> sgd_attributes() {
  return {{"momentum", AttributeType::number, 0.0, "decay of the momentum buffers; 0: none, they are absent"},
          {"dampening", AttributeType::number, 0.0, "of the gradient that enters the momentum, from step 2 on"},
          {"weight_decay", AttributeType::number, 0.0, "L2 penalty"},
          {"nesterov", AttributeType::boolean, false, "look ahead"},
          {"maximize", AttributeType::boolean, false, "climb instead"}};
}
/// The fields of sgd_config.
inline std::vector<std::pair<std::string, ConfigField>> sgd_options(const Attributes& a) {
  return {{"momentum", a.number("momentum")},
          {"dampening", a.number("dampening")},
          {"weight_decay", a.number("weight_decay")},
          {"nesterov", a.flag("nesterov")},
          {"maximize", a.flag("maximize")}};
}

inline std::vector<AttributeSpec> adam_attributes() {
  return {{"beta1", AttributeType::number, 0.9, "decay of the mean of gradients"},
          {"beta2", AttributeType::number, 0.999, "decay of the mean of squared gradients"},
          {"eps", AttributeType::number, 1e-8, "added to the root"},
          {"weight_decay", AttributeType::number, 0.0, "L2 penalty, or decay when decoupled"},
          {"decoupled", AttributeType::boolean, false, "AdamW"},
          {"amsgrad", AttributeType::boolean, false, "divide by the largest v so far (Reddi et al. 2018)"},
          {"maximize", AttributeType::boolean, false, "climb instead"},
          {"do_bias_correction", AttributeType::boolean, true, "divide the means by 1 - beta^step"}};
}
/// The fields of adam_config.
inline std::vector<std::pair<std::string, ConfigField>> adam_options(const Attributes& a) {
  return {{"beta1", a.number("beta1")},       {"beta2", a.number("beta2")},
          {"eps", a.number("eps")},           {"weight_decay", a.number("weight_decay")},
          {"decoupled", a.flag("decoupled")}, {"amsgrad", a.flag("amsgrad")},
          {"maximize", a.flag("maximize")},   {"do_bias_correction", a.flag("do_bias_correction")}};
}

inline bool parameters_f32(const NodeView& node) {
  return input_range(*node.node.op, node.input_count(), 0).count == 0 || node.input(0).dtype == DType::f32;
}

/// `per_element` operations; parameters and state are read and written, gradients read.
inline Cost optimizer_cost(const NodeView& node, double per_element) {
  Cost cost{.flops = 0, .bytes = 0};
  for (std::size_t spec = 0; spec < node.node.op->inputs.size(); ++spec) {
    if (!node.node.op->inputs[spec].variadic) continue;
    const InputRange range = input_range(*node.node.op, node.input_count(), spec);
    for (std::size_t i = range.begin; i < range.begin + range.count; ++i) {
      if (!node.has_input(i)) continue;
      const TensorType& t = node.input(i);
      const double n = static_cast<double>(t.shape.numel().maximum());
      cost.bytes += n * static_cast<double>(size_of(t.dtype)) * (node.node.op->inputs[spec].mutated() ? 2 : 1);
      if (spec == 0) cost.flops += per_element * n;
    }
  }
  return cost;
}

/// Three tensors in each group that is present, values in [0, 1) (averages of squares are not negative), a learning
/// rate, the step where the operator has one.
inline TestCase optimizer_case(std::string note, DType dtype, std::optional<std::int64_t> step,
                               const std::vector<bool>& groups, Attributes attributes) {
  TestCase c{.note = std::move(note), .attributes = std::move(attributes), .gradient = false};
  for (const bool present : groups)
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{37}, Shape{0, 4}, Shape{1}})
      c.inputs.push_back(present ? random(dtype, shape, 0, 1) : absent());
  c.inputs.push_back(random(DType::f64, {}, 0.1, 0.2));
  if (step) c.inputs.push_back(random(DType::i64, {}, static_cast<double>(*step), static_cast<double>(*step) + 1));
  return c;
}

}  // namespace graven::ir::ops
