#include "codegen/lowering/families.h"
#include "ir/ops/cross_entropy_shared.h"

namespace graven::codegen::lowering {

namespace {

KernelCall cross_entropy_call(const NodeView& node, std::string name, const Shape& logits) {
  return {.name = std::move(name),
          .file = "cross_entropy",
          .config = {{"rows", logits[0]},
                     {"classes", logits[1]},
                     {"reduction", Dim(ops::reduction_number(node.attributes().text("reduction")))},
                     {"ignore_index", Dim(node.attributes().integer("ignore_index"))},
                     {"label_smoothing", node.attributes().number("label_smoothing")}},
          .checks_data = true};
}

KernelCall cross_entropy(const NodeView& node) {
  KernelCall call = cross_entropy_call(node, "cross_entropy", node.input(0).shape);
  call.over = {{1, 0}};  // probabilities over logits
  return call;
}

KernelCall cross_entropy_backward(const NodeView& node) {
  KernelCall call = cross_entropy_call(node, "cross_entropy_backward", node.input(1).shape);
  call.in_place = {1};
  return call;
}

KernelCall binary_cross_entropy(const NodeView& node) {
  return {.name = "binary_cross_entropy",
          .config = {{"n", node.input(0).shape.numel()}},
          .checks_data = true,
          .in_place = {0, 1}};
}

}  // namespace

std::span<const Row> losses() {
  static constexpr Row kRows[] = {
      {&ir::kBinaryCrossEntropy, binary_cross_entropy},
      {&ir::kCrossEntropy, cross_entropy},
      {&ir::kCrossEntropyBackward, cross_entropy_backward},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
