#include "codegen/lowering/families.h"
#include "ir/ops/batch_norm_shared.h"

namespace graven::codegen::lowering {

namespace {

/// Of several ranks: "sync_batch_norm".
std::string training_name(const NodeView& node, std::string name) {
  return node.attributes().flag("over_ranks") ? "sync_" + name : name;
}

KernelCall batch_norm_call(const NodeView& node, std::string name, const Shape& x) {
  const std::size_t c = ops::channel_dim(x, node.attributes().flag("channels_last"));
  const Attribute* momentum = node.attributes().find("momentum");
  const bool over_ranks = node.attributes().flag_or("over_ranks", false);
  return {.name = std::move(name),
          .file = over_ranks ? "sync_batch_norm" : "batch_norm",
          .config = {{"outer", ops::product(x, 0, c)},
                     {"channels", x[c]},
                     {"inner", ops::product(x, c + 1, x.rank())},
                     {"eps", node.attributes().number("eps")},
                     {"momentum", momentum ? std::get<double>(*momentum) : 0.1}}};
}

KernelCall batch_norm(const NodeView& node) {
  KernelCall call = batch_norm_call(node, "batch_norm_inference", node.input(0).shape);
  call.in_place = {0};
  return call;
}

KernelCall batch_norm_training(const NodeView& node) {
  KernelCall call = batch_norm_call(node, training_name(node, "batch_norm"), node.input(0).shape);
  if (node.has_input(4)) call.over = {{3, 3}, {4, 4}};  // the running statistics
  return call;
}

KernelCall batch_norm_backward(const NodeView& node) {
  return batch_norm_call(node, training_name(node, "batch_norm_backward"), node.input(1).shape);
}

KernelCall fold_batch_norm(const NodeView& node) {
  const Shape& weight = node.input(0).shape;
  return {.name = "fold_batch_norm",
          .config = {{"channels", weight[0]},
                     {"inner", ops::product(weight, 1, weight.rank())},
                     {"eps", node.attributes().number("eps")}},
          .in_place = {0}};
}

KernelCall rows_call(const NodeView& node, std::string name, const Shape& x) {
  const std::size_t rows = x.rank() - static_cast<std::size_t>(node.attributes().integer("dims"));
  return {.name = std::move(name),
          .file = "layer_norm",
          .config = {{"rows", ops::product(x, 0, rows)},
                     {"size", ops::product(x, rows, x.rank())},
                     {"eps", node.attributes().number("eps")}}};
}

KernelCall layer_norm(const NodeView& node) { return rows_call(node, "layer_norm", node.input(0).shape); }
KernelCall rms_norm(const NodeView& node) { return rows_call(node, "rms_norm", node.input(0).shape); }
KernelCall layer_norm_backward(const NodeView& node) {
  return rows_call(node, "layer_norm_backward", node.input(1).shape);
}
KernelCall rms_norm_backward(const NodeView& node) { return rows_call(node, "rms_norm_backward", node.input(1).shape); }

KernelCall group_norm_call(const NodeView& node, std::string name, const Shape& x) {
  return {.name = std::move(name),
          .file = "group_norm",
          .config = {{"batch", x[0]},
                     {"channels", x[1]},
                     {"groups", Dim(node.attributes().integer("groups"))},
                     {"inner", ops::product(x, 2, x.rank())},
                     {"eps", node.attributes().number("eps")}}};
}

KernelCall group_norm(const NodeView& node) { return group_norm_call(node, "group_norm", node.input(0).shape); }
KernelCall group_norm_backward(const NodeView& node) {
  return group_norm_call(node, "group_norm_backward", node.input(1).shape);
}

}  // namespace

std::span<const Row> norms() {
  static constexpr Row kRows[] = {
      {&ir::kBatchNorm, batch_norm},
      {&ir::kBatchNormBackward, batch_norm_backward},
      {&ir::kBatchNormTraining, batch_norm_training},
      {&ir::kFoldBatchNorm, fold_batch_norm},
      {&ir::kGroupNorm, group_norm},
      {&ir::kGroupNormBackward, group_norm_backward},
      {&ir::kLayerNorm, layer_norm},
      {&ir::kLayerNormBackward, layer_norm_backward},
      {&ir::kRmsNorm, rms_norm},
      {&ir::kRmsNormBackward, rms_norm_backward},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
