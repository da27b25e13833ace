#include "codegen/lowering/families.h"

namespace graven::codegen::lowering {

namespace {

/// The config fields {outer, size, inner}.
std::vector<std::pair<std::string, ConfigField>> span_fields(const ops::Span3& span) {
  return {{"outer", span.outer}, {"size", span.size}, {"inner", span.inner}};
}

/// Over the attribute 'dims' (or 'dim'). The pass decompose_reductions has seen to it that they lie side by side.
KernelCall reduce_call(const NodeView& node, std::string name) {
  const Shape& shape = node.input(0).shape;
  ops::Span3 span;
  if (node.attributes().find("dim")) {
    span = ops::around(shape, node.attributes().integer("dim"));
  } else if (const Ints& dims = node.attributes().integers("dims"); !dims.empty()) {
    GRAVEN_CHECK(ops::adjacent(shape, dims), "a reduction over separate dimensions reached lowering");
    const auto first = static_cast<std::size_t>(dims.front()), last = static_cast<std::size_t>(dims.back());
    span = {ops::product(shape, 0, first), ops::product(shape, first, last + 1),
            ops::product(shape, last + 1, shape.rank())};
  }
  return {.name = std::move(name), .file = "reduce", .config = span_fields(span)};
}

KernelCall amax(const NodeView& node) { return reduce_call(node, "reduce_max"); }
KernelCall amin(const NodeView& node) { return reduce_call(node, "reduce_min"); }
KernelCall argmax(const NodeView& node) { return reduce_call(node, "argmax"); }
KernelCall argmin(const NodeView& node) { return reduce_call(node, "argmin"); }
KernelCall mean(const NodeView& node) { return reduce_call(node, "reduce_mean"); }
KernelCall prod(const NodeView& node) { return reduce_call(node, "reduce_prod"); }
KernelCall sum(const NodeView& node) { return reduce_call(node, "reduce_sum"); }
KernelCall fused_reduction(const NodeView& node) {
  return reduce_call(node, "reduce_" + node.attributes().text("reduction"));
}

KernelCall softmax_call(const NodeView& node, std::string name) {
  return {.name = std::move(name),
          .file = "softmax",
          .config = span_fields(ops::around(node.input(0).shape, node.attributes().integer("dim"))),
          .in_place = {0}};
}

KernelCall causal_softmax_call(const NodeView& node, std::string name, bool masked_to_zero) {
  const Shape& shape = node.input(0).shape;
  return {.name = std::move(name),
          .file = "softmax",
          .config_type = "causal_softmax_config",
          .config = {{"matrices", ops::product(shape, 0, shape.rank() - 2)},
                     {"queries", shape.back(1)},
                     {"keys", shape.back(0)},
                     {"offset", Dim(node.attributes().integer("offset"))},
                     {"masked_to_zero", masked_to_zero}},
          .in_place = {0}};
}

KernelCall softmax(const NodeView& node) {
  const bool masked = node.attributes().flag("masked_to_zero");
  return node.attributes().flag("causal") ? causal_softmax_call(node, "causal_softmax", masked)
                                          : softmax_call(node, masked ? "masked_softmax" : "softmax");
}
KernelCall softmax_backward(const NodeView& node) {
  return node.attributes().flag("causal") ? causal_softmax_call(node, "causal_softmax_backward", false)
                                          : softmax_call(node, "softmax_backward");
}
KernelCall log_softmax(const NodeView& node) { return softmax_call(node, "log_softmax"); }
KernelCall log_softmax_backward(const NodeView& node) { return softmax_call(node, "log_softmax_backward"); }

/// Of cumsum, cumprod and its gradient, which are called as their operators are.
KernelCall scan(const NodeView& node) {
  auto fields = span_fields(ops::around(node.input(0).shape, node.attributes().integer("dim")));
  fields.emplace_back("reverse", node.attributes().flag_or("reverse", false));
  return {.name = std::string(node.node.op->name), .file = "scan", .config = std::move(fields)};
}

}  // namespace

std::span<const Row> reductions() {
  static constexpr Row kRows[] = {
      {&ir::kAmax, amax},
      {&ir::kAmin, amin},
      {&ir::kArgmax, argmax},
      {&ir::kArgmin, argmin},
      {&ir::kCumprod, scan},
      {&ir::kCumprodBackward, scan},
      {&ir::kCumsum, scan},
      {&ir::kFusedReduction, fused_reduction},
      {&ir::kLogSoftmax, log_softmax},
      {&ir::kLogSoftmaxBackward, log_softmax_backward},
      {&ir::kMean, mean},
      {&ir::kProd, prod},
      {&ir::kSoftmax, softmax},
      {&ir::kSoftmaxBackward, softmax_backward},
      {&ir::kSum, sum},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
